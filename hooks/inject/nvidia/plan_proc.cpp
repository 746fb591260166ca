#include <array>
#include <cstdint>

#include "hooks/inject/nvidia/params.hpp"
#include "hooks/inject/nvidia/plan_parts.hpp"

namespace situla::nvidia {
namespace {

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

class ProcPlan {
 public:
  ProcPlan(const Planning& planning, ContainerEdits& edits) : planning_(planning), edits_(edits) {}

  /// Where the container's /proc knows no such driver (device_root), the directory above stands in for it: nothing can
  /// be made in /proc.
  void add_cover() {
    const bool there = planning_.context.root.exists(kProc);
    add_step(edits_, cover(there ? kProc : "/proc/driver"));
    for (const char* name : {"params", "version", "registry"}) {
      const std::string path = std::string(kProc) + "/" + name;
      auto content = planning_.context.roots.devices.read_file(path);
      if (!content) continue;
      if (path.ends_with("/params")) content = without_node_changes(*content);
      edits_.files.push_back({FileChange::Kind::write, path, *content, 0444});
    }
  }

  void show(const std::string& path, SourceType type, OnFailure on_failure) {
    // Instances of one GPU instance share its file: the step is the same.
    add_step(edits_, {.kind = StepKind::host_file,
                      .source = planning_.device_path(path),
                      .target = path,
                      .on_failure = on_failure,
                      .flags = {.read_only = true, .no_suid = true, .no_dev = true, .no_exec = true},
                      .source_type = type,
                      .origin = kOrigin});
  }

 private:
  const Planning& planning_;
  ContainerEdits& edits_;
};

/// Only what was selected can be seen there. Costs the container that it can mount no /proc of its own any more (the
/// kernel wants one without anything mounted on it), so it is not done where there is nothing to show.
void hide_other_gpus(const Planning& planning, ContainerEdits& edits) {
  ProcPlan proc(planning, edits);
  proc.add_cover();
  for (const SelectedGpu& selected : planning.gpus)
    proc.show(std::string(kProc) + "/gpus/" + selected.gpu->bus_id, SourceType::directory, OnFailure::warn);
  if (planning.request.mig_config || planning.request.mig_monitor) {
    if (planning.context.roots.devices.exists(kCapabilities))
      proc.show(kCapabilities, SourceType::directory, OnFailure::warn);
    return;
  }
  for (const SelectedGpu& selected : planning.gpus)
    for (const MigDevice* mig : selected.mig)
      for (const std::string* file : {&mig->gpu_instance_file, &mig->compute_instance_file})
        if (!file->empty()) proc.show(*file, SourceType::regular, OnFailure::fail);
}

void add_application_profile(const Planning& planning, ContainerEdits& edits) {
  std::vector<uint32_t> minors;
  for (const SelectedGpu& selected : planning.gpus) minors.push_back(selected.gpu->minor);
  add_step(edits, cover(kProfiles));
  edits.files.push_back(
      {FileChange::Kind::write, std::string(kProfiles) + "/10-container.conf", application_profile(minors), 0444});
}

}  // namespace

void plan_proc(const Planning& planning, ContainerEdits& edits) {
  if (planning.gpus.empty()) return;
  if (planning.context.settings.hide_gpus && planning.context.root.exists("/proc")) hide_other_gpus(planning, edits);
  if (planning.has(kGraphics)) add_application_profile(planning, edits);
}

}  // namespace situla::nvidia
