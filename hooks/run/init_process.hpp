// How does a command run in a PID namespace of its own, so that whoever started it notices nothing?
#pragma once

#include <functional>

#include "common/base/error.hpp"
#include "common/base/log.hpp"
#include "common/base/result.hpp"

namespace situla {

/// The calling process is inside the container, single-threaded, and still has its capabilities. `become` executes the
/// command, or returns an error. Process 1 of the new namespace mounts its own /proc and reaps; when the command ends,
/// everything else in the namespace is killed. This process waits for it: signals that somebody sends it are passed on,
/// it stops when the command stops, and ends as the command did: the exit code, or by the same signal (then it does not
/// return). The terminal stays with the command, which is in our process group and session.
Result<int> run_as_init(const std::function<Error()>& become, LogSink& log);

}  // namespace situla
