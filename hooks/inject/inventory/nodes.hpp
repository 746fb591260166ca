// Which of NVIDIA's device nodes are there now? Cheap: nothing is opened but files of /proc and directories.
#pragma once

#include "common/base/log.hpp"
#include "hooks/inject/edits/host_roots.hpp"
#include "hooks/inject/inventory/inventory.hpp"

namespace situla::nvidia {

/// Fills in everything of type Node, and the capability files of MIG devices, from GPUs whose minor, address and
/// instances are known. On the machine's own devices a node that is not what the kernel's tables say is left out, with
/// a warning; so is a GPU whose node is another's.
void find_nodes(const HostRoots& roots, Inventory& inventory, LogSink& log);

}  // namespace situla::nvidia
