#include "common/base/text.hpp"
#include "hooks/cli/doctor/device_sections.hpp"
#include "hooks/inject/device_edits.hpp"

namespace situla::doctor {
namespace {

using FindEdits = Result<ContainerEdits> (*)(const DeviceScene&);

/// "12 devices, 60 mounts, 40 libraries"
std::string summary(const ContainerEdits& edits) {
  std::vector<std::string> parts;
  const auto part = [&](size_t count, const char* one, const char* many) {
    if (count > 0) parts.push_back(std::to_string(count) + " " + (count == 1 ? one : many));
  };
  part(edits.devices.size(), "device", "devices");
  part(edits.mounts.size(), "mount", "mounts");
  part(edits.files.size(), "file or link", "files and links");
  part(edits.libraries.libraries.size(), "library", "libraries");
  part(edits.environment.entries().size(), "variable", "variables");
  part(edits.programs.size(), "program", "programs");
  return parts.empty() ? "nothing" : join(parts, ", ");
}

Check line(const std::string& asked, const Result<ContainerEdits>& edits) {
  if (edits) return {asked, State::ok, summary(*edits), ""};
  return {asked, State::warn, printable(edits.error().message()),
          edits.error().hint().empty() ? "see the lines above" : printable(edits.error().hint())};
}

}  // namespace

Section injection_section(const DeviceSettings& settings, const Environment& environment) {
  Section section{"injection", "what containers get (situla inject --dry-run shows all of it)", {}};
  const Result<RootDir> root = RootDir::open("/");  // a container with the files that this system has
  if (!root) return section;
  Environment host;
  host.set("PATH", environment.get_or("PATH", ""));
  // Asked by an image, so that a node that has none is no error.
  const auto ask = [&](const std::string& variable, FindEdits find) {
    Environment image;
    image.set(variable, "all");
    image.set("NVIDIA_DRIVER_CAPABILITIES", "compute,utility");
    NullLog log;
    section.lines.push_back(
        line(variable + "=all", find({*root, host, image, settings, settings.devices, "/", false, log})));
  };
  ask("NVIDIA_VISIBLE_DEVICES", nvidia_edits);
  section.lines.back().found += " (gpu = \"" + std::string(to_string(settings.gpu)) + "\")";
  ask("MELLANOX_VISIBLE_DEVICES", mellanox_edits);
  NullLog log;
  if (!settings.devices.empty())
    section.lines.push_back(line("devices = " + printable(join(settings.devices, ",")),
                                 wanted_edits({*root, host, {}, settings, settings.devices, "/", false, log})));
  return section;
}

}  // namespace situla::doctor
