// How do the bytes of a file go through a pipe without being looked at? splice(2), where the file systems can.
#pragma once

#include <cstdint>
#include <functional>

#include "common/base/result.hpp"

namespace situla {

/// The first `bytes` of the file. ErrorKind::corrupt when it ends before; errnum EPIPE when nobody reads any more: the
/// caller ignores SIGPIPE.
Result<void> file_to_pipe(int file, int pipe, uint64_t bytes);
/// `bytes` from the pipe become the beginning of the file. go_on is asked now and then with how many are there: false
/// is ErrorKind::cancelled. corrupt when the pipe ends before.
Result<void> pipe_to_file(int pipe, int file, uint64_t bytes, const std::function<bool(uint64_t done)>& go_on);

}  // namespace situla
