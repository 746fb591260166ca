#include "hooks/builder/shared_environment.hpp"

#include <algorithm>
#include <array>

namespace situla {
namespace {

// What Slurm and its MPI and GPU plugins set (srun(1), OUTPUT ENVIRONMENT VARIABLES; pmi2, pmix; gres/gpu), and where
// the other step's user was.
constexpr std::array<std::string_view, 10> kPrefixes = {"SLURM_", "SLURMD_", "SBATCH_", "PMI_",    "PMI2_",
                                                        "PMIX_",  "OMPI_",   "PYXIS_",  "SITULA_", "SPANK_"};
constexpr std::array<std::string_view, 12> kNames = {"CUDA_VISIBLE_DEVICES",
                                                     "ROCR_VISIBLE_DEVICES",
                                                     "ZE_AFFINITY_MASK",
                                                     "GPU_DEVICE_ORDINAL",
                                                     "RANK",
                                                     "LOCAL_RANK",
                                                     "WORLD_SIZE",
                                                     "MASTER_ADDR",
                                                     "MASTER_PORT",
                                                     "PWD",
                                                     "OLDPWD",
                                                     "TMPDIR"};

bool belongs_to_a_step(std::string_view name) {
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace

Environment changed_variables(const Environment& host, const Environment& container) {
  Environment changed;
  for (const auto& [name, value] : container.entries())
    if (host.get(name) != value) changed.set(name, value);
  return changed;
}

Environment for_other_steps(const Environment& container) {
  Environment shared;
  for (const auto& [name, value] : container.entries())
    if (!belongs_to_a_step(name)) shared.set(name, value);
  return shared;
}

}  // namespace situla
