#include "hooks/inject/drm/drm.hpp"

#include <algorithm>
#include <set>

#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/fd_path.hpp"
#include "hooks/inject/sysfs/sysfs.hpp"

namespace situla::drm {
namespace {

using gpu::Asker;

constexpr const char* kDirectory = "/dev/dri";
constexpr const char* kLinks = "/dev/dri/by-path";

Choice of_vendor(const std::vector<RenderGpu>& all, const gpu::Vendor& vendor) {
  Choice chosen;
  for (const RenderGpu& gpu : all)
    if (gpu.vendor == &vendor) chosen.push_back(&gpu);
  return chosen;
}

/// An image also has to start where there are none, and Slurm's GPUs may be another vendor's.
Result<void> without_gpus(const Wanted& wanted, LogSink& log) {
  const std::string vendor(wanted.vendor->name);
  if (wanted.request.asker == Asker::image) log.info("The image asks for " + vendor + " GPUs, and this node has none");
  if (wanted.request.asker != Asker::job) return {};
  const std::string variable(wanted.vendor->variable);
  return fail(Error(ErrorKind::not_found, wanted.origin + ": this node has no " + vendor + " GPU")
                  .with_code(ErrorCode::gpu_driver)
                  .with_hint("ask Slurm for a node with such GPUs" +
                             (wanted.origin == variable ? ", or start without them: " + variable + "=void" : "")));
}

/// Whether it is these GPUs that are meant. What Slurm gives may be another vendor's, and these a processor's.
bool is_meant(const Wanted& wanted, const std::vector<RenderGpu>& node, const RootDir& devices) {
  return wanted.request.asker != Asker::slurm ||
         (!devices.exists("/proc/driver/nvidia/version") &&
          std::all_of(node.begin(), node.end(), [&](const RenderGpu& gpu) { return gpu.vendor == wanted.vendor; }));
}

void explain_nothing_usable(const Wanted& wanted, const Choice& all, const Usable& usable, LogSink& log) {
  const std::string which =
      "the node's " + std::to_string(all.size()) + " " + std::string(wanted.vendor->name) + " GPUs";
  if (usable.denied > 0) {
    log.warning(Error(ErrorKind::denied, "This job may use none of " + which + ": their nodes in " + kDirectory +
                                             " do not admit this user")
                    .with_code(ErrorCode::gpu_request)
                    .with_hint("their group, usually render or video, has to have the user; of the job's groups those "
                               "count that it had when it was submitted")
                    .text());
    return;
  }
  if (wanted.request.asker == Asker::slurm) return;
  log.write(wanted.request.asker == Asker::job ? LogLevel::warning : LogLevel::info,
            "This job may use none of " + which);
}

class Plan {
 public:
  Plan(const Scene& scene, ContainerEdits& edits) : scene_(scene), edits_(edits) {}

  Result<void> add(const Wanted& wanted, const std::vector<RenderGpu>& node) {
    const Choice all = of_vendor(node, *wanted.vendor);
    if (wanted.request.refused) {
      for (const RenderGpu* gpu : all) exclude(*gpu);
      return {};
    }
    if (all.empty()) return without_gpus(wanted, scene_.log);
    if (!is_meant(wanted, node, scene_.roots.devices)) return {};
    const Usable usable = usable_gpus(all, scene_.access);
    TRY_ASSIGN(const Choice chosen, select_gpus(wanted.request.devices, usable.gpus));
    if (usable.gpus.empty()) explain_nothing_usable(wanted, all, usable, scene_.log);
    if (chosen.empty()) return {};
    // Who did not ask for anything starts as well without.
    on_failure_ = wanted.request.asker == Asker::slurm ? OnFailure::warn : OnFailure::fail;
    if (on_failure_ == OnFailure::fail) cover_failure_ = OnFailure::fail;
    if (wanted.vendor == &gpu::kAmd) add_kfd(wanted);
    for (const RenderGpu* gpu : chosen) add_gpu(*gpu, wanted.origin);
    for (const RenderGpu* gpu : all)
      if (std::find(chosen.begin(), chosen.end(), gpu) == chosen.end()) exclude(*gpu);
    return {};
  }

  void finish(const std::string& origin) {
    const bool covered = scene_.hide && std::any_of(foreign_.begin(), foreign_.end(), [&](const std::string& path) {
                           return scene_.root.exists(path) && scene_.access(path) == Access::granted;
                         });
    if (covered) cover(origin);
    add_links(covered);
  }

