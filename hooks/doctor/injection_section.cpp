#include <algorithm>

#include "common/base/text.hpp"
#include "hooks/doctor/device_sections.hpp"
#include "hooks/inject/fabric/fabric.hpp"
#include "hooks/inject/hooks.hpp"

namespace situla::doctor {
namespace {

using Hook = Result<ContainerEdits> (*)(const HookContext&);

/// "12 devices, 60 mounts, 40 libraries"
std::string summary(const ContainerEdits& edits) {
  std::vector<std::string> parts;
  const auto part = [&](size_t count, const char* one, const char* many) {
    if (count > 0) parts.push_back(std::to_string(count) + " " + (count == 1 ? one : many));
  };
  const auto steps = [&](StepKind kind) {
    return static_cast<size_t>(std::count_if(edits.mounts.begin(), edits.mounts.end(),
                                             [&](const MountStep& step) { return step.kind == kind; }));
  };
  part(steps(StepKind::device), "device", "devices");
  part(steps(StepKind::host_file), "mount", "mounts");
  part(edits.files.size(), "file or link", "files and links");
  part(edits.libraries.libraries.size(), "library", "libraries");
  part(edits.environment.entries().size(), "variable", "variables");
  part(edits.programs.size(), "program", "programs");
  return parts.empty() ? "nothing" : join(parts, ", ");
}

/// What there is to be said about it.
class Warnings final : public LogSink {
 public:
  void write(LogLevel level, std::string_view message) noexcept override {
    if (level >= LogLevel::warning) texts.emplace_back(message);
  }
  std::vector<std::string> texts;
};

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
  const UserEntry user;
  Environment host;
  host.set("PATH", environment.get_or("PATH", ""));
  const auto ask = [&](const std::string& question, const Environment& image, Hook hook) {
    Warnings log;
    section.lines.push_back(line(question, hook({.root = *root,
                                                 .host_root = *root,
                                                 .host = host,
                                                 .container = image,
                                                 .user = user,
                                                 .log = log,
                                                 .device_settings = settings,
                                                 .root_path = "/"})));
    return std::move(log.texts);
  };
  // Asked by an image, so that a node that has none is no error.
  const auto ask_by_variable = [&](const std::string& variable, Hook hook) {
    Environment image;
    image.set(variable, "all");
    image.set("NVIDIA_DRIVER_CAPABILITIES", "compute,utility");
    ask(variable + "=all", image, hook);
  };
  ask_by_variable("NVIDIA_VISIBLE_DEVICES", nvidia_hook);
  section.lines.back().found += " (gpu = \"" + std::string(to_string(settings.gpu)) + "\")";
  host.set("SLURM_JOB_GPUS", "0");  // Slurm says no more of whose GPUs they are
  ask("GPUs that Slurm gives", {}, drm_hook);
  section.lines.back().found += " (amd_gpu = \"" + std::string(to_string(settings.amd_gpu)) + "\", intel_gpu = \"" +
                                std::string(to_string(settings.intel_gpu)) + "\")";
  host.unset("SLURM_JOB_GPUS");
  ask_by_variable("MELLANOX_VISIBLE_DEVICES", mellanox_hook);
  if (!settings.fabric.empty()) {
    std::vector<std::string> words;
    for (const Fabric part : settings.fabric) words.emplace_back(to_string(part));
    // In a container that has this system's files all of it fits, unless something that it needs is missing.
    std::vector<std::string> warnings = ask("fabric = " + join(words, ","), {}, fabric_hook);
    for (const std::string& soname : fabric::missing_libraries(settings.fabric, *root))
      warnings.push_back("the node has no " + soname);
    for (const std::string& warning : warnings)
      section.lines.push_back({"fabric", State::warn, printable(warning),
                               "install it, tell the dynamic linker of its directory (ld.so.conf.d, ldconfig), or take "
                               "the word out of fabric in situla.toml"});
  }
  if (!settings.devices.empty()) ask("devices = " + printable(join(settings.devices, ",")), {}, wanted_devices_hook);
  return section;
}

}  // namespace situla::doctor
