// Which devices does a container get, and what belongs to them? By the variables of NVIDIA and Mellanox, by
// --container-devices, and by what the administrator says.
#pragma once

#include <string>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/inject/edits/edits.hpp"

namespace situla {

struct DeviceScene {
  const RootDir& root;           ///< the container's files
  const Environment& host;       ///< the job's or user's environment, with enroot's configuration
  const Environment& container;  ///< the container's so far
  const DeviceSettings& settings;
  const std::vector<std::string>& wanted;  ///< ContainerSpec::devices
  std::string root_path;                   ///< where the container's root is, for NVIDIA's own tool
  bool real_root = false;                  ///< root of the node, in no user namespace (ENROOT_ALLOW_SUPERUSER)
  LogSink& log;
};

/// NVIDIA_VISIBLE_DEVICES and the other NVIDIA_* variables, as enroot's 98-nvidia.sh has them.
Result<ContainerEdits> nvidia_edits(const DeviceScene& scene);
/// MELLANOX_VISIBLE_DEVICES, as enroot's 99-mellanox.sh has it.
Result<ContainerEdits> mellanox_edits(const DeviceScene& scene);
/// --container-devices, else the site's `devices`.
Result<ContainerEdits> wanted_edits(const DeviceScene& scene);

}  // namespace situla
