// What do the CDI devices that a job names change in its container? Their specifications as edits that an ordinary
// user can apply; what needs privilege is told.
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
#include "hooks/inject/cdi/registry.hpp"
#include "hooks/inject/edits/edits.hpp"
#include "hooks/inject/host_roots.hpp"

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

/// By the rules of CDI 1.1.0: the edits of each specification once, before those of its first device; then each device.
/// The environment has what the files set, NVIDIA_VISIBLE_DEVICES=void among it, which says that nobody else shall
/// add the GPUs. Of a device called "all" only what the step may use is taken; any other name of which something is
/// denied is an error.
Result<ContainerEdits> cdi_edits(const std::vector<std::string>& names, const CdiRegistry& registry,
                                 const CdiContext& context, LogSink& log);

}  // namespace situla
