#include <algorithm>

#include "common/base/text.hpp"
#include "hooks/inject/nvidia/plan.hpp"

namespace situla::nvidia {
namespace {

constexpr const char* kCapabilityNodes = "/dev/nvidia-caps";
constexpr const char* kImexChannels = "/dev/nvidia-caps-imex-channels";

class DevicePlan {
 public:
  DevicePlan(const Planning& planning, ContainerEdits& edits) : planning_(planning), edits_(edits) {}

  void add(const Node& node, OnFailure on_failure = OnFailure::fail) {
    MountStep step{.kind = StepKind::device,
                   .source = planning_.device_path(node.path),
                   .target = node.path,
                   .on_failure = on_failure,
                   .origin = kOrigin};
    if (planning_.context.roots.real_devices()) step.number = node.number;
    add_step(edits_, std::move(step));  // instances of one GPU share nodes
  }
  void add(const std::optional<Node>& node, OnFailure on_failure = OnFailure::fail) {
    if (node) add(*node, on_failure);
  }

  /// Nodes that a variable of their own asks for.
  void add_requested(const char* variable, const char* what, const std::vector<Node>& nodes) {
    if (nodes.empty()) planning_.log.warning(std::string(variable) + "=enabled, but this node has no " + what);
    for (const Node& node : nodes) add(node, OnFailure::warn);
  }

  /// A directory of nodes: those that come later appear as well.
  void add_directory(const char* path, bool read_only) {
    add_step(edits_, {.kind = StepKind::host_file,
                      .source = planning_.device_path(path),
                      .target = path,
                      .on_failure = OnFailure::warn,
                      .flags = {.read_only = read_only, .no_suid = true, .no_exec = true},
                      .source_type = SourceType::directory,
                      .origin = kOrigin});
  }

