// Which network adapters with verbs (RDMA) does this node have? mlx4, mlx5, bnxt_re, efa, irdma, hns and whatever
// else is in /sys/class/infiniband_verbs, each with what belongs to it (GPU.md 6).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/mount/device_number.hpp"

namespace situla::hca {

/// umadN or issmN, of one port: the fabric is managed through it, by root.
struct ManagementNode {
  std::string path;  ///< "/dev/infiniband/umad0"
  std::optional<DeviceNumber> number;
  std::string directory;  ///< "/sys/devices/.../infiniband_mad/umad0"
};

/// One uverbs device. All paths are beneath the device root, links of classes resolved.
struct Adapter {
  std::string name;   ///< "mlx5_0", as programs call it; empty: the kernel does not tell
  std::string verbs;  ///< "uverbs0"
  std::string node;   ///< "/dev/infiniband/uverbs0"
  std::optional<DeviceNumber> number;
  std::string verbs_directory;  ///< "/sys/devices/pci0000:3a/.../0000:3b:00.0/infiniband_verbs/uverbs0"
  std::string directory;        ///< "/sys/devices/.../infiniband/mlx5_0"; empty: not to be seen from here
  std::string pci_address;      ///< of its function: "0000:3b:00.0"; empty: on another bus, or software
  std::string driver;           ///< of the function: "mlx5_core", "bnxt_en", "efa", "ice"; empty: none
  bool virtual_function = false;
  /// Why nobody here can use it: node missing, no access to it, no InfiniBand device behind it (a representor, or of
  /// another network namespace). Empty: it can be used.
  std::string obstacle;
  std::vector<ManagementNode> management;
};

/// First the functions of mlx4 and mlx5, in the order of enroot's indices: driver, PCI address. Then all others, and
/// subfunctions, in the same order. None where the kernel has no verbs.
Result<std::vector<Adapter>> adapters(const RootDir& devices);

/// What `situla doctor` shows of a port: "InfiniBand", "ACTIVE", "400 Gb/sec (4X NDR)"; a word is empty when unknown.
struct Port {
  std::string number, link_layer, state, rate;
};
std::vector<Port> ports(const RootDir& devices, const Adapter& adapter);

/// What matters of a uevent file of sysfs, KEY=VALUE lines that are read as text and never as shell: names of devices
/// are chosen by whoever may rename them. For a character device or a network adapter. Everything else, and everything
/// that is not as the kernel writes it, is left out.
struct Uevent {
  std::string name;                    ///< NAME: a file name; "mlx5_0"
  std::string node;                    ///< DEVNAME: beneath /dev, without "." and ".."; "infiniband/uverbs0"
  std::optional<DeviceNumber> number;  ///< MAJOR, MINOR
  friend bool operator==(const Uevent&, const Uevent&) = default;
};

Uevent parse_uevent(std::string_view text);

/// Whether text can be the name of one file: not empty, no '/', no control characters, neither "." nor "..".
bool is_file_name(std::string_view text);

}  // namespace situla::hca
