// Which GPUs and MIG instances does a list of names mean, among those that this process may use?
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/inject/inventory/inventory.hpp"

namespace situla::nvidia {

/// How processes open a node: a GPU's to read and write, one of nvidia-caps (mode 0444) only to read.
enum class NodeUse : uint8_t { gpu, capability };

/// May this process use the node? Slurm's device constraint (ConstrainDevices) and file modes both say no.
using DeviceAccess = std::function<bool(const Node& node, NodeUse use)>;

/// access(2) asks the device cgroup as well, without opening, and thereby starting, the device. `devices` has to
/// outlive it.
DeviceAccess kernel_access(const RootDir& devices);

/// A GPU, and those of its MIG instances that count. Points into the inventory.
struct SelectedGpu {
  const Gpu* gpu = nullptr;
  std::vector<const MigDevice*> mig;
};
using Selection = std::vector<SelectedGpu>;

/// In PCI order, which is how NVML numbers them for this process: a job's first GPU is 0, whichever it is on the node.
Selection usable_gpus(const Inventory& inventory, const DeviceAccess& access);

/// What `names` mean: all, GPU-<uuid>, a PCI address, an index; of MIG instances MIG-<uuid>, MIG-GPU-<uuid>/<GI>/<CI>,
/// <GPU index>:<MIG index>. An instance brings its GPU. ErrorKind::usage: "device error: X: unknown device"; the hint
/// lists what there is.
Result<Selection> select_gpus(const std::vector<std::string>& names, const Selection& usable);

}  // namespace situla::nvidia
