// Which network adapters does a container get, and which does it not even see? MELLANOX_VISIBLE_DEVICES as enroot's
// 99-mellanox.sh has it (GPU.md 6), and names of devices of the kind "situla.dev/hca".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "hooks/inject/edits/edits.hpp"
#include "hooks/inject/edits/host_roots.hpp"
#include "hooks/inject/hca/adapters.hpp"

namespace situla::hca {

struct Scene {
  const HostRoots& roots;
  const Environment& host;       ///< the job's or user's environment, with enroot's configuration
  const Environment& container;  ///< the container's so far; the host's word comes first
  bool real_root = false;        ///< root of the node (ENROOT_ALLOW_SUPERUSER), who also gets umad and issm
  LogSink& log;
};

/// Nothing without MELLANOX_VISIBLE_DEVICES, or when it is empty, "void" or "none": then /dev and /sys stay as they
/// are. Otherwise the classes of sysfs show only the chosen adapters, by links to /sys/devices, which is never hidden:
/// programs learn the topology there. "all": every adapter that can be used from here, of any driver. Numbers: indices
/// of adapters(). ErrorKind::usage: "Unknown MELLANOX device id: 7". ErrorKind::not_found: the job asks, and there is
/// none; when only the image asks, an info line says so.
Result<ContainerEdits> edits_by_variable(const Scene& scene);

/// "situla.dev/hca=..."
bool is_device(std::string_view name);

/// The nodes of these devices and rdma_cm, for --container-devices; sysfs stays as it is. After '=': "mlx5_0", an
/// index, a PCI address (all that its function has) or "all". ErrorKind::not_found names the wrong one and those there
/// are.
Result<ContainerEdits> edits_by_name(const std::vector<std::string>& names, const HostRoots& roots, LogSink& log);

/// "0: mlx5_0 (0000:3b:00.0), 1: ..."; for hints.
std::string list(const std::vector<Adapter>& all);

}  // namespace situla::hca
