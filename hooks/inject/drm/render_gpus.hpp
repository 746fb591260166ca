// Which GPUs of AMD and Intel does this node have, and which nodes belong to each? By /sys/class/drm, and of AMD's what
// KFD, the kernel's compute driver, says (GPU.md 5.3).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/sys/root_dir.hpp"
#include "hooks/inject/gpu/request.hpp"
#include "hooks/mount/device_number.hpp"

namespace situla::drm {

/// A node beneath the device root: "/dev/dri/renderD128".
struct DrmNode {
  std::string path;
  std::optional<DeviceNumber> number;  ///< as sysfs has it
};

/// One that has a render node. AMD's GPUs that are partitioned (MI300X in DPX or CPX mode) are one for each partition.
struct RenderGpu {
  const gpu::Vendor* vendor = nullptr;  ///< &gpu::kAmd or &gpu::kIntel
  std::string address;                  ///< "0000:c1:00.0"; of a further partition "amdgpu_xcp_1"
  std::string unique_id;                ///< AMD's, as ROCm writes it: "GPU-2f1b5c9d7e3a4c10"; empty: the GPU has none
  std::optional<uint32_t> kfd_node;     ///< AMD's; nullopt: not for computing, or not to be seen from here
  DrmNode render;
  std::optional<DrmNode> card;  ///< not every partition has one
  /// "pci-0000:c1:00.0", as udev names its links in /dev/dri/by-path; empty on another bus.
  [[nodiscard]] std::string path_id() const;
};

/// Whoever may use them; vendor by vendor, in the order in which the vendor's runtime counts them: AMD's by KFD's node,
/// then all by PCI address.
std::vector<RenderGpu> render_gpus(const RootDir& devices);

/// /dev/kfd, through which all of AMD's GPUs compute.
inline constexpr const char* kKfd = "/dev/kfd";
/// With its number; nullopt where the kernel has no such driver.
std::optional<DrmNode> kfd(const RootDir& devices);

}  // namespace situla::drm
