#include <map>

#include "common/base/text.hpp"
#include "hooks/doctor/device_access.hpp"
#include "hooks/doctor/device_sections.hpp"
#include "hooks/inject/drm/render_gpus.hpp"

namespace situla::doctor {
namespace {

constexpr const char* kGroupFix =
    "put the users into that group, or open the nodes to all by a rule of udev: SUBSYSTEM==\"drm\", "
    "KERNEL==\"renderD*\", "
    "MODE=\"0666\" (and KERNEL==\"kfd\" for AMD's)";

/// Adds what there is to be said about who may open the node.
Check with_access(Check line, const NodeAccess& access, const std::string& missing_fix) {
  line.facts.emplace_back("accessible", access.mine ? "yes" : "no");
  if (!access.mine)
    line.found += access.restricted ? "; not of this job (device cgroup)" : "; no access: " + access.reason;
  if (!access.only_for.empty()) line.found += "; only for " + access.only_for;
  // Whoever asks has what is needed; whom it is for besides is worth knowing.
  if (access.mine && !access.only_for.empty()) line.state = State::info;
  if (access.mine || (access.restricted && access.only_for.empty())) return line;
  line.state = State::warn;
  line.fix = access.only_for.empty() ? missing_fix : kGroupFix;
  return line;
}

Check gpu_line(const drm::RenderGpu& gpu, size_t index, const RootDir& devices) {
  Check line{to_lower(gpu.vendor->name) + " " + std::to_string(index), State::ok, "", ""};
  std::vector<std::string> parts = {printable(gpu.address), printable(gpu.render.path)};
  if (gpu.card) parts.push_back(printable(gpu.card->path));
  if (!gpu.unique_id.empty()) parts.push_back(gpu.unique_id);
  line.found = join(parts, ", ");
  line.facts = {{"index", std::to_string(index)},
                {"vendor", std::string(gpu.vendor->name)},
                {"busId", printable(gpu.address)},
                {"node", printable(gpu.render.path)},
                {"uuid", gpu.unique_id}};
  return with_access(std::move(line), node_access(devices, gpu.render.path),
                     "udev makes the nodes in /dev/dri: does it run, and does a rule of the site change them?");
}

Check kfd_line(const RootDir& devices) {
  const auto kfd = drm::kfd(devices);
  if (!kfd)
    return {"kfd", State::warn, "the kernel has no KFD: ROCm finds no GPU",
            "install AMD's driver (amdgpu-dkms), or a kernel with CONFIG_HSA_AMD"};
  return with_access({"kfd", State::ok, kfd->path, ""}, node_access(devices, kfd->path), "udev makes it: does it run?");
}

}  // namespace

Section drm_section(const HostRoots& roots) {
  Section section{"drm", "GPUs of AMD and Intel", {}};
  std::map<std::string_view, size_t> counts;
  for (const drm::RenderGpu& gpu : drm::render_gpus(roots.devices))
    section.lines.push_back(gpu_line(gpu, counts[gpu.vendor->name]++, roots.devices));
  if (section.lines.empty()) section.lines.push_back({"gpu", State::ok, "none on this node", ""});
  if (counts.contains(gpu::kAmd.name)) section.lines.push_back(kfd_line(roots.devices));
  return section;
}

}  // namespace situla::doctor
