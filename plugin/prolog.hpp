// Which image can be fetched before a job's first step? From sbatch and salloc, where the options are known, to the
// prolog on each node, which Slurm tells nothing of them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/protocol/messages.hpp"
#include "common/spec/container_spec.hpp"
#include "common/spec/plugin_arguments.hpp"

namespace situla {

/// For spank_job_control_setenv(); as the prolog has it; and as the job has it, where it is for nobody: containers do
/// not get it.
constexpr const char* kPrologVariable = "SITULA_PREFETCH";
constexpr const char* kPrologVariableInProlog = "SPANK_SITULA_PREFETCH";
constexpr const char* kPrologVariableInJob = "SLURM_SPANK_SITULA_PREFETCH";

/// On the client: the value of that variable; empty: nothing is to be fetched early. `allocates_only`: sbatch or
/// salloc, whose steps come later. `variable`: the user's environment, of which those that an import follows go along.
std::string early_image(const ContainerSpec& spec, const PluginConfig& config, bool allocates_only,
                        const std::function<std::optional<std::string>(const std::string& name)>& variable);

struct JobImport {
  StepRequest request;
  std::string environment;  ///< Environment::block()
};
/// In the prolog: what the broker gets. The text is the user's; his number is Slurm's. nullopt: it is not to be
/// fetched.
Result<std::optional<JobImport>> job_import(std::string_view value, const PluginConfig& config, uint32_t job,
                                            uid_t uid);

}  // namespace situla
