#include "common/sys/sync.hpp"

#include <algorithm>

#include <fcntl.h>
#include <unistd.h>

#include "common/sys/file.hpp"
#include "common/sys/kernel.hpp"

namespace situla {

Result<void> share_or_copy(int from, int to, uint64_t size) {
  if (share_all_blocks(from, to)) return {};
  constexpr uint64_t kPiece = uint64_t{16} << 20U;
  for (uint64_t at = 0; at < size; at += kPiece) {
    const uint64_t count = std::min(size - at, kPiece);
    TRY(copy_range(from, at, to, at, count));
    begin_to_write_out(to, at, count);
  }
  return {};
}

Result<void> sync_file(int fd, std::string_view what) {
  if (kernel::uninterrupted([&] { return fdatasync(fd); }) == 0) return {};
  return fail_errno(errno, "sync " + std::string(what));
}

void sync_directory(const std::string& path) {
  if (const auto directory = open_file(path, O_RDONLY | O_DIRECTORY)) (void)fsync(directory->get());
}

}  // namespace situla
