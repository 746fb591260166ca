// What does a built-in hook see? The container's files, the host's, and what the container is to be.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/root_dir.hpp"

namespace situla {

/// group(5)
struct GroupEntry {
  std::string name;
  gid_t gid = 0;
};

/// The user on the host, as passwd(5) and group(5) know them.
struct UserEntry {
  std::string name, gecos, home, shell, group;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<GroupEntry> groups = {};  ///< his others, of those that this process's user namespace has
};

/// From the host's databases (getpwuid(3), getgrgid(3)); a user that none of them knows gets a name and home made from
/// the environment (USER, HOME) and the number. Without his other groups.
Result<UserEntry> look_up_user(uid_t uid, gid_t gid, const Environment& environment);
/// The supplementary groups of this process that have a name in the host's databases (getgrgid(3)), 64 at most: a
/// directory service is asked for each.
std::vector<GroupEntry> look_up_groups();

struct HookContext {
  const RootDir& root;           ///< the container's files
  const RootDir& host_root;      ///< the host's "/"; tests give another one
  const Environment& host;       ///< the job's or user's environment, with enroot's configuration
  const Environment& container;  ///< the container's so far
  const UserEntry& user;
  bool remap_root = false;
  bool mount_home = false;
  bool restrict_devices = false;  ///< ENROOT_RESTRICT_DEV
  bool own_ipc = false;           ///< the container has an IPC namespace of its own
  LogSink& log;
  DeviceSettings device_settings = {};
  std::vector<std::string> wanted_devices = {};  ///< ContainerSpec::devices
  std::string root_path = {};                    ///< where `root` is
  bool real_root = false;                        ///< root of the node, in no user namespace
  bool has_range = false;                        ///< of ids: programs can become other users
};

}  // namespace situla
