// How does Slurm write a list of nodes? "node[1-3,7],login" (scontrol show hostlist).
#pragma once

#include <string>
#include <vector>

namespace situla {

/// In the order of their names; one that is there twice is said once.
std::string node_list(std::vector<std::string> names);

}  // namespace situla
