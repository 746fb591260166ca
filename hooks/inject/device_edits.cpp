#include "hooks/inject/device_edits.hpp"

#include <algorithm>

#include "common/base/text.hpp"
#include "hooks/inject/cdi/resolve.hpp"
#include "hooks/inject/hca/hca.hpp"
#include "hooks/inject/hooks.hpp"
#include "hooks/inject/host_roots.hpp"
#include "hooks/inject/nvidia/container_cli.hpp"
#include "hooks/inject/nvidia/gather.hpp"
#include "hooks/inject/nvidia/inventory_cache.hpp"
#include "hooks/inject/nvidia/plan.hpp"

namespace situla {
namespace {

Result<HostRoots> open_roots(const DeviceSettings& settings) {
  return HostRoots::open(settings.driver_root, settings.device_root);
}

const std::vector<std::string>& wanted_names(const DeviceScene& scene) {
  return scene.wanted.empty() ? scene.settings.devices : scene.wanted;
}

bool asks(const DeviceScene& scene, std::string_view variable) {
  return scene.host.has(variable) || scene.container.has(variable);
}

constexpr std::string_view kNvidiaKind = "nvidia.com/gpu";

Result<ContainerEdits> by_specification(const std::vector<std::string>& names, const CdiRegistry& registry,
                                        const DeviceScene& scene) {
  TRY_ASSIGN(const HostRoots roots, open_roots(scene.settings));
  return cdi_edits(names, registry, CdiContext{scene.root, roots, scene.settings, {}}, scene.log);
}

/// Names that the variable holds. An image also has to start where nobody knows of such devices.
Result<ContainerEdits> nvidia_by_names(const std::vector<std::string>& names, nvidia::Asker asker,
                                       const DeviceScene& scene) {
  const CdiRegistry registry = CdiRegistry::load(scene.settings.cdi_directories);
  const bool known = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return !registry.names_of_kind(name.substr(0, name.find('='))).empty();
  });
  if (known || asker == nvidia::Asker::job) return by_specification(names, registry, scene);
  scene.log.info("the image asks for " + join(names, ", ") +
                 ", and no CDI specification on this node has any of these");
  return ContainerEdits();
}

/// gpu = "cdi": what the variable names are devices of a specification, most of all "all".
Result<ContainerEdits> nvidia_by_specification(const nvidia::DriverRequest& request, const DeviceScene& scene) {
  std::vector<std::string> names;
  for (const std::string& device : request.devices)
    names.push_back(std::string(kNvidiaKind) + "=" + (to_lower(device) == "all" ? "all" : device));
  return names.empty() ? ContainerEdits() : nvidia_by_names(names, request.asker, scene);
}

/// Whatever is wrong with what an image says, it starts where there is no driver anyway.
Result<nvidia::DriverRequest> nvidia_request(const DeviceScene& scene) {
  auto request = nvidia::parse_request(scene.host, scene.container);
  if (request || scene.host.has("NVIDIA_VISIBLE_DEVICES")) return request;
  TRY_ASSIGN(const HostRoots roots, open_roots(scene.settings));
  if (nvidia::has_driver(roots)) return request;
  scene.log.info("the image asks for NVIDIA GPUs, and this node has no driver for them; " + request.error().message());
  return nvidia::DriverRequest();
}

Result<ContainerEdits> nvidia_native(const nvidia::DriverRequest& request, const DeviceScene& scene) {
  TRY_ASSIGN(const HostRoots roots, open_roots(scene.settings));
  auto node =
      nvidia::node_inventory(roots, SITULA_RUNTIME_DIR "/nvidia.json", {SITULA_LIBEXEC_DIR "/situla-nvml"}, scene.log);
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

Result<ContainerEdits> nvidia_edits(const DeviceScene& scene) {
  if (scene.settings.gpu == GpuMode::off) return ContainerEdits();
  // Who names them with --container-devices, or for all containers of the site, does not want them twice.
  const std::vector<std::string>& named = wanted_names(scene);
  if (std::any_of(named.begin(), named.end(),
                  [](const std::string& name) { return name.starts_with(std::string(kNvidiaKind) + "="); }))
    return ContainerEdits();
  TRY_ASSIGN(const nvidia::DriverRequest request, nvidia_request(scene));
  if (!request.cdi_names.empty()) return nvidia_by_names(request.cdi_names, request.asker, scene);
  if (!request.wanted()) return ContainerEdits();
  switch (scene.settings.gpu) {
    case GpuMode::cdi:
      return nvidia_by_specification(request, scene);
    case GpuMode::nvidia_container_cli:
      return nvidia::container_cli_edits(request, scene.root_path, scene.host);
    default:
      return nvidia_native(request, scene);
  }
}

Result<ContainerEdits> mellanox_edits(const DeviceScene& scene) {
  if (!asks(scene, "MELLANOX_VISIBLE_DEVICES")) return ContainerEdits();
  TRY_ASSIGN(const HostRoots roots, open_roots(scene.settings));
  return hca::edits_by_variable({roots, scene.host, scene.container, scene.real_root, scene.log});
}

Result<ContainerEdits> wanted_edits(const DeviceScene& scene) {
  std::vector<std::string> names = wanted_names(scene);
  if (names.empty() || names.front() == "none") return ContainerEdits();
  TRY_ASSIGN(const HostRoots roots, open_roots(scene.settings));
  const auto others = std::stable_partition(names.begin(), names.end(), hca::is_device);
  const std::vector<std::string> adapters(names.begin(), others);
  ContainerEdits edits;
  if (!adapters.empty()) {
    TRY_ASSIGN(edits, hca::edits_by_name(adapters, roots, scene.log));
  }
  if (others != names.end()) {
    TRY_ASSIGN(ContainerEdits more, by_specification(std::vector<std::string>(others, names.end()),
                                                     CdiRegistry::load(scene.settings.cdi_directories), scene));
    append(edits, std::move(more));
  }
  return edits;
}

namespace {

Result<Proposal> propose(Result<ContainerEdits> (*edits)(const DeviceScene&), const InjectContext& context) {
  Proposal proposal;
  TRY_ASSIGN(proposal.edits, edits({context.root, context.host, context.container, context.device_settings,
                                    context.wanted_devices, context.root_path, context.real_root, context.log}));
  return proposal;
}

}  // namespace

Result<Proposal> nvidia_hook(const InjectContext& context) {
  return propose(nvidia_edits, context);
}

Result<Proposal> mellanox_hook(const InjectContext& context) {
  return propose(mellanox_edits, context);
}

Result<Proposal> wanted_devices_hook(const InjectContext& context) {
  return propose(wanted_edits, context);
}

}  // namespace situla
