// Which files of the driver are there? Found through the host's ld.so.cache and the usual directories; only those of
// the version that the kernel runs.
#pragma once

#include <string>
#include <vector>

#include "common/base/log.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/inject/edits/host_roots.hpp"
#include "hooks/inject/inventory/inventory.hpp"

namespace situla::nvidia {

/// Libraries, binaries, firmware, configuration and links of an Inventory whose driver_version is set. What is missing
/// is left out; a broken ld.so.cache is a warning, and the usual directories are searched.
void find_driver_files(const HostRoots& roots, Inventory& inventory, LogSink& log);

/// Sockets of the driver's daemons, as far as they are there now. Those of the multi-process server belong to jobs.
std::vector<File> find_sockets(const RootDir& driver);

}  // namespace situla::nvidia
