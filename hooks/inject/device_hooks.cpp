#include <algorithm>

#include "common/base/text.hpp"
#include "hooks/inject/device_sources.hpp"
#include "hooks/inject/hca/hca.hpp"
#include "hooks/inject/hooks.hpp"

namespace situla {
namespace {

Result<HostRoots> open_roots(const DeviceSettings& settings) {
  return HostRoots::open(settings.driver_root, settings.device_root);
}

const std::vector<std::string>& wanted_names(const HookContext& context) {
  return context.wanted_devices.empty() ? context.device_settings.devices : context.wanted_devices;
}

bool asks(const HookContext& context, std::string_view variable) {
  return context.host.has(variable) || context.container.has(variable);
}

constexpr std::string_view kNvidiaKind = "nvidia.com/gpu";

/// Names that the variable holds. An image also has to start where nobody knows of such devices.
Result<ContainerEdits> nvidia_by_names(const std::vector<std::string>& names, nvidia::Asker asker,
                                       const HookContext& context) {
  if (asker == nvidia::Asker::job || any_specified(names, context.device_settings))
    return specified_edits(names, context);
  context.log.info("the image asks for " + join(names, ", ") +
                   ", and no CDI specification on this node has any of these");
  return ContainerEdits();
}

/// gpu = "cdi": what the variable names are devices of a specification, most of all "all".
Result<ContainerEdits> nvidia_by_specification(const nvidia::DriverRequest& request, const HookContext& context) {
  std::vector<std::string> names;
  for (const std::string& device : request.devices)
    names.push_back(std::string(kNvidiaKind) + "=" + (to_lower(device) == "all" ? "all" : device));
  return names.empty() ? ContainerEdits() : nvidia_by_names(names, request.asker, context);
}

/// Whatever is wrong with what an image says, it starts where there is no driver anyway.
Result<nvidia::DriverRequest> nvidia_request(const HookContext& context) {
  auto request = nvidia::parse_request(context.host, context.container);
  if (request || context.host.has("NVIDIA_VISIBLE_DEVICES")) return request;
  TRY_ASSIGN(const HostRoots roots, open_roots(context.device_settings));
  const std::string reason = why_no_gpus(roots);
  if (reason.empty()) return request;
  context.log.info("the image asks for NVIDIA GPUs, and " + reason + "; " + request.error().message());
  return nvidia::DriverRequest();
}

}  // namespace

Result<ContainerEdits> nvidia_hook(const HookContext& context) {
  if (context.device_settings.gpu == GpuMode::off) return ContainerEdits();
  // Who names them with --container-devices, or for all containers of the site, does not want them twice.
  const std::vector<std::string>& named = wanted_names(context);
  if (std::any_of(named.begin(), named.end(),
                  [](const std::string& name) { return name.starts_with(std::string(kNvidiaKind) + "="); }))
    return ContainerEdits();
  TRY_ASSIGN(const nvidia::DriverRequest request, nvidia_request(context));
  if (!request.cdi_names.empty()) return nvidia_by_names(request.cdi_names, request.asker, context);
  if (!request.wanted()) return ContainerEdits();
  if (context.device_settings.gpu == GpuMode::cdi) return nvidia_by_specification(request, context);
  return driver_edits(request, context);
}

Result<ContainerEdits> mellanox_hook(const HookContext& context) {
  if (!asks(context, "MELLANOX_VISIBLE_DEVICES")) return ContainerEdits();
  TRY_ASSIGN(const HostRoots roots, open_roots(context.device_settings));
  return hca::edits_by_variable({roots, context.host, context.container, context.real_root, context.log});
}

Result<ContainerEdits> wanted_devices_hook(const HookContext& context) {
  std::vector<std::string> names = wanted_names(context);
  if (names.empty() || names.front() == "none") return ContainerEdits();
  TRY_ASSIGN(const HostRoots roots, open_roots(context.device_settings));
  const auto others = std::stable_partition(names.begin(), names.end(), hca::is_device);
  const std::vector<std::string> adapters(names.begin(), others);
  ContainerEdits edits;
  if (!adapters.empty()) {
    TRY_ASSIGN(edits, hca::edits_by_name(adapters, roots, context.log));
  }
  if (others != names.end()) {
    TRY_ASSIGN(ContainerEdits more, specified_edits(std::vector<std::string>(others, names.end()), context));
    append(edits, std::move(more));
  }
  return edits;
}

}  // namespace situla