 private:
  void add_node(const DrmNode& node, const std::string& origin, OnFailure on_failure) {
    MountStep step{.kind = StepKind::device,
                   .source = HostRoots::host_path(scene_.roots.device_path, node.path),
                   .target = node.path,
                   .on_failure = on_failure,
                   .origin = origin};
    if (scene_.roots.real_devices()) step.number = node.number;
    add_step(edits_, std::move(step));
    shown_.insert(node.path);
  }

  void add_gpu(const RenderGpu& gpu, const std::string& origin) {
    add_node(gpu.render, origin, on_failure_);
    // Who only computes needs no card, and often may not open it.
    if (gpu.card && scene_.access(gpu.card->path) == Access::granted) add_node(*gpu.card, origin, OnFailure::warn);
  }

  void add_kfd(const Wanted& wanted) {
    const auto node = kfd(scene_.roots.devices);
    const Access access = node ? scene_.access(node->path) : Access::missing;
    if (access == Access::granted) return add_node(*node, wanted.origin, on_failure_);
    const bool missing = access == Access::missing;
    scene_.log.warning(
        Error(missing ? ErrorKind::not_found : ErrorKind::denied,
              missing ? "This node has no /dev/kfd: ROCm finds no GPU"
                      : "/dev/kfd does not admit this user: ROCm finds no GPU")
            .with_code(ErrorCode::gpu_driver)
            .with_hint(missing ? "the kernel module amdgpu makes it, where it is built for computing (CONFIG_HSA_AMD)"
                               : "its group, usually render or video, has to have the user")
            .text());
  }

  void exclude(const RenderGpu& gpu) {
    foreign_.insert(gpu.render.path);
    if (gpu.card) foreign_.insert(gpu.card->path);
  }

  /// Everything else that is there stays: screens, GPUs of others.
  void cover(const std::string& origin) {
    add_step(edits_, {.kind = StepKind::cover,
                      .target = kDirectory,
                      .on_failure = cover_failure_,
                      .flags = {.no_suid = true, .no_dev = true, .no_exec = true},
                      .parameters = {{"mode", "0755"}},
                      .origin = origin});
    for (const std::string& name : names_in(kDirectory)) {
      const std::string path = std::string(kDirectory) + "/" + name;
      if (path == kLinks || shown_.contains(path) || foreign_.contains(path)) continue;
      if (scene_.root.exists(path) && scene_.access(path) == Access::granted)
        add_node({path, std::nullopt}, origin, OnFailure::warn);
    }
  }

  /// As udev made them on the node. Where the container has the host's /dev, they are there, and nothing can be made.
  void add_links(bool covered) {
    if (shown_.empty() || (!covered && !may_write("/dev"))) return;
    for (const std::string& name : names_in(kLinks)) {
      const std::string link = std::string(kLinks) + "/" + name;
      const auto target = sysfs::read_link(scene_.roots.devices, link);
      const std::string node = kDirectory + ("/" + (target ? target->substr(target->rfind('/') + 1) : ""));
      if (shown_.contains(node) && (covered || !scene_.root.exists(link)))
        edits_.files.push_back({FileChange::Kind::link, link, *target, 0777});
    }
  }

  [[nodiscard]] bool may_write(const char* directory) const {
    const auto fd = scene_.root.resolve(directory);
    return fd && access(fd_path(fd->get()).c_str(), W_OK) == 0;
  }

  [[nodiscard]] std::vector<std::string> names_in(const char* directory) const {
    return sysfs::names_in(scene_.roots.devices, directory).value_or(std::vector<std::string>());
  }

  const Scene& scene_;
  ContainerEdits& edits_;
  OnFailure on_failure_ = OnFailure::fail, cover_failure_ = OnFailure::warn;
  std::set<std::string> shown_, foreign_;  ///< paths of nodes
};

}  // namespace

Result<ContainerEdits> edits(const std::vector<Wanted>& wanted, const Scene& scene) {
  ContainerEdits edits;
  if (wanted.empty()) return edits;
  const std::vector<RenderGpu> node = render_gpus(scene.roots.devices);
  Plan plan(scene, edits);
  for (const Wanted& one : wanted) TRY(plan.add(one, node));
  plan.finish(wanted.front().origin);
  return edits;
}

bool has_gpus(const RootDir& devices, const gpu::Vendor& vendor) {
  return !of_vendor(render_gpus(devices), vendor).empty();
}

}  // namespace situla::drm
