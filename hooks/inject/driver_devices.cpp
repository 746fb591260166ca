#include "common/base/installation.hpp"
#include "hooks/inject/device_sources.hpp"
#include "hooks/inject/inventory/gather.hpp"
#include "hooks/inject/inventory/inventory_cache.hpp"
#include "hooks/inject/nvidia/container_cli.hpp"
#include "hooks/inject/nvidia/plan.hpp"

namespace situla {
namespace {

Result<ContainerEdits> by_driver_files(const nvidia::DriverRequest& request, const HookContext& context) {
  auto opened = HostRoots::open(context.device_settings.driver_root, context.device_settings.device_root);
  // Where there is no driver, its directory need not be there either.
  if (!opened && opened.error().kind() == ErrorKind::not_found) {
    TRY_ASSIGN(const HostRoots devices, HostRoots::open("/", context.device_settings.device_root));
    if (!devices.devices.exists("/proc/driver/nvidia/version")) {
      TRY(nvidia::without_driver(request, devices, context.log));
      return ContainerEdits();
    }
  }
  if (!opened) return fail(std::move(opened).error());
  const HostRoots& roots = *opened;
  auto node =
      nvidia::node_inventory(roots, SITULA_RUNTIME_DIR "/nvidia.json", {libexec_path("situla-nvml")}, context.log);
  if (!node && node.error().kind() == ErrorKind::not_found) {
    TRY(nvidia::without_driver(request, roots, context.log));
    return ContainerEdits();
  }
  if (!node) return fail(std::move(node).error().with_code(ErrorCode::gpu_driver));
  if (!node->stale.empty()) context.log.debug("looked at the GPUs anew: " + node->stale);
  return nvidia::plan(
      request, node->inventory,
      {roots, context.root, context.host, context.device_settings, nvidia::kernel_access(roots.devices)}, context.log);
}

}  // namespace

std::string why_no_gpus(const HostRoots& roots) {
  return nvidia::has_driver(roots) ? "" : "this node has no driver for them";
}

Result<ContainerEdits> driver_edits(const nvidia::DriverRequest& request, const HookContext& context) {
  if (context.device_settings.gpu == GpuMode::nvidia_container_cli)
    return nvidia::container_cli_edits(request, context.root_path, context.host);
  return by_driver_files(request, context);
}

}  // namespace situla
