#include "hooks/mount/device_number.hpp"

#include <limits>

#include <sys/sysmacros.h>

#include "common/base/text.hpp"

namespace situla {

std::optional<DeviceNumber> device_number(const struct stat& status) {
  if (!S_ISCHR(status.st_mode) && !S_ISBLK(status.st_mode)) return std::nullopt;
  return DeviceNumber{S_ISCHR(status.st_mode) ? 'c' : 'b', static_cast<uint32_t>(major(status.st_rdev)),
                      static_cast<uint32_t>(minor(status.st_rdev))};
}

std::string to_text(const DeviceNumber& number) {
  return std::string(1, number.type) + " " + std::to_string(number.major) + ":" + std::to_string(number.minor);
}

std::optional<DeviceNumber> parse_device_number(std::string_view text) {
  if (!text.starts_with("c ") && !text.starts_with("b ")) return std::nullopt;
  const auto parts = cut(text.substr(2), ':');
  if (!parts) return std::nullopt;
  const auto major_number = parse_unsigned(parts->first), minor_number = parse_unsigned(parts->second);
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  if (!major_number || !minor_number || *major_number > kMost || *minor_number > kMost) return std::nullopt;
  return DeviceNumber{text.front(), static_cast<uint32_t>(*major_number), static_cast<uint32_t>(*minor_number)};
}

}  // namespace situla
