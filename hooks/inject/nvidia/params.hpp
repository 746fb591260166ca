// What do the small files say that NVIDIA's driver and its OpenGL read in a container?
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace situla::nvidia {

/// /proc/driver/nvidia/params with ModifyDeviceFiles: 0. With 1, NVIDIA's libraries would make and chmod nodes, which
/// is nothing a container's process can do.
std::string without_node_changes(std::string_view params);

/// Tells EGL which GPUs, by the minor numbers of their nodes, it may use: it would find the others, too, and fail.
std::string application_profile(const std::vector<uint32_t>& minors);

}  // namespace situla::nvidia
