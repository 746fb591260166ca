#include "hooks/inject/nvidia/plan.hpp"

#include <algorithm>

#include "common/base/text.hpp"
#include "hooks/inject/nvidia/params.hpp"
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
      return fail(std::move(met)
                      .error()
                      .with_code(ErrorCode::gpu_requirement)
                      .with_hint(requirement.variable + " asks; " + here + "; NVIDIA_DISABLE_REQUIRE=1 starts anyway"));
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

constexpr const char* kProc = "/proc/driver/nvidia";
constexpr const char* kCapabilities = "/proc/driver/nvidia/capabilities";
constexpr const char* kProfiles = "/etc/nvidia/nvidia-application-profiles-rc.d";

MountStep cover(const std::string& target) {
  return {.kind = StepKind::cover,
          .target = target,
          .flags = {.no_suid = true, .no_dev = true, .no_exec = true},
          .parameters = {{"mode", "0555"}},
          .origin = kOrigin};
}

/// Where the container's /proc knows no such driver (device_root), the directory above stands in for it: nothing can be
/// made in /proc.
void add_cover(const Planning& planning, ContainerEdits& edits) {
  add_step(edits, cover(planning.context.root.exists(kProc) ? kProc : "/proc/driver"));
  for (const char* name : {"params", "version", "registry"}) {
    const std::string path = std::string(kProc) + "/" + name;
    auto content = planning.context.roots.devices.read_file(path);
    if (!content) continue;
    if (path.ends_with("/params")) content = without_node_changes(*content);
    edits.files.push_back({FileChange::Kind::write, path, *content, 0444});
  }
}

/// Only what was selected can be seen there. Costs the container that it can mount no /proc of its own any more (the
/// kernel wants one without anything mounted on it), so it is not done where there is nothing to show.
void hide_other_gpus(const Planning& planning, ContainerEdits& edits) {
  // Instances of one GPU instance share its file: the step is the same.
  const auto show = [&](const std::string& path, SourceType type, OnFailure on_failure) {
    add_step(edits, {.kind = StepKind::host_file,
                     .source = planning.device_path(path),
                     .target = path,
                     .on_failure = on_failure,
                     .flags = {.read_only = true, .no_suid = true, .no_dev = true, .no_exec = true},
                     .source_type = type,
                     .origin = kOrigin});
  };
  add_cover(planning, edits);
  for (const SelectedGpu& selected : planning.gpus)
    show(std::string(kProc) + "/gpus/" + selected.gpu->bus_id, SourceType::directory, OnFailure::warn);
  if (planning.request.mig_config || planning.request.mig_monitor) {
    if (planning.context.roots.devices.exists(kCapabilities))
      show(kCapabilities, SourceType::directory, OnFailure::warn);
    return;
  }
  for (const SelectedGpu& selected : planning.gpus)
    for (const MigDevice* mig : selected.mig)
      for (const std::string* file : {&mig->gpu_instance_file, &mig->compute_instance_file})
        if (!file->empty()) show(*file, SourceType::regular, OnFailure::fail);
}

void add_application_profile(const Planning& planning, ContainerEdits& edits) {
  std::vector<uint32_t> minors;
  for (const SelectedGpu& selected : planning.gpus) minors.push_back(selected.gpu->minor);
  add_step(edits, cover(kProfiles));
  edits.files.push_back(
      {FileChange::Kind::write, std::string(kProfiles) + "/10-container.conf", application_profile(minors), 0444});
}

/// What /proc/driver/nvidia shows, and which GPUs OpenGL shall use.
void plan_proc(const Planning& planning, ContainerEdits& edits) {
  if (planning.gpus.empty()) return;
  if (planning.context.settings.hide_gpus && planning.context.root.exists("/proc")) hide_other_gpus(planning, edits);
  if (planning.has(kGraphics)) add_application_profile(planning, edits);
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
                  .with_code(ErrorCode::gpu_driver)
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
