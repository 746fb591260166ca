// Which device is a node? Its type and its numbers, as ls(1) and the kernel's device cgroup write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <sys/stat.h>

namespace situla {

struct DeviceNumber {
  char type = 'c';  ///< 'c' or 'b'
  uint32_t major = 0, minor = 0;
  friend bool operator==(const DeviceNumber&, const DeviceNumber&) = default;
};

/// nullopt: it is no device.
std::optional<DeviceNumber> device_number(const struct stat& status);

/// "c 195:255"
std::string to_text(const DeviceNumber& number);
/// nullopt for everything that to_text() does not write.
std::optional<DeviceNumber> parse_device_number(std::string_view text);

}  // namespace situla
