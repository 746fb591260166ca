#include "hooks/inject/nvidia/selection.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/fd_path.hpp"

namespace situla::nvidia {
namespace {

using PciAddress = std::array<uint64_t, 3>;  ///< domain, bus, device

std::optional<uint64_t> parse_hex(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// "0000:41:00.0", or with NVML's eight digits of domain; GPUs are function 0.
std::optional<PciAddress> parse_pci(std::string_view text) {
  const auto pieces = split(text, ':');
  if (pieces.size() != 3) return std::nullopt;
  const auto slot = cut(pieces[2], '.');
  if (!slot || slot->second != "0") return std::nullopt;
  const auto domain = parse_hex(pieces[0]), bus = parse_hex(pieces[1]), device = parse_hex(slot->first);
  if (!domain || !bus || !device) return std::nullopt;
  return PciAddress{*domain, *bus, *device};
}

bool may_use(const MigDevice& mig, const DeviceAccess& access) {
  for (const auto* const node : {&mig.gpu_instance_node, &mig.compute_instance_node})
    if (*node && !access(**node, NodeUse::capability)) return false;
  return true;
}

/// "MIG-GPU-<uuid>/1/0": how drivers before 470 called instances, and how they can be named without NVML.
std::string old_mig_name(const Gpu& gpu, const MigDevice& mig) {
  return "MIG-" + gpu.uuid + "/" + std::to_string(mig.gpu_instance) + "/" + std::to_string(mig.compute_instance);
}

/// Collects what was picked, in the order of `usable`.
class Picker {
 public:
  explicit Picker(const Selection& usable) : usable_(usable), picked_(usable.size()), mig_(usable.size()) {
    for (size_t i = 0; i < usable.size(); ++i) mig_[i].resize(usable[i].mig.size());
  }

  void pick_all() {
    std::fill(picked_.begin(), picked_.end(), true);
    for (auto& instances : mig_) std::fill(instances.begin(), instances.end(), true);
  }
  bool pick(std::string_view name) {
    if (const auto index = parse_unsigned(name)) return pick_gpu(*index);
    const std::string lower = to_lower(name);
    const std::optional<PciAddress> address = parse_pci(name);
    for (size_t i = 0; i < usable_.size(); ++i) {
      const Gpu& gpu = *usable_[i].gpu;
      if (lower == to_lower(gpu.uuid) || (address && address == parse_pci(gpu.bus_id))) return pick_gpu(i);
      for (size_t k = 0; k < usable_[i].mig.size(); ++k) {
        const MigDevice& mig = *usable_[i].mig[k];
        if ((!mig.uuid.empty() && lower == to_lower(mig.uuid)) || lower == to_lower(old_mig_name(gpu, mig)))
          return pick_mig(i, k);
      }
    }
    const auto pair = cut(name, ':');
    if (!pair) return false;
    const auto gpu = parse_unsigned(pair->first), mig = parse_unsigned(pair->second);
    return gpu && mig && pick_mig(*gpu, *mig);
  }
  [[nodiscard]] Selection selection() const {
    Selection selection;
    for (size_t i = 0; i < usable_.size(); ++i) {
      if (!picked_[i]) continue;
      SelectedGpu selected{usable_[i].gpu, {}};
      for (size_t k = 0; k < mig_[i].size(); ++k)
        if (mig_[i][k]) selected.mig.push_back(usable_[i].mig[k]);
      selection.push_back(std::move(selected));
    }
    return selection;
  }

 private:
  bool pick_gpu(size_t index) {
    if (index >= usable_.size()) return false;
    picked_[index] = true;
    return true;
  }
  bool pick_mig(size_t gpu, size_t index) {
    if (gpu >= usable_.size() || index >= mig_[gpu].size()) return false;
    picked_[gpu] = true;
    mig_[gpu][index] = true;
    return true;
  }

  const Selection& usable_;
  std::vector<bool> picked_;
  std::vector<std::vector<bool>> mig_;
};

std::string list(const Selection& usable) {
  std::vector<std::string> items;
  for (size_t i = 0; i < usable.size(); ++i) {
    const Gpu& gpu = *usable[i].gpu;
    items.push_back(std::to_string(i) + " = " + gpu.uuid + " (" + gpu.bus_id + ")");
    for (size_t k = 0; k < usable[i].mig.size(); ++k) {
      const MigDevice& mig = *usable[i].mig[k];
      items.push_back(std::to_string(i) + ":" + std::to_string(k) + " = " +
                      (mig.uuid.empty() ? old_mig_name(gpu, mig) : mig.uuid));
    }
  }
  return join(items, ", ");
}

Error unknown_device(std::string_view name, const Selection& usable) {
  const std::string numbering = "; a job's GPUs are numbered from 0, in the order of their PCI addresses";
  return Error(ErrorKind::usage, "device error: " + printable(name) + ": unknown device")
      .with_code(ErrorCode::gpu_request)
      .with_hint(usable.empty() ? "this job may use no GPU of this node; ask Slurm for some (--gpus, --gres)"
                                : "this job may use " + list(usable) + numbering);
}

}  // namespace

DeviceAccess kernel_access(const RootDir& devices) {
  return [&devices](const Node& node, NodeUse use) {
    const auto fd = devices.resolve(node.path);
    if (!fd) return false;
    const std::string path = fd_path(fd->get());
    return access(path.c_str(), use == NodeUse::gpu ? R_OK | W_OK : R_OK) == 0;
  };
}

Selection usable_gpus(const Inventory& inventory, const DeviceAccess& access) {
  Selection usable;
  for (const Gpu& gpu : inventory.gpus) {
    if (!access(gpu.node, NodeUse::gpu)) continue;
    SelectedGpu entry{&gpu, {}};
    for (const MigDevice& mig : gpu.mig)
      if (may_use(mig, access)) entry.mig.push_back(&mig);
    std::stable_sort(entry.mig.begin(), entry.mig.end(),
                     [](const MigDevice* left, const MigDevice* right) { return left->index < right->index; });
    usable.push_back(std::move(entry));
  }
  std::stable_sort(usable.begin(), usable.end(), [](const SelectedGpu& left, const SelectedGpu& right) {
    return parse_pci(left.gpu->bus_id) < parse_pci(right.gpu->bus_id);
  });
  return usable;
}

Result<Selection> select_gpus(const std::vector<std::string>& names, const Selection& usable) {
  Picker picker(usable);
  for (const std::string& name : names) {
    if (to_lower(name) == "all") {
      picker.pick_all();
      break;
    }
    if (!picker.pick(name)) return fail(unknown_device(name, usable));
  }
  return picker.selection();
}

}  // namespace situla::nvidia
