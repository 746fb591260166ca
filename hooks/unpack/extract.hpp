// How does a squashfs file become a directory, and what does it say about itself?
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/log.hpp"
#include "common/base/result.hpp"

namespace situla {

/// From the superblock (kernel documentation, filesystems/squashfs.rst) and the id table.
struct ImageInfo {
  std::string compressor;   ///< "gzip", "zstd", "lz4", "lzo", "xz", "lzma"
  uint32_t block_size = 0;  ///< bytes
  uint32_t inodes = 0;
  uint64_t offset = 0;             ///< of the image in the file, bytes; not 0 in a bundle (hooks/bundle)
  uint64_t bytes_used = 0;         ///< bytes without padding
  uint32_t modification_time = 0;  ///< seconds since 1970
  uint32_t root_mode = 0;          ///< of the top directory, octal 07777
  /// Every file's owner and group, when one number serves for all of them (0 in images made with -all-root).
  std::optional<uint32_t> only_owner;
};

/// ErrorKind::corrupt when the file is no squashfs 4.0, ErrorKind::unsupported when this build lacks its compressor.
/// image_fd: any seekable descriptor open for reading; its offset is not used.
Result<ImageInfo> read_image_info(int image_fd);

/// Content of one regular file of the image, links followed inside it, at most limit bytes (ErrorKind::corrupt beyond).
Result<std::string> read_image_file(int image_fd, const std::string& path, size_t limit = size_t{1} << 20U);

struct ExtractOptions {
  LogSink* log = nullptr;    ///< what could not be kept (device nodes, attributes); one message per kind. Not owned.
  bool keep_set_id = false;  ///< the tree belongs to the caller, so a set-id file would lend out the caller's rights
  size_t threads = 0;        ///< 0: one per processor; more than 16 are of no use
};

/// Extracts into an empty directory. Everything belongs to the caller; modes, modification times, hard links, holes,
/// user.* attributes and, where the kernel allows it, security.capability are kept; devices and sockets are left out.
/// Nothing is created outside the directory whatever the image contains; an image that is inconsistent (bad names,
/// duplicate names, directories that contain themselves) is ErrorKind::corrupt and leaves a partial tree, which is the
/// caller's to remove. Several threads work on it; when it returns, they are gone.
Result<void> extract_image(int image_fd, int target_directory_fd, const ExtractOptions& options);

}  // namespace situla
