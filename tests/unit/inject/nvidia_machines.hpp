// Which machines do the tests of NVIDIA plans know?
#pragma once

#include <string>

#include "hooks/inject/inventory/inventory.hpp"

namespace situla::nvidia {

/// "two": two H100; "two-proc": the same, read from /proc; "mps": the same with a multi-process server.
/// "mig": GPU 0 in MIG mode with three instances, GPU 1 not; "mig-graphics": with libraries for graphics; "mig-empty":
/// without instances; "mig-proc": an old driver without nodes for instances, without NVML.
/// "dgx": eight GPUs, minors not in PCI order. "desktop": a GeForce with everything for graphics, and 32-bit libraries.
/// "fabric": IMEX channels, GDS, GDRCopy, NVSwitch, InfiniBand. What lacks: "no-uvm", "no-gpu", "no-control", "none".
Inventory machine(const std::string& name);

}  // namespace situla::nvidia
