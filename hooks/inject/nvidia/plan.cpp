#include "hooks/inject/nvidia/plan.hpp"

#include <algorithm>

#include "common/base/text.hpp"
#include "hooks/inject/nvidia/plan_parts.hpp"
#include "hooks/inject/nvidia/requirement.hpp"

namespace situla::nvidia {
namespace {

CapabilitySet with_implied(CapabilitySet asked) {
  unsigned all = asked;
  if ((asked & kVideo) != 0) all |= kCompute;
  if ((asked & kDisplay) != 0) all |= kGraphics;
  return static_cast<CapabilitySet>(all);
}

/// Every condition has to hold for every GPU; without one, as far as it is about the driver.
Result<void> check_requirements(const DriverRequest& request, const Inventory& inventory, const Selection& gpus) {
  std::vector<Properties> all;
  for (const SelectedGpu& selected : gpus)
    all.push_back({inventory.cuda_version, inventory.driver_version, selected.gpu->architecture, selected.gpu->brand});
  if (all.empty()) all.push_back({inventory.cuda_version, inventory.driver_version, "", ""});
  for (const NamedRequirement& requirement : request.requirements) {
    for (const Properties& properties : all) {
      auto met = check_requirement(requirement.expression, properties);
      if (met) continue;
      const std::string here =
          "this node has driver " + inventory.driver_version +
          (inventory.cuda_version.empty() ? "" : " for CUDA up to " + inventory.cuda_version) +
          (properties.architecture.empty() ? "" : ", compute capability " + properties.architecture) +
          (properties.brand.empty() ? "" : ", brand " + properties.brand);
      return fail(std::move(met).error().with_hint(requirement.variable + " asks; " + here +
                                                   "; NVIDIA_DISABLE_REQUIRE=1 starts anyway"));
    }
  }
  return {};
}

bool wants_mig(const DriverRequest& request, const SelectedGpu& selected) {
  return request.mig_config || request.mig_monitor || !selected.mig.empty();
}

void explain_selection(const Planning& planning) {
  const DriverRequest& request = planning.request;
  if (planning.gpus.empty() && !request.devices.empty())
    planning.log.write(request.asker == Asker::job ? LogLevel::warning : LogLevel::info,
                       planning.inventory.gpus.empty() ? "This node has NVIDIA's driver, but no GPU"
                                                       : "This job may use none of the node's " +
                                                             std::to_string(planning.inventory.gpus.size()) + " GPUs");
  for (const SelectedGpu& selected : planning.gpus)
    if (selected.gpu->mig_enabled && !wants_mig(request, selected))
      planning.log.warning("GPU " + selected.gpu->bus_id +
                           " is in MIG mode, and none of its instances was asked for or may be used: CUDA finds nothing"
                           " there");
}

}  // namespace

Result<void> without_driver(const DriverRequest& request, const HostRoots& roots, LogSink& log) {
  if (!request.wanted()) return {};
  const std::string version = HostRoots::host_path(roots.device_path, "/proc/driver/nvidia/version");
  const bool loaded = roots.devices.exists("/proc/driver/nvidia/version");
  const std::string missing = loaded ? "its libraries (libcuda.so, libnvidia-ml.so) are not in " + roots.driver_path
                                     : "no kernel module is loaded (" + version + " is missing)";
  if (request.asker != Asker::job) {
    log.info("The image asks for NVIDIA GPUs, and this node has no driver for them: " + missing);
    return {};
  }
  return fail(Error(ErrorKind::not_found, std::string(kOrigin) + ": this node has no NVIDIA driver: " + missing)
                  .with_hint("ask Slurm for a node with GPUs, or start without them: NVIDIA_VISIBLE_DEVICES=void"));
}

Result<ContainerEdits> plan(const DriverRequest& request, const Inventory& inventory, const PlanContext& context,
                            LogSink& log) {
  ContainerEdits edits;
  if (!request.wanted()) return edits;
  if (inventory.driver_version.empty() || inventory.libraries.empty()) {
    TRY(without_driver(request, context.roots, log));
    return edits;
  }
  TRY_ASSIGN(const Selection gpus, select_gpus(request.devices, usable_gpus(inventory, context.access)));
  TRY(check_requirements(request, inventory, gpus));
  const Planning planning{request, inventory, context, gpus, with_implied(request.capabilities), log};
  explain_selection(planning);
  plan_proc(planning, edits);
  plan_files(planning, edits);
  TRY(plan_devices(planning, edits));
  return edits;
}

}  // namespace situla::nvidia
