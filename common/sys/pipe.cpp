#include "common/sys/pipe.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "common/sys/file.hpp"

namespace situla {
namespace {

constexpr int kPipeBytes = 1 << 20;
constexpr std::chrono::milliseconds kTick{200};

/// At most so many bytes, by the kernel alone; nullopt: this file system is none that it can do that with.
Result<std::optional<uint64_t>> splice_piece(int from, off_t* from_offset, int to, off_t* to_offset, uint64_t most) {
  for (;;) {
    const ssize_t count = splice(from, from_offset, to, to_offset, std::min<uint64_t>(most, kPipeBytes), SPLICE_F_MOVE);
    if (count >= 0) return std::optional(static_cast<uint64_t>(count));
    if (errno == EINVAL) return std::optional<uint64_t>();
    if (errno != EINTR) return fail_errno(errno, "copy through a pipe");
  }
}

Result<uint64_t> read_piece(int from, off_t offset, int to, uint64_t most) {
  std::vector<char> buffer(std::min<uint64_t>(most, kPipeBytes));
  for (;;) {
    const ssize_t count =
        offset < 0 ? read(from, buffer.data(), buffer.size()) : pread(from, buffer.data(), buffer.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(errno, "read");
    TRY(write_all(to, {buffer.data(), static_cast<size_t>(count)}));
    return static_cast<uint64_t>(count);
  }
}

}  // namespace

Result<void> file_to_pipe(int file, int pipe, uint64_t bytes) {
  (void)fcntl(pipe, F_SETPIPE_SZ, kPipeBytes);  // where the user may have that
  for (uint64_t done = 0; done < bytes;) {
    auto at = static_cast<off_t>(done);
    TRY_ASSIGN(auto count, splice_piece(file, &at, pipe, nullptr, bytes - done));
    if (!count) {
      TRY_ASSIGN(count, read_piece(file, static_cast<off_t>(done), pipe, bytes - done));
    }
    if (*count == 0) return fail(ErrorKind::corrupt, "copy through a pipe: the file ends too early");
    done += *count;
  }
  return {};
}

Result<void> pipe_to_file(int pipe, int file, uint64_t bytes, const std::function<bool(uint64_t)>& go_on) {
  if (lseek(file, 0, SEEK_SET) != 0) return fail_errno(errno, "seek in a file");
  for (uint64_t done = 0; done < bytes;) {
    pollfd wait{pipe, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(kTick.count()));
    if (!go_on(done)) return fail(ErrorKind::cancelled, "cancelled");
    if (ready <= 0) continue;
    TRY_ASSIGN(auto count, splice_piece(pipe, nullptr, file, nullptr, bytes - done));
    if (!count) {
      TRY_ASSIGN(count, read_piece(pipe, -1, file, bytes - done));
    }
    if (*count == 0) return fail(ErrorKind::corrupt, "copy through a pipe: it ends too early");
    done += *count;
  }
  return {};
}

}  // namespace situla
