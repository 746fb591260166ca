#include "hooks/inject/driver_devices.hpp"

#include "common/base/installation.hpp"
#include "hooks/inject/nvidia/container_cli.hpp"
#include "hooks/inject/nvidia/gather.hpp"
#include "hooks/inject/nvidia/inventory_cache.hpp"
#include "hooks/inject/nvidia/plan.hpp"

namespace situla {
namespace {

Result<ContainerEdits> by_driver_files(const nvidia::DriverRequest& request, const DeviceScene& scene) {
  TRY_ASSIGN(const HostRoots roots, HostRoots::open(scene.settings.driver_root, scene.settings.device_root));
  auto node =
      nvidia::node_inventory(roots, SITULA_RUNTIME_DIR "/nvidia.json", {libexec_path("situla-nvml")}, scene.log);
  if (!node && node.error().kind() == ErrorKind::not_found) {
    TRY(nvidia::without_driver(request, roots, scene.log));
    return ContainerEdits();
  }
  if (!node) return fail(std::move(node).error());
  if (!node->stale.empty()) scene.log.debug("looked at the GPUs anew: " + node->stale);
  return nvidia::plan(request, node->inventory,
                      {roots, scene.root, scene.host, scene.settings, nvidia::kernel_access(roots.devices)}, scene.log);
}

}  // namespace

std::string why_no_gpus(const HostRoots& roots) {
  return nvidia::has_driver(roots) ? "" : "this node has no driver for them";
}

Result<ContainerEdits> driver_edits(const nvidia::DriverRequest& request, const DeviceScene& scene) {
  if (scene.settings.gpu == GpuMode::nvidia_container_cli)
    return nvidia::container_cli_edits(request, scene.root_path, scene.host);
  return by_driver_files(request, scene);
}

}  // namespace situla
