#include <limits>
#include <map>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/text.hpp"
#include "hooks/inject/inventory/gather.hpp"
#include "hooks/inject/inventory/proc_inventory.hpp"

namespace situla::nvidia {
namespace {

constexpr uint32_t kNvidiaMajor = 195, kControlMinor = 255, kModesetMinor = 254;

/// Character devices of /proc/devices: name -> major.
std::map<std::string, uint32_t, std::less<>> parse_majors(std::string_view text) {
  std::map<std::string, uint32_t, std::less<>> majors;
  for (const std::string_view line : split(text, '\n')) {
    if (line.starts_with("Block devices")) break;
    const auto words = split_words(line);
    const auto major = words.size() == 2 ? parse_unsigned(words[0]) : std::nullopt;
    if (major && *major <= std::numeric_limits<uint32_t>::max())
      majors.emplace(words[1], static_cast<uint32_t>(*major));
  }
  return majors;
}

class Finder {
 public:
  Finder(const HostRoots& roots, LogSink& log)
      : devices_(roots.devices),
        real_(roots.real_devices()),
        majors_(parse_majors(roots.devices.read_file("/proc/devices").value_or(""))),
        log_(log) {}

  void control_nodes(ControlNodes& nodes) {
    nodes = {};
    nodes.control = node("/dev/nvidiactl", DeviceNumber{'c', kNvidiaMajor, kControlMinor});
    nodes.modeset = node("/dev/nvidia-modeset", DeviceNumber{'c', kNvidiaMajor, kModesetMinor});
    nodes.uvm = node("/dev/nvidia-uvm", number("nvidia-uvm", 0));
    nodes.uvm_tools = node("/dev/nvidia-uvm-tools", number("nvidia-uvm", 1));
    nodes.gdrdrv = node("/dev/gdrdrv", std::nullopt);
    for (const std::string& name : names_in(devices_, "/dev")) {
      if (name.starts_with("nvidia-fs")) add(nodes.gds, "/dev/" + name);
      if (name.starts_with("nvidia-nvswitch")) add(nodes.nvswitch, "/dev/" + name);
    }
    for (const std::string& name : names_in(devices_, "/dev/infiniband"))
      if (name == "rdma_cm" || name.starts_with("uverbs")) add(nodes.infiniband, "/dev/infiniband/" + name);
    imex_channels(nodes.imex_channels);
    nodes.mig_config = capability_node("mig/config", "config").node;
    nodes.mig_monitor = capability_node("mig/monitor", "monitor").node;
  }

  /// False: the GPU's node is another's.
  bool gpu_nodes(Gpu& gpu) {
    gpu.node = {"/dev/nvidia" + std::to_string(gpu.minor), {'c', kNvidiaMajor, gpu.minor}};
    if (devices_.exists(gpu.node.path) && !node(gpu.node.path, gpu.node.number)) return false;
    gpu.graphics_nodes.clear();
    for (const std::string& name : names_in(devices_, "/sys/bus/pci/devices/" + gpu.bus_id + "/drm"))
      if (name.starts_with("card") || name.starts_with("renderD")) add(gpu.graphics_nodes, "/dev/dri/" + name);
    for (MigDevice& device : gpu.mig) mig_nodes(gpu.minor, device);
    return true;
  }

 private:
  struct CapabilityNode {
    std::string file;
    std::optional<Node> node;
  };

  std::optional<DeviceNumber> number(std::string_view driver, uint32_t minor) const {
    const auto major = majors_.find(driver);
    if (major == majors_.end()) return std::nullopt;
    return DeviceNumber{'c', major->second, minor};
  }

  /// What is there has to be this device; any character device where nothing is expected.
  std::optional<Node> node(const std::string& path, std::optional<DeviceNumber> expected) {
    const auto fd = devices_.resolve(path);
    struct stat status {};
    if (!fd || fstat(fd->get(), &status) != 0) return std::nullopt;
    const bool is_device = S_ISCHR(status.st_mode);
    const DeviceNumber found = is_device ? *device_number(status) : DeviceNumber();
    if (!real_) return Node{path, expected.value_or(found)};
    if (is_device && (!expected || *expected == found)) return Node{path, found};
    log_.warning(path + " is left out: it is " + (is_device ? to_text(found) : std::string("no character device")) +
                 (expected ? ", not " + to_text(*expected) : ""));
    return std::nullopt;
  }

