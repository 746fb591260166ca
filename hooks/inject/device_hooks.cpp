#include <algorithm>
#include <array>

#include "common/base/text.hpp"
#include "hooks/inject/device_sources.hpp"
#include "hooks/inject/drm/drm.hpp"
#include "hooks/inject/fabric/fabric.hpp"
#include "hooks/inject/gpu/request.hpp"
#include "hooks/inject/hca/hca.hpp"
#include "hooks/inject/hooks.hpp"

namespace situla {
namespace {

/// For what has no driver in user space: a driver_root that is not there is no reason to fail.
Result<HostRoots> open_devices(const DeviceSettings& settings) {
  return HostRoots::open("/", settings.device_root);
}

const std::vector<std::string>& wanted_names(const HookContext& context) {
  return context.wanted_devices.empty() ? context.device_settings.devices : context.wanted_devices;
}

bool asks(const HookContext& context, std::string_view variable) {
  return context.host.has(variable) || context.container.has(variable);
}

/// Whether the built-in way has a say about this vendor's GPUs. Who names them with --container-devices, or for all
/// containers of the site, does not want them twice.
bool is_considered(const gpu::Vendor& vendor, const HookContext& context) {
  const std::vector<std::string>& named = wanted_names(context);
  return context.device_settings.*vendor.mode != GpuMode::off &&
         std::none_of(named.begin(), named.end(),
                      [&](const std::string& name) { return gpu::is_of_kind(name, vendor); });
}

/// Where what a request asks for comes from.
enum class Source { nothing, specification, native };

Source source_of(const gpu::Vendor& vendor, const gpu::Request& request, const HookContext& context) {
  if (!request.cdi_names.empty()) return Source::specification;
  if (request.asker == gpu::Asker::nobody) return Source::nothing;
  return context.device_settings.*vendor.mode == GpuMode::cdi ? Source::specification : Source::native;
}

/// With the setting "cdi", what is asked for are devices of a specification, most of all "all".
std::vector<std::string> specified_names(const gpu::Vendor& vendor, const gpu::Request& request) {
  if (!request.cdi_names.empty()) return request.cdi_names;
  std::vector<std::string> names;
  for (const std::string& device : request.devices)
    names.push_back(std::string(vendor.kind) + "=" + (to_lower(device) == "all" ? "all" : device));
  return names;
}

/// An image also has to start where nobody knows of such devices, and Slurm's GPUs may be another vendor's.
Result<ContainerEdits> by_specification(const gpu::Vendor& vendor, const gpu::Request& request,
                                        const HookContext& context) {
  const std::vector<std::string> names = specified_names(vendor, request);
  if (names.empty()) return ContainerEdits();
  if (request.asker == gpu::Asker::job || any_specified(names, context.device_settings))
    return specified_edits(names, context);
  if (request.asker == gpu::Asker::image)
    context.log.info("the image asks for " + join(names, ", ") +
                     ", and no CDI specification on this node has any of these");
  return ContainerEdits();
}

constexpr std::array<const gpu::Vendor*, 2> kDrmVendors = {&gpu::kAmd, &gpu::kIntel};

/// Where only Slurm asks, whatever goes wrong ends no start.
Result<ContainerEdits> without_failures(Result<ContainerEdits> edits, const HookContext& context) {
  if (!edits) {
    context.log.debug("GPUs of the job: " + edits.error().message());
    return ContainerEdits();
  }
  for (MountStep& step : edits->mounts)
    if (step.on_failure == OnFailure::fail) step.on_failure = OnFailure::warn;
  return edits;
}

bool nobody_but_slurm_asks(const std::vector<drm::Wanted>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [](const drm::Wanted& one) {
    return one.request.refused || one.request.asker == gpu::Asker::slurm;
  });
}

/// Whatever is wrong with what an image says, it starts; then Slurm's word counts.
Result<gpu::Request> drm_request(const gpu::Vendor& vendor, const HookContext& context) {
  auto request = gpu::parse_request(vendor, context.host, context.container);
  if (request || context.host.has(vendor.variable)) return request;
  context.log.info("what the image says of GPUs is ignored: " + request.error().message());
  return gpu::parse_request(vendor, context.host, Environment());
}

Result<ContainerEdits> drm_edits(const std::vector<drm::Wanted>& wanted, const HookContext& context) {
  TRY_ASSIGN(const HostRoots roots, open_devices(context.device_settings));
  return drm::edits(
      wanted, {roots, context.root, context.device_settings.hide_gpus, drm::kernel_access(roots.devices), context.log});
}

/// Takes out of `names` those of GPUs that the node has and that no specification describes: amd.com/gpu=0 works
/// without.
std::vector<drm::Wanted> take_native_gpus(std::vector<std::string>& names, const HostRoots& roots,
                                          const HookContext& context) {
  std::vector<drm::Wanted> wanted;
  for (const gpu::Vendor* vendor : kDrmVendors) {
    const auto mine = std::stable_partition(names.begin(), names.end(),
                                            [&](const std::string& name) { return !gpu::is_of_kind(name, *vendor); });
    const std::vector<std::string> named(mine, names.end());
    if (named.empty() || context.device_settings.*vendor->mode != GpuMode::native ||
        any_specified(named, context.device_settings) || !drm::has_gpus(roots.devices, *vendor))
      continue;
    names.erase(mine, names.end());
    // What the site wants for all containers is no job's request.
    drm::Wanted one{
        vendor, {context.wanted_devices.empty() ? gpu::Asker::image : gpu::Asker::job, {}, {}}, named.front()};
    for (const std::string& name : named) one.request.devices.push_back(name.substr(vendor->kind.size() + 1));
    wanted.push_back(std::move(one));
  }
  return wanted;
}

/// Whatever is wrong with what an image says, it starts where there is no driver anyway.
Result<nvidia::DriverRequest> nvidia_request(const HookContext& context) {
  auto request = nvidia::parse_request(context.host, context.container);
  if (request || context.host.has("NVIDIA_VISIBLE_DEVICES")) return request;
  TRY_ASSIGN(const HostRoots roots, open_devices(context.device_settings));
  const std::string reason = why_no_gpus(roots);
  if (reason.empty()) return request;
  context.log.info("the image asks for NVIDIA GPUs, and " + reason + "; " + request.error().message());
  return nvidia::DriverRequest();
}

}  // namespace

