// By which path is an open descriptor named, for calls that take only paths?
#pragma once

#include <string>

namespace situla {

/// A magic link (proc_pid_fd(5)): what it leads to is the open file itself, wherever that is by now.
inline std::string fd_path(int fd) {
  return "/proc/self/fd/" + std::to_string(fd);
}

}  // namespace situla
