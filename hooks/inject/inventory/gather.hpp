// How is the node's inventory made? From /proc and the driver's files, and what its management library adds.
#pragma once

#include <chrono>
#include <string>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "hooks/inject/edits/host_roots.hpp"
#include "hooks/inject/inventory/inventory.hpp"
#include "hooks/inject/inventory/nvml_query.hpp"

namespace situla::nvidia {

struct GatherOptions {
  std::string nvml_program;  ///< situla-nvml; empty: the management library is not asked
  std::chrono::milliseconds nvml_limit = kNvmlLimit;
};

/// Is a driver loaded? One look at /proc.
bool has_driver(const HostRoots& roots);
/// Takes as long as the management library: seconds, when no other process keeps the GPUs awake. What that cannot tell
/// is a warning. ErrorKind::not_found where no driver is loaded.
Result<Inventory> gather(const HostRoots& roots, const GatherOptions& options, LogSink& log);

}  // namespace situla::nvidia
