// Which options has each part of a heterogeneous srun (srun A : B)? Slurm knows one set of options for all of them, the
// last part's: each says here what it was given, and has the rest from the parts before.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "plugin/options.hpp"

namespace situla {

/// In the environment of such an srun, and so in the job's: ContainerOptions::part() of each, with colons between, or
/// that of all where they are alike; gone before the task starts. --export=NONE leaves what begins with SLURM_.
constexpr const char* kPartsVariable = "SLURM_SITULA_PARTS";

/// In srun, when a part's options are known, one after the other; an srun that is no heterogeneous one has one part.
/// parts: what was said of those before.
Result<void> hand_on_part(ContainerOptions& options, std::vector<std::string>& parts);
/// On the node, if there is the variable: those of the part whose job this is.
Result<void> use_own_part(ContainerOptions& options, const ContainerOptions::Lookup& lookup, uint32_t job);

}  // namespace situla
