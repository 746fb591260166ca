// How does a command run in a PID namespace of its own, so that whoever started it notices nothing?
#pragma once

#include <functional>

#include <sys/types.h>

#include "common/base/error.hpp"
#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

/// The calling process is inside the container, single-threaded, and still has its capabilities. `become` executes the
/// command, or returns an error. Process 1 of the new namespace mounts its own /proc and reaps; when the command ends,
/// everything else in the namespace is killed. This process waits for it: signals that somebody sends it are passed on,
/// it stops when the command stops, and ends as the command did: the exit code, or by the same signal (then it does not
/// return). The terminal stays with the command, which is in our process group and session.
Result<int> run_as_init(const std::function<Error()>& become, LogSink& log);

/// For a Slurm step: the calling process is inside the container and has its capabilities. Makes a PID namespace for
/// others to join (its ns/pid_for_children) with a process 1 that mounts /proc, reaps, and ends when the other end of
/// the returned socket is closed; everything else in the namespace is killed then.
struct StepInit {
  UniqueFd line;
  pid_t pid = -1;  ///< in the caller's namespace
};
Result<StepInit> start_init();

}  // namespace situla
