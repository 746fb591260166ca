// How are many node names written in few words, as Slurm does it?
#pragma once

#include <string>
#include <vector>

namespace situla::doctor {

/// {"node01", "node02", "node04", "gpu1"} -> "gpu1,node[01-02,04]". Names that differ in one number only are folded;
/// numbers of different widths ("9", "10") are one range unless zeros lead them. Sorted, each name once.
std::string fold_nodes(std::vector<std::string> nodes);

/// Whether `left` comes before `right` when numbers in names count as numbers: node2, node10.
bool node_less(const std::string& left, const std::string& right);

}  // namespace situla::doctor
