// What can this node do with images, and what is wrong with it? For slurmd's log, from `situla doctor --brief`.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/base/result.hpp"

namespace situla {

struct NodeReport {
  std::string images;               ///< "images by kernel mount"
  std::vector<std::string> errors;  ///< "store: /var/lib/situla does not exist; fix: ..."
};

/// Runs `program` (situla) for at most `limit`; kills it then. The kernel is tried in that process and its children,
/// never in this one. slurm_conf: what SLURM_CONF says, or empty. Lines are safe to print.
Result<NodeReport> examine_node(const std::string& program, const std::string& slurm_conf,
                                std::chrono::milliseconds limit = std::chrono::seconds(5));

/// Starts the program that finds out what the node has of NVIDIA's, so that no step waits for it.
Result<void> gather_inventory();

}  // namespace situla
