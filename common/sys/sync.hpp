// How is what was written on the disk before something else happens?
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.hpp"

namespace situla {

/// The first size bytes of `from` become the content of the empty file `to`: shared where the file system can do that
/// (FICLONE), else copied, and the disk begins to write them at once: sync_file() afterwards waits for the rest only.
Result<void> share_or_copy(int from, int to, uint64_t size);
/// Content and size are on the disk when it returns (fdatasync(2)). `what` is for the error.
Result<void> sync_file(int fd, std::string_view what);
/// The same for the names in a directory, where the file system can do that: some network file systems cannot.
void sync_directory(const std::string& path);

}  // namespace situla
