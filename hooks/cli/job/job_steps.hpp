// Which step of a job is meant, on which node does it run, and how does one get there? For attach and ssh.
#pragma once

#include <string>
#include <vector>

#include "common/sys/process/process.hpp"
#include "hooks/cli/tool.hpp"

namespace situla::cli {

/// Where a job's container is.
struct JobPlace {
  std::vector<std::string> job;  ///< what means it to srun
  std::string steps;  ///< what exec is told: "12.1,12.0,12.batch", of which the first one with a container is meant
  std::string node;
};

/// word: JOB or JOB.STEP, as squeue shows them. node: one on which it runs; empty: the first one of the step that began
/// last. Without STEP all steps of that node may be meant.
Result<JobPlace> find_job(const Context& context, const std::string& command, const std::string& word,
                          const std::string& node);

/// srun, for one more step of the job, on that node, beside those that run; its arguments end with `words`. With our
/// standard streams.
Result<SpawnOptions> step_beside(const Context& context, const JobPlace& place, const std::vector<std::string>& options,
                                 const std::vector<std::string>& words);

/// A shell inside: what the user has, as far as the image has it.
constexpr const char* kShellInside =
    "for shell in \"${SHELL-}\" /bin/bash /bin/sh; do [ -x \"$shell\" ] && exec \"$shell\"; done; exec sh";

}  // namespace situla::cli
