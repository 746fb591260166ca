// What does sysfs say of a device? Attributes, links of classes, PCI addresses.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/sys/root_dir.hpp"

namespace situla::sysfs {

/// The first line of a file, without blanks around it; empty when it cannot be read.
std::string attribute(const RootDir& root, const std::string& path);

/// The text of a symbolic link; nullopt when it is no link.
std::optional<std::string> read_link(const RootDir& root, const std::string& path);

/// Names in a directory, sorted; none when there is no such directory. Other errors are errors.
Result<std::vector<std::string>> names_in(const RootDir& root, std::string_view path);

/// Where a class's link to a device leads: ("/sys/class/drm", "renderD128") -> "/sys/devices/...". Empty when there is
/// no such link, or it leads elsewhere.
std::string device_directory(const RootDir& root, std::string_view class_directory, const std::string& name);

/// "0000:3b:00.0"; domains have more than four digits behind some bridges.
bool is_pci_address(std::string_view text);

/// The PCI function that a device belongs to, however deep it lies beneath it (subfunctions, auxiliary devices): a
/// path; empty when it is on another bus.
std::string function_directory(const std::string& device);

}  // namespace situla::sysfs
