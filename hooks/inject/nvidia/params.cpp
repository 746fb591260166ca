#include "hooks/inject/nvidia/params.hpp"

#include "common/base/text.hpp"

namespace situla::nvidia {

std::string without_node_changes(std::string_view params) {
  std::vector<std::string> lines;
  for (const std::string_view line : split(params, '\n'))
    lines.emplace_back(line.starts_with("ModifyDeviceFiles:") ? "ModifyDeviceFiles: 0" : line);
  return join(lines, "\n");
}

std::string application_profile(const std::vector<uint32_t>& minors) {
  uint64_t bits = 0;
  for (const uint32_t minor : minors)
    if (minor < 64) bits |= uint64_t{1} << minor;
  return "{\n"
         "  \"profiles\": [{\"name\": \"_container_\", \"settings\": [\"EGLVisibleDGPUDevices\", " +
         std::to_string(bits) +
         "]}],\n"
         "  \"rules\": [{\"pattern\": [], \"profile\": \"_container_\"}]\n"
         "}\n";
}

}  // namespace situla::nvidia
