// What do /proc and /sys say about the driver and its GPUs? Everything but MIG UUIDs, brands and the CUDA version.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/inject/inventory/inventory.hpp"

namespace situla::nvidia {

/// Where the driver shows itself, beneath the device root.
inline constexpr const char* kDriverProc = "/proc/driver/nvidia";

/// "550.54.15", of the kernel module that is loaded. ErrorKind::not_found without one.
Result<std::string> driver_version(const RootDir& devices);
/// The same of the text of /proc/driver/nvidia/version; empty when it has none.
std::string parse_driver_version(std::string_view text);

/// All GPUs of the node by PCI address, whoever may use them, those in MIG mode with their MIG devices. Nodes are left
/// empty: nodes.hpp. A GPU that the administrator excluded, or whose file says too little, is left out.
std::vector<Gpu> read_gpus(const RootDir& devices, LogSink& log);

/// Lines "Name: value" of a file of the driver; blanks around both are dropped.
std::map<std::string, std::string, std::less<>> parse_colon_lines(std::string_view text);

/// "gpu0/mig/gi1" with its compute instances, "ci0", ..., in numeric order; empty when the GPU has no MIG devices.
struct GpuInstance {
  uint32_t number = 0;
  std::vector<uint32_t> compute_instances;
};
std::vector<GpuInstance> read_gpu_instances(const RootDir& devices, uint32_t gpu_minor);

/// "00000000:41:00.0" and "0000:41:00.0" are one address, "0000:41:00.0"; as it is when it is none.
std::string normalized_bus_id(std::string_view bus_id);

/// Names in a directory of the root, sorted; none when it cannot be read.
std::vector<std::string> names_in(const RootDir& root, const std::string& path);

}  // namespace situla::nvidia
