// What is known of the host and the container when specifications become edits?
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/inject/edits/edits.hpp"
#include "hooks/inject/edits/host_roots.hpp"
#include "hooks/mount/device_number.hpp"

namespace situla {

namespace cdi {

/// What is at a path of the host.
struct HostNode {
  std::optional<DeviceNumber> number;  ///< nullopt: no device
  bool fifo = false;
  /// The device cgroup of the step denies it. What the mode of the node denies does not count: of an AMD GPU a user may
  /// open the render node only, and that is enough.
  bool denied = false;
};

/// Links are followed. ErrorKind::not_found.
Result<HostNode> look_at_host(const std::string& path);

}  // namespace cdi

struct CdiContext {
  const RootDir& root;    ///< the container's files
  const HostRoots& host;  ///< its `devices` has the proc of the driver; paths in specifications are the host's
  const DeviceSettings& settings;
  std::vector<gid_t> groups;  ///< of the job's user, as ids of the host; empty: unknown
  std::function<Result<cdi::HostNode>(const std::string& path)> look = cdi::look_at_host;
};

}  // namespace situla
