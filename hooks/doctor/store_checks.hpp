// Which way of keeping the store is in effect on this node, and does what it needs work?
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/file_systems.hpp"
#include "hooks/doctor/report.hpp"
#include "hooks/doctor/slurm_files.hpp"

namespace situla::doctor {

enum class StoreMode {
  node,    ///< each node imports for itself
  shared,  ///< the store is on a file system of several nodes
  sbcast   ///< one node imports, and sbcast takes the image to the stores of the others
};
std::string_view to_string(StoreMode mode);
StoreMode store_mode(const SiteConfig& config, const MountedFrom& place);

/// Facts: mode, path, fileSystem, source.
Check check_store_mode(const SiteConfig& config, const MountedFrom& place);

// store_checks.cpp: a store of several nodes, as its owner finds it.

/// What a file in the store, made and removed, came to.
struct StoreTrial {
  int lease_errnum = 0;                ///< of fcntl(2), F_SETLEASE, F_WRLCK; 0: it was granted
  std::chrono::milliseconds ahead{0};  ///< the file server's clock, of this node's
};
Result<StoreTrial> try_store(const std::string& directory);
/// What tells this store from others, `<directory>/id`; who asks first writes it.
Result<std::string> store_id(const std::string& directory);

/// Whether its owner can write to it, and, when it is tried as root, whether root has rights there. Facts: id.
Check check_store_access(const SiteConfig& config, const Result<StoreTrial>& trial, bool root_refused);
/// Whether a lease tells who has a file open.
Check check_store_leases(const MountedFrom& place, int lease_errnum);
Check check_store_clock(std::chrono::milliseconds ahead);

// local_tier_checks.cpp: copies of a shared store's images on this node's disk.

/// For a situla.toml that names a directory for them. Steps do without: it warns, and never fails. owner: the service
/// user; place: of the directory, which need not exist; beside_store: it is on the store's file system.
Check check_local_tier(const SiteConfig& config, uid_t owner, const MountedFrom& place, bool beside_store);

// sbcast_checks.cpp: what takes images from node to node.

/// Its programs, and what slurm.conf says about it.
Check check_sbcast(const SlurmFiles& files, const Environment& environment);
/// Whether this process's user can encode, and decodes to be the same one.
Check check_munge(const std::string& user, const Environment& environment);
/// Where what sbcast brings is put; it need not exist yet.
Check check_incoming(const std::string& path);

/// All of them that the mode asks for. As root: by the service user, in a child.
Section store_section(const SiteConfig& config, const SlurmFiles& files, const Environment& environment);

}  // namespace situla::doctor
