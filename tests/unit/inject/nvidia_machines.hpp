// Which machines do the tests of NVIDIA plans know?
#pragma once

#include <string>

#include "hooks/inject/nvidia/inventory.hpp"

namespace situla::nvidia {

/// "two": two H100. "two-proc": the same, read from /proc. "mig": GPU 0 in MIG mode with three instances, GPU 1 not.
/// "mig-empty": GPU 0 in MIG mode without instances. "mig-proc": old driver without nodes for instances, without NVML.
/// "dgx": eight GPUs with uuids GPU-0..., minors not in PCI order. "desktop": a GeForce with everything for graphics.
/// "fabric": two, with IMEX channels, GDS, GDRCopy, NVSwitch, InfiniBand. "no-uvm", "no-gpu", "no-control", "none".
Inventory machine(const std::string& name);

}  // namespace situla::nvidia
