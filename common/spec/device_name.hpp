// Is this the name of a device? vendor/class=name, by the rules of the Container Device Interface (CDI 1.1.0, "kind"
// and "Device names").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"

namespace situla {

/// "nvidia.com/gpu=0"
bool is_device_name(const std::string& text);

/// The value of --container-devices: names between commas, no name twice; or "none" alone, which is then the only
/// element. ErrorKind::usage names the wrong one.
Result<std::vector<std::string>> parse_device_names(std::string_view text);

/// Parts of a name, for those who read CDI files.
bool is_device_kind(std::string_view text);         ///< "nvidia.com/gpu"
bool is_unqualified_device(std::string_view text);  ///< "0", "GPU-...", "all"

}  // namespace situla
