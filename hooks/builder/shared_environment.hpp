// Which variables does a container give to the tasks that join it?
#pragma once

#include "common/spec/environment.hpp"

namespace situla {

/// What the container changes. A variable that comes out of it as it went in is left to each task's own value: SLURM_*
/// and CUDA_VISIBLE_DEVICES differ between the tasks that share the container.
Environment changed_variables(const Environment& host, const Environment& container);

/// For tasks of other steps: all of the container's but what says who and where a task, a step or a job is.
Environment for_other_steps(const Environment& container);

}  // namespace situla
