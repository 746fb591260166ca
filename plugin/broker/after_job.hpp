// What is left for the time after a step or a job, and what is done with it then? Notes in files of root, for brokers
// that are killed and for the job's epilog.
#pragma once

#include <cstdint>
#include <string>

#include <sys/types.h>

#include "plugin/broker/step.hpp"

namespace situla {

/// RootOperation::keep_environment.
void keep_environment(const Step& step);
/// RootOperation::end_job: what serves a named container outlives its step, and no step ends it.
void keep_cgroups(const Step& step);
/// RootOperation::keep_scratch. An empty path: nothing.
void keep_scratch(const Step& step, const std::string& path);
/// The step has ended as it should.
void forget_scratch(const Step& step);

/// After a broker was killed, when its step has ended: what the next one would find and drop is dropped now. Numbers as
/// text. Returns an exit code, as the next one.
int sweep_step(const std::string& job, const std::string& step, const std::string& user);

/// After a job, in slurmd's epilog. remove_containers: named containers end with their job.
int end_job(const std::string& job, const std::string& user, bool remove_containers);

}  // namespace situla