 private:
  const Planning& planning_;
  ContainerEdits& edits_;
};

void warn_about_missing_nodes(const Planning& planning) {
  const ControlNodes& nodes = planning.inventory.nodes;
  if (!nodes.control)
    planning.log.warning(
        "This node has no /dev/nvidiactl: no GPU can be used; nvidia-modprobe or nvidia-persistenced"
        " make it");
  if (nodes.uvm || !planning.has(kCompute)) return;
  const auto modules = planning.context.roots.devices.read_file("/proc/modules");
  if (modules && modules->find("nvidia_uvm ") != std::string::npos)
    planning.log.warning("This node has no /dev/nvidia-uvm: CUDA cannot be used; nvidia-modprobe -u -c=0 makes it");
  else
    planning.log.warning(
        "Kernel module nvidia_uvm is not loaded. Make sure the NVIDIA device driver is installed and loaded.");
}

/// Besides the links that udev made, where the container has a /dev of its own. In the host's nothing can be made, and
/// nothing is missing.
void add_paths_of_graphics(const Planning& planning, const Gpu& gpu, ContainerEdits& edits) {
  for (const Node& node : gpu.graphics_nodes) {
    const std::string name = node.path.substr(node.path.rfind('/') + 1);
    const std::string link = "/dev/dri/by-path/pci-" + gpu.bus_id + (name.starts_with("render") ? "-render" : "-card");
    if (!planning.context.roots.devices.exists(link) || planning.context.root.exists(link)) continue;
    edits.files.push_back({FileChange::Kind::link, link, "../" + name, 0777});
  }
}

void add_gpus(const Planning& planning, DevicePlan& devices, ContainerEdits& edits) {
  const bool whole_capabilities = planning.request.mig_config || planning.request.mig_monitor;
  for (const SelectedGpu& selected : planning.gpus) {
    devices.add(selected.gpu->node);
    bool graphics = !selected.gpu->mig_enabled;
    for (const MigDevice* mig : selected.mig) {
      graphics = graphics || mig->graphics;
      if (whole_capabilities) continue;  // the whole directory comes
      devices.add(mig->gpu_instance_node);
      devices.add(mig->compute_instance_node);
    }
    if (!graphics || !planning.has(kGraphics)) continue;
    for (const Node& node : selected.gpu->graphics_nodes) devices.add(node, OnFailure::warn);
    add_paths_of_graphics(planning, *selected.gpu, edits);
  }
  if (whole_capabilities && planning.context.roots.devices.exists(kCapabilityNodes))
    devices.add_directory(kCapabilityNodes, false);
}

Result<void> add_imex_channels(const Planning& planning, DevicePlan& devices) {
  const ImexRequest& wanted = planning.request.imex;
  const std::vector<Node>& nodes = planning.inventory.nodes.imex_channels;
  if (wanted.all && nodes.empty())
    planning.log.warning("NVIDIA_IMEX_CHANNELS=all, but this node has none in " + std::string(kImexChannels));
  for (const uint32_t channel : wanted.channels) {
    const std::string path = std::string(kImexChannels) + "/channel" + std::to_string(channel);
    const auto node = std::find_if(nodes.begin(), nodes.end(), [&](const Node& other) { return other.path == path; });
    if (node == nodes.end() && wanted.of_image) {
      planning.log.info("The image asks for " + path + ", which this node has not got");
      continue;
    }
    if (node == nodes.end())
      return fail(Error(ErrorKind::usage, "NVIDIA_IMEX_CHANNELS: " + std::to_string(channel) + ": this node has no " +
                                              planning.device_path(path))
                      .with_code(ErrorCode::gpu_request)
                      .with_hint("channels are made by the administrator, or by Slurm's switch/nvidia_imex"));
    if (!wanted.all) devices.add(*node);
  }
  // Whoever computes gets them without asking, as with enroot.
  const bool by_default = wanted.channels.empty() && (planning.request.capabilities & kCompute) != 0;
  if (!nodes.empty() && (wanted.all || by_default)) devices.add_directory(kImexChannels, true);
  return {};
}

/// GPUDirect Storage finds its disks and its settings by these.
void add_storage_files(const Planning& planning, ContainerEdits& edits) {
  const auto add = [&](const std::string& source, const char* target, SourceType type) {
    add_step(edits, {.kind = StepKind::host_file,
                     .source = source,
                     .target = target,
                     .recursive = type == SourceType::directory,
                     .on_failure = OnFailure::warn,
                     .flags = {.read_only = true, .no_suid = true, .no_dev = true},
                     .source_type = type,
                     .origin = "NVIDIA_GDS"});
  };
  constexpr const char *kUdev = "/run/udev", *kSettings = "/etc/cufile.json";
  if (planning.context.roots.devices.exists(kUdev)) add(planning.device_path(kUdev), kUdev, SourceType::directory);
  if (planning.context.roots.driver.exists(kSettings))
    add(planning.driver_path(kSettings), kSettings, SourceType::regular);
}

}  // namespace

Result<void> plan_devices(const Planning& planning, ContainerEdits& edits) {
  const DriverRequest& request = planning.request;
  const ControlNodes& nodes = planning.inventory.nodes;
  DevicePlan devices(planning, edits);
  warn_about_missing_nodes(planning);
  devices.add(nodes.control);
  if (planning.has(kCompute)) {
    devices.add(nodes.uvm);
    devices.add(nodes.uvm_tools, OnFailure::warn);
  }
  if (planning.has(kGraphics)) devices.add(nodes.modeset, OnFailure::warn);
  add_gpus(planning, devices, edits);
  TRY(add_imex_channels(planning, devices));
  if (request.gdrcopy)
    devices.add_requested("NVIDIA_GDRCOPY", "/dev/gdrdrv",
                          nodes.gdrdrv ? std::vector<Node>{*nodes.gdrdrv} : std::vector<Node>{});
  else if ((request.capabilities & kCompute) != 0)
    devices.add(nodes.gdrdrv, OnFailure::ignore);
  if (request.gds) {
    devices.add_requested("NVIDIA_GDS", "/dev/nvidia-fs*", nodes.gds);
    if (!nodes.gds.empty()) add_storage_files(planning, edits);
  }
  if (request.mofed) devices.add_requested("NVIDIA_MOFED", "/dev/infiniband", nodes.infiniband);
  if (request.nvswitch) devices.add_requested("NVIDIA_NVSWITCH", "/dev/nvidia-nvswitch*", nodes.nvswitch);
  return {};
}

}  // namespace situla::nvidia