Result<ContainerEdits> nvidia_hook(const HookContext& context) {
  if (!is_considered(gpu::kNvidia, context)) return ContainerEdits();
  TRY_ASSIGN(const nvidia::DriverRequest request, nvidia_request(context));
  switch (source_of(gpu::kNvidia, request, context)) {
    case Source::nothing:
      return ContainerEdits();
    case Source::specification:
      return by_specification(gpu::kNvidia, request, context);
    case Source::native:
      return driver_edits(request, context);
  }
  return ContainerEdits();
}

Result<ContainerEdits> drm_hook(const HookContext& context) {
  ContainerEdits edits;
  std::vector<drm::Wanted> wanted;
  for (const gpu::Vendor* vendor : kDrmVendors) {
    if (!is_considered(*vendor, context)) continue;
    TRY_ASSIGN(gpu::Request request, drm_request(*vendor, context));
    const bool by_slurm = request.asker == gpu::Asker::slurm;
    // To hide what a job refuses is to be done as well.
    const bool hides = request.refused && context.device_settings.*vendor->mode == GpuMode::native;
    switch (hides ? Source::native : source_of(*vendor, request, context)) {
      case Source::nothing:
        break;
      case Source::specification: {
        auto specified = by_specification(*vendor, request, context);
        TRY_ASSIGN(ContainerEdits more,
                   by_slurm ? without_failures(std::move(specified), context) : std::move(specified));
        append(edits, std::move(more));
        break;
      }
      case Source::native: {
        const std::string origin = by_slurm ? "GPUs of the job" : std::string(vendor->variable);
        wanted.push_back({vendor, std::move(request), origin});
        break;
      }
    }
  }
  if (wanted.empty()) return edits;
  auto planned = drm_edits(wanted, context);
  TRY_ASSIGN(ContainerEdits nodes,
             nobody_but_slurm_asks(wanted) ? without_failures(std::move(planned), context) : std::move(planned));
  append(edits, std::move(nodes));
  return edits;
}

Result<ContainerEdits> fabric_hook(const HookContext& context) {
  const std::vector<Fabric>& parts = context.device_settings.fabric;
  if (parts.empty()) return ContainerEdits();
  const Environment& asked = context.host.has("SITULA_FABRIC") ? context.host : context.container;
  if (asked.get_or("SITULA_FABRIC", "") == "off") return ContainerEdits();
  // The fabric's libraries are the system's, wherever a driver of GPUs has a directory of its own.
  const auto roots = open_devices(context.device_settings);
  if (!roots) {
    context.log.debug("the node's fabric libraries are not used: " + roots.error().message());
    return ContainerEdits();
  }
  const std::string library_path = context.container.get_or("LD_LIBRARY_PATH", "");
  return fabric::edits(parts, {*roots, context.root, library_path, context.log});
}

Result<ContainerEdits> mellanox_hook(const HookContext& context) {
  if (!asks(context, "MELLANOX_VISIBLE_DEVICES")) return ContainerEdits();
  TRY_ASSIGN(const HostRoots roots, open_devices(context.device_settings));
  return hca::edits_by_variable({roots, context.host, context.container, context.real_root, context.log});
}

Result<ContainerEdits> wanted_devices_hook(const HookContext& context) {
  std::vector<std::string> names = wanted_names(context);
  if (names.empty() || names.front() == "none") return ContainerEdits();
  TRY_ASSIGN(const HostRoots roots, open_devices(context.device_settings));
  const auto others = std::stable_partition(names.begin(), names.end(), hca::is_device);
  const std::vector<std::string> adapters(names.begin(), others);
  names.erase(names.begin(), others);
  ContainerEdits edits;
  if (!adapters.empty()) {
    TRY_ASSIGN(edits, hca::edits_by_name(adapters, roots, context.log));
  }
  if (const auto wanted = take_native_gpus(names, roots, context); !wanted.empty()) {
    TRY_ASSIGN(ContainerEdits gpus, drm_edits(wanted, context));
    append(edits, std::move(gpus));
  }
  if (!names.empty()) {
    TRY_ASSIGN(ContainerEdits more, specified_edits(names, context));
    append(edits, std::move(more));
  }
  return edits;
}

}  // namespace situla
