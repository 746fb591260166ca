#include "common/base/parts.hpp"
#include "hooks/doctor/device_sections.hpp"

namespace situla::doctor {

Section gpus(const HostRoots& roots, const std::string&) {
  Check line{"driver", State::ok, not_built_in(Part::gpu), ""};
  if (roots.devices.exists("/proc/driver/nvidia/version")) {
    line.state = State::warn;
    line.fix = "this node has NVIDIA's driver: install a build with GPUs, or set gpu = \"cdi\"";
  }
  return {"gpus", "NVIDIA GPUs", {std::move(line)}};
}

std::string brief_gpus(const RootDir&) {
  return "";
}

}  // namespace situla::doctor
