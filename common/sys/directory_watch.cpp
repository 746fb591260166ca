#include "common/sys/directory_watch.hpp"

#include <array>
#include <cerrno>
#include <cstring>

#include <sys/inotify.h>
#include <unistd.h>

#include "common/sys/fd_path.hpp"

namespace situla {

Result<DirectoryWatch> DirectoryWatch::open(int directory_fd) {
  UniqueFd fd(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!fd) return fail_errno(errno, "watch a directory");
  if (inotify_add_watch(fd.get(), fd_path(directory_fd).c_str(), IN_CLOSE_WRITE | IN_MOVED_TO | IN_ONLYDIR) < 0)
    return fail_errno(errno, "watch a directory");
  return DirectoryWatch(std::move(fd));
}

Result<DirectoryWatch::Written> DirectoryWatch::read() const {
  Written written;
  constexpr size_t kBytes = 8192;
  alignas(inotify_event) std::array<char, kBytes> events{};
  for (;;) {
    const ssize_t got = ::read(fd_.get(), events.data(), events.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return written;
    if (got <= 0) return fail_errno(errno, "read what is new in a directory");
    for (size_t at = 0; at + sizeof(inotify_event) <= static_cast<size_t>(got);) {
      inotify_event event{};
      std::memcpy(&event, &events.at(at), sizeof event);
      if ((event.mask & IN_Q_OVERFLOW) != 0) written.lost = true;
      if (event.len > 0) written.names.emplace_back(&events.at(at + sizeof event));
      at += sizeof event + event.len;
    }
  }
}

}  // namespace situla
