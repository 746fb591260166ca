// How does the image of a job come to a node before its first step? In slurmd's prolog, which does not wait for it.
#pragma once

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/protocol/messages.hpp"

namespace situla {

/// The descriptors that the plugin gave (contract.hpp).
struct PrologInput {
  UniqueFd epilog;  ///< listens on job_import_path()
  UniqueFd environment;
  StepRequest request;  ///< of kPrologStep
};

/// Returns when the store has the image, or will not get it; when import_timeout is over; or when the job's epilog has
/// connected. A step that comes meanwhile waits for it as for any other import of the same image. What goes wrong is
/// for the node's log: the step that needs the image says it to the user.
void import_before_steps(PrologInput input);

}  // namespace situla
