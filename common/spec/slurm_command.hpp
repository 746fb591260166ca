// Which of Slurm's commands can be used inside of containers? hooks/slurm/README.md
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace situla {

/// A fixed list: what is not in it is never run for a container.
constexpr std::array<std::string_view, 9> kSlurmCommands = {"srun",  "sbatch",   "salloc", "squeue", "scancel",
                                                            "sinfo", "scontrol", "sacct",  "sbcast"};
constexpr bool is_slurm_command(std::string_view name) {
  return std::find(kSlurmCommands.begin(), kSlurmCommands.end(), name) != kSlurmCommands.end();
}

}  // namespace situla
