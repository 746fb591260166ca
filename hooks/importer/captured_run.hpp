// What does a program print, what does it complain about, and how does it end?
#pragma once

#include <string>

#include "common/base/result.hpp"
#include "common/sys/process.hpp"

namespace situla {

struct CapturedRun {
  ExitStatus status;
  std::string output;      ///< its standard output, at most 64 KiB
  std::string complaints;  ///< the last 16 KiB of its standard error
};

/// Runs a program to its end, in a session of its own; `options.fds` are set here. Processes that it leaves running are
/// not waited for, even when they hold its output. When the other end of `watched_socket` is closed, the program's
/// process group gets SIGTERM, after half a second SIGKILL, and the result is ErrorKind::cancelled; the same, as
/// ErrorKind::corrupt, when it prints more than that.
Result<CapturedRun> run_captured(SpawnOptions options, int watched_socket);

}  // namespace situla
