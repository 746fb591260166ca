// What does Slurm say, and how is one of its programs run? As the user would, but without what his own job's options
// and variables say of containers.
#pragma once

#include <string>
#include <vector>

#include "common/sys/process/run_program.hpp"
#include "hooks/cli/tool.hpp"

namespace situla::cli {

/// The environment for a program of Slurm's that has nothing to do with the job in which this is called.
Environment for_another_job(Environment environment);

/// What a user sets so that squeue and sinfo show him less (SQUEUE_*, SINFO_*) is not meant for what these are asked
/// here.
Environment without_filters(Environment environment);

/// The program's path. ErrorKind::not_found where PATH has none.
Result<std::string> slurm_program(const Context& context, const std::string& program);

/// With our standard error, on which srun says what goes wrong.
Result<ProgramRun> run_slurm(const Context& context, const std::string& program, std::vector<std::string> words);

/// The lines that one of Slurm's programs prints, without blanks around them.
Result<std::vector<std::string>> ask_slurm(const Context& context, const std::string& program,
                                           std::vector<std::string> words);

}  // namespace situla::cli
