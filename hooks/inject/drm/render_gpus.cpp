#include "hooks/inject/drm/render_gpus.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string_view>
#include <tuple>

#include "common/base/text.hpp"
#include "hooks/inject/sysfs/sysfs.hpp"

namespace situla::drm {
namespace {

constexpr std::string_view kDrmClass = "/sys/class/drm";
constexpr const char* kTopology = "/sys/class/kfd/kfd/topology/nodes";
constexpr std::string_view kRender = "renderD", kCard = "card", kPartition = "amdgpu_xcp";

std::optional<uint32_t> small_number(std::string_view text) {
  const auto number = parse_unsigned(text);
  if (!number || *number > UINT32_MAX) return std::nullopt;
  return static_cast<uint32_t>(*number);
}

/// "renderD128" -> 128; nullopt for "card0-DP-1" and others.
std::optional<uint32_t> number_after(std::string_view prefix, std::string_view name) {
  return name.starts_with(prefix) ? small_number(name.substr(prefix.size())) : std::nullopt;
}

/// Of a device's file "dev": "226:128".
std::optional<DeviceNumber> number_in(const RootDir& devices, const std::string& directory) {
  const std::string text = sysfs::attribute(devices, directory + "/dev");
  const auto parts = cut(text, ':');
  if (!parts) return std::nullopt;
  const auto major = small_number(parts->first), minor = small_number(parts->second);
  if (!major || !minor) return std::nullopt;
  return DeviceNumber{'c', *major, *minor};
}

struct KfdNode {
  uint32_t number = 0;
  std::string unique_id;
};

std::string unique_id(uint64_t id) {
  std::array<char, 17> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), id, 16);
  const std::string text(digits.data(), end);
  return id == 0 || error != std::errc() ? "" : "GPU-" + std::string(16 - text.size(), '0') + text;
}

/// By the minor number of the render node. KFD lets nobody read about a GPU that the device cgroup forbids.
std::map<uint32_t, KfdNode> kfd_nodes(const RootDir& devices) {
  std::map<uint32_t, KfdNode> nodes;
  for (const std::string& name : sysfs::names_in(devices, kTopology).value_or(std::vector<std::string>())) {
    const auto number = small_number(name);
    const auto text = devices.read_file(std::string(kTopology) + "/" + name + "/properties");
    if (!number || !text) continue;
    std::map<std::string_view, uint64_t> properties;
    for (const std::string_view line : split_nonempty(*text, '\n'))
      if (const auto pair = cut(line, ' ')) properties[pair->first] = parse_unsigned(trim(pair->second)).value_or(0);
    const uint64_t minor = properties["drm_render_minor"];  // 0: a processor
    if (minor > 0 && minor <= UINT32_MAX)
      nodes[static_cast<uint32_t>(minor)] = {*number, unique_id(properties["unique_id"])};
  }
  return nodes;
}

const gpu::Vendor* vendor_of(const RootDir& devices, const std::string& device, const std::string& name) {
  const std::string id = sysfs::attribute(devices, device + "/vendor");
  if (id == "0x1002" || (id.empty() && name.starts_with(kPartition))) return &gpu::kAmd;
  return id == "0x8086" ? &gpu::kIntel : nullptr;
}

DrmNode drm_node(const RootDir& devices, const std::string& directory, const std::string& name) {
  return {"/dev/dri/" + name, number_in(devices, directory + "/" + name)};
}

/// `name`: "renderD128". nullopt for another vendor's.
std::optional<RenderGpu> look_at(const RootDir& devices, const std::string& name) {
  const std::string node = sysfs::device_directory(devices, kDrmClass, name);  // ".../0000:c1:00.0/drm/renderD128"
  const std::string suffix = "/drm/" + name;
  if (!node.ends_with(suffix)) return std::nullopt;
  const std::string device = node.substr(0, node.size() - suffix.size()), nodes = device + "/drm";
  RenderGpu gpu;
  gpu.address = device.substr(device.rfind('/') + 1);
  gpu.vendor = vendor_of(devices, device, gpu.address);
  if (gpu.vendor == nullptr) return std::nullopt;
  gpu.render = drm_node(devices, nodes, name);
  for (const std::string& other : sysfs::names_in(devices, nodes).value_or(std::vector<std::string>()))
    if (number_after(kCard, other)) gpu.card = drm_node(devices, nodes, other);
  return gpu;
}

/// KFD's order where it has one. The names of nodes decide among partitions, renderD129 before renderD1000.
auto place(const RenderGpu& gpu) {
  return std::tuple(gpu.vendor->name, gpu.kfd_node.value_or(UINT32_MAX), !sysfs::is_pci_address(gpu.address),
                    gpu.address.size(), std::string_view(gpu.address), gpu.render.path.size(),
                    std::string_view(gpu.render.path));
}

}  // namespace

std::string RenderGpu::path_id() const {
  return sysfs::is_pci_address(address) ? "pci-" + address : "";
}

std::vector<RenderGpu> render_gpus(const RootDir& devices) {
  std::vector<RenderGpu> gpus;
  for (const std::string& name : sysfs::names_in(devices, kDrmClass).value_or(std::vector<std::string>()))
    if (number_after(kRender, name))
      if (auto gpu = look_at(devices, name)) gpus.push_back(std::move(*gpu));
  if (gpus.empty()) return gpus;
  const auto nodes = kfd_nodes(devices);
  for (RenderGpu& gpu : gpus) {
    const auto minor = number_after(kRender, gpu.render.path.substr(gpu.render.path.rfind('/') + 1));
    const auto node = gpu.vendor == &gpu::kAmd ? nodes.find(*minor) : nodes.end();
    if (node == nodes.end()) continue;
    gpu.kfd_node = node->second.number;
    gpu.unique_id = node->second.unique_id;
  }
  std::sort(gpus.begin(), gpus.end(), [](const RenderGpu& a, const RenderGpu& b) { return place(a) < place(b); });
  return gpus;
}

std::optional<DrmNode> kfd(const RootDir& devices) {
  if (!devices.exists("/sys/class/kfd/kfd")) return std::nullopt;
  return DrmNode{kKfd, number_in(devices, "/sys/class/kfd/kfd")};
}

}  // namespace situla::drm
