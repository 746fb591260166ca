#include "common/base/unique_fd.hpp"

#include <cerrno>

#include <unistd.h>

namespace situla {

void UniqueFd::reset(int fd) noexcept {
  if (fd_ >= 0) {
    const int saved = errno;
    ::close(fd_);
    errno = saved;
  }
  fd_ = fd;
}

}  // namespace situla
