// How is the node's inventory kept, so that the start of a container does not wait for the management library?
#pragma once

#include <string>

#include "hooks/inject/inventory/gather.hpp"

namespace situla::nvidia {

/// Changes whenever an inventory that was kept may not be true any more: another boot, driver, set of libraries, GPU or
/// MIG device. Well below a millisecond.
std::string inventory_key(const HostRoots& roots);

struct NodeInventory {
  Inventory inventory;
  /// Why the file did not serve, and all was gathered; empty: it did. For the log, and a reason to write it anew.
  std::string stale;
};

/// Whether node_inventory() would take the file.
bool kept_inventory_is_right(const HostRoots& roots, const std::string& file);

/// From the file when it is right: owned by root or this user, writable by nobody else, of this key. Else gathered.
/// Device nodes and sockets are always those that are there now. ErrorKind::not_found where no driver is loaded.
Result<NodeInventory> node_inventory(const HostRoots& roots, const std::string& file, const GatherOptions& options,
                                     LogSink& log);

/// Gathers and replaces the file (0644, its directory is made), for root when slurmd starts. Where no driver is loaded
/// a file of before is removed, and the result is ErrorKind::not_found.
Result<void> keep_node_inventory(const HostRoots& roots, const std::string& file, const GatherOptions& options,
                                 LogSink& log);

}  // namespace situla::nvidia
