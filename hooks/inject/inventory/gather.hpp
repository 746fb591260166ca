// How is the node's inventory made? From /proc and the driver's files, and what its management library adds.
#pragma once

#include <chrono>
#include <string>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "hooks/inject/edits/host_roots.hpp"
#include "hooks/inject/inventory/inventory_fields.hpp"

namespace situla::nvidia {

inline constexpr std::chrono::milliseconds kNvmlLimit{10'000};

/// Asks the management library without loading it here: by a process that has no capabilities, and a time limit.
/// `program` is situla-nvml, `library` a libnvidia-ml.so.1 as this process sees it. The program is killed at the limit;
/// one that the kernel does not let go is left behind.
Result<NvmlAnswer> query_nvml(const std::string& program, const std::string& library,
                              std::chrono::milliseconds limit = kNvmlLimit);

struct GatherOptions {
  std::string nvml_program;  ///< situla-nvml; empty: the management library is not asked
  std::chrono::milliseconds nvml_limit = kNvmlLimit;
};

/// Is a driver loaded? One look at /proc.
bool has_driver(const HostRoots& roots);
/// Takes as long as the management library: seconds, when no other process keeps the GPUs awake. What that cannot tell
/// is a warning. ErrorKind::not_found where no driver is loaded.
Result<Inventory> gather(const HostRoots& roots, const GatherOptions& options, LogSink& log);

// driver_files.cpp: the host's ld.so.cache and the usual directories, in the version that the kernel runs.
/// Libraries, binaries, firmware, configuration and links of an Inventory whose driver_version is set. What is missing
/// is left out; a broken ld.so.cache is a warning, and the usual directories are searched.
void find_driver_files(const HostRoots& roots, Inventory& inventory, LogSink& log);

/// Sockets of the driver's daemons, as far as they are there now. Those of the multi-process server belong to jobs.
std::vector<File> find_sockets(const RootDir& driver);

// nodes.cpp: cheap, nothing is opened but files of /proc and directories.
/// Fills in everything of type Node, and the capability files of MIG devices, from GPUs whose minor, address and
/// instances are known. On the machine's own devices a node that is not what the kernel's tables say is left out, with
/// a warning; so is a GPU whose node is another's.
void find_nodes(const HostRoots& roots, Inventory& inventory, LogSink& log);

}  // namespace situla::nvidia
