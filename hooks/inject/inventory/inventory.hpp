// What of NVIDIA does this node have? Driver files, GPUs, MIG instances and device nodes, gathered once and kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hooks/mount/device_number.hpp"

namespace situla::nvidia {

/// NVIDIA_DRIVER_CAPABILITIES, as bits of a CapabilitySet (GPU.md 1.1).
enum Capability : uint8_t {
  kUtility = 1,
  kCompute = 2,
  kVideo = 4,
  kGraphics = 8,
  kDisplay = 16,
  kNgx = 32,
  kCompat32 = 64
};
using CapabilitySet = uint8_t;

/// All paths of files are absolute beneath the driver root, links resolved: "/usr/lib64/libcuda.so.550.54.15".
struct Library {
  std::string path;
  std::string soname;                    ///< DT_SONAME, or the file's name
  std::vector<std::string> other_links;  ///< names in the same directory that lead to the SONAME: "libcuda.so"
  std::string subdirectory;              ///< beneath the directory of libraries: "" or "vdpau"
  CapabilitySet capabilities = 0;        ///< needed by any of these
  bool is_32bit = false;
};

/// A binary, firmware, configuration or socket: where it is, and where it goes.
struct File {
  std::string path;
  std::string target;
  CapabilitySet capabilities = 0;  ///< 0: always
};

/// A node beneath the device root: "/dev/nvidiactl".
struct Node {
  std::string path;
  DeviceNumber number;
  friend bool operator==(const Node&, const Node&) = default;
};

struct MigDevice {
  uint32_t index = 0;  ///< NVML's, among those of its GPU
  uint32_t gpu_instance = 0, compute_instance = 0;
  std::string uuid;  ///< as NVML prints it; empty without NVML
  /// Nodes /dev/nvidia-caps/nvidia-capN, and the files beneath /proc that name them; nodes are missing with old
  /// drivers.
  std::optional<Node> gpu_instance_node, compute_instance_node;
  std::string gpu_instance_file, compute_instance_file;  ///< "/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access"
  bool graphics = false;                                 ///< profile with the gfx attribute
};

struct Gpu {
  std::string uuid;    ///< "GPU-..."
  std::string bus_id;  ///< as /proc/driver/nvidia/gpus names it: "0000:41:00.0"
  std::string model;
  std::string brand;         ///< "Tesla", "GeForce", ...; empty: unknown
  std::string architecture;  ///< compute capability "9.0"; empty: unknown
  uint32_t minor = 0;
  Node node;                         ///< /dev/nvidia<minor>
  std::vector<Node> graphics_nodes;  ///< /dev/dri/card*, renderD*
  bool mig_enabled = false;
  std::vector<MigDevice> mig;
};

/// Which other nodes there are.
struct ControlNodes {
  std::optional<Node> control;         ///< /dev/nvidiactl
  std::optional<Node> uvm, uvm_tools;  ///< compute
  std::optional<Node> modeset;         ///< display
  std::optional<Node> gdrdrv;          ///< compute (enroot), NVIDIA_GDRCOPY
  std::vector<Node> gds;               ///< /dev/nvidia-fs*
  std::vector<Node> nvswitch;          ///< /dev/nvidia-nvswitchctl, nvidia-nvswitch*
  std::vector<Node> infiniband;        ///< uverbs*, rdma_cm: NVIDIA_MOFED
  std::vector<Node> imex_channels;     ///< /dev/nvidia-caps-imex-channels/channel*
  std::optional<Node> mig_config, mig_monitor;
};

struct Inventory {
  std::string driver_version;  ///< "550.54.15"
  std::string cuda_version;    ///< "12.4"; empty: unknown
  bool from_nvml = false;      ///< else from /proc, without MIG UUIDs, brand, architecture and CUDA version
  std::vector<Gpu> gpus;       ///< in NVML's order: by PCI address
  ControlNodes nodes;
  std::vector<Library> libraries;
  std::vector<File> binaries, firmware, sockets, configuration;
  /// That are no library's own name: libGLX_indirect.so.0, gbm/nvidia-drm_gbm.so. Relative paths are beneath the
  /// directory of libraries.
  std::vector<File> links;
};

}  // namespace situla::nvidia
