// How are facts about a squashfs file, or one of its files, read without unpacking it?
#pragma once

#include <string>

#include "common/base/result.hpp"
#include "hooks/unpack/image_access.hpp"

namespace situla {

/// Errors as of ImageAccess::open(). image_fd: any seekable descriptor open for reading; its offset is not used.
Result<ImageInfo> read_image_info(int image_fd);

/// A path inside the image, links followed as in a root file system.
Result<StoredInode> find_in_image(ImageAccess& image, const std::string& path);

/// Content of one regular file of the image, links followed inside it, at most limit bytes (ErrorKind::corrupt beyond).
Result<std::string> read_image_file(int image_fd, const std::string& path, size_t limit = size_t{1} << 20U);

}  // namespace situla
