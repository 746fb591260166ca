#include "hooks/inject/device_edits.hpp"

#include <algorithm>

#include "common/base/text.hpp"
#include "hooks/inject/driver_devices.hpp"
#include "hooks/inject/hca/hca.hpp"
#include "hooks/inject/hooks.hpp"
#include "hooks/inject/host_roots.hpp"
#include "hooks/inject/specified_devices.hpp"

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

/// Names that the variable holds. An image also has to start where nobody knows of such devices.
Result<ContainerEdits> nvidia_by_names(const std::vector<std::string>& names, nvidia::Asker asker,
                                       const DeviceScene& scene) {
  if (asker == nvidia::Asker::job || any_specified(names, scene.settings)) return specified_edits(names, scene);
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
  const std::string reason = why_no_gpus(roots);
  if (reason.empty()) return request;
  scene.log.info("the image asks for NVIDIA GPUs, and " + reason + "; " + request.error().message());
  return nvidia::DriverRequest();
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
  if (scene.settings.gpu == GpuMode::cdi) return nvidia_by_specification(request, scene);
  return driver_edits(request, scene);
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
    TRY_ASSIGN(ContainerEdits more, specified_edits(std::vector<std::string>(others, names.end()), scene));
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
