// What does a uevent file of sysfs say? KEY=VALUE lines, read as text and never as shell: names of devices are chosen
// by whoever may rename them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hooks/mount/device_number.hpp"

namespace situla::hca {

/// What matters of it for a character device or a network adapter. Everything else, and everything that is not as the
/// kernel writes it, is left out.
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