  void add(std::vector<Node>& nodes, const std::string& path) {
    if (auto found = node(path, std::nullopt)) nodes.push_back(std::move(*found));
  }

  /// There may be thousands, all made by the driver at once: their names are enough.
  void imex_channels(std::vector<Node>& nodes) {
    const std::string directory = "/dev/nvidia-caps-imex-channels";
    std::map<uint32_t, std::string> channels;  // by number: channel10 comes after channel9
    for (const std::string& name : names_in(devices_, directory)) {
      if (!name.starts_with("channel")) continue;
      const auto channel = parse_unsigned(name.substr(7));
      if (channel && *channel < (1U << 20U)) channels.emplace(static_cast<uint32_t>(*channel), directory + "/" + name);
    }
    for (const auto& [channel, path] : channels)
      if (const auto expected = number("nvidia-caps-imex-channels", channel)) nodes.push_back({path, *expected});
  }

  void mig_nodes(uint32_t gpu_minor, MigDevice& device) {
    if (device.compute_instance_node) return;
    const std::string gpu = "gpu" + std::to_string(gpu_minor);
    const std::string instance = "/gi" + std::to_string(device.gpu_instance);
    const std::string compute = instance + "/ci" + std::to_string(device.compute_instance);
    auto whole = capability_node(gpu + "/mig" + instance + "/access", gpu + instance + "/access");
    auto part = capability_node(gpu + "/mig" + compute + "/access", gpu + compute + "/access");
    device.gpu_instance_file = std::move(whole.file);
    device.gpu_instance_node = std::move(whole.node);
    device.compute_instance_file = std::move(part.file);
    device.compute_instance_node = std::move(part.node);
  }

  /// `name` as /proc/driver/nvidia/capabilities has it, `other_name` as /proc/driver/nvidia-caps/mig-minors has it.
  CapabilityNode capability_node(const std::string& name, const std::string& other_name) {
    CapabilityNode found;
    const std::string file = kDriverProc + ("/capabilities/" + name);
    const auto text = devices_.read_file(file);
    if (!text) return found;
    found.file = file;
    auto lines = parse_colon_lines(*text);
    std::optional<uint64_t> minor = parse_unsigned(lines["DeviceFileMinor"]);
    if (!minor) minor = listed_minor(other_name);
    // Before the driver had nodes for it, the file itself was the capability.
    if (!minor || *minor > std::numeric_limits<uint32_t>::max()) return found;
    if (const auto expected = number("nvidia-caps", static_cast<uint32_t>(*minor)))
      found.node = node("/dev/nvidia-caps/nvidia-cap" + std::to_string(*minor), expected);
    return found;
  }

  std::optional<uint64_t> listed_minor(const std::string& name) {
    if (listed_minors_.empty()) {
      const auto text = devices_.read_file("/proc/driver/nvidia-caps/mig-minors");
      for (const std::string_view line : split_nonempty(text ? std::string_view(*text) : "", '\n')) {
        const auto words = split_words(line);
        if (words.size() == 2) listed_minors_.emplace(words[0], parse_unsigned(words[1]));
      }
      listed_minors_.emplace("", std::nullopt);  // read, whatever is in it
    }
    const auto found = listed_minors_.find(name);
    return found == listed_minors_.end() ? std::nullopt : found->second;
  }

  const RootDir& devices_;
  bool real_;
  std::map<std::string, uint32_t, std::less<>> majors_;
  std::map<std::string, std::optional<uint64_t>, std::less<>> listed_minors_;
  LogSink& log_;
};

}  // namespace

void find_nodes(const HostRoots& roots, Inventory& inventory, LogSink& log) {
  Finder finder(roots, log);
  finder.control_nodes(inventory.nodes);
  std::erase_if(inventory.gpus, [&](Gpu& gpu) { return !finder.gpu_nodes(gpu); });
}

}  // namespace situla::nvidia
