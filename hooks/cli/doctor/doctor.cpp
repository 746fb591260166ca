#include "hooks/cli/doctor/doctor.hpp"

#include <algorithm>
#include <array>
#include <span>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "common/base/text.hpp"
#include "common/spec/site_config.hpp"
#include "hooks/cli/doctor/checks.hpp"
#include "hooks/cli/doctor/device_sections.hpp"

namespace situla::doctor {
namespace {

constexpr std::array<std::string_view, 4> kKernelNeeds = {"overlay", "mount-api", "loop", "idmapped-mounts"};
constexpr std::array<std::string_view, 2> kFuseNeeds = {"overlay", "fuse"};
constexpr std::array<std::string_view, 1> kAllNeed = {"user-namespaces"};

/// The first of these checks that is not in order, with what was found; empty when all are.
std::string obstacle(const Report& report, std::span<const std::string_view> needs) {
  for (const std::string_view name : needs)
    for (const Check& check : report.checks)
      if (check.name == name && check.state != State::ok) return check.name + ": " + check.found;
  return "";
}

/// DESIGN.md 3: the new mount API with an id-mapped squashfs, else FUSE with an overlay, else extraction.
void choose_tier(Report& report, MountKind wanted, const std::string& who_wants) {
  const std::string nothing = obstacle(report, kAllNeed);
  const std::string no_kernel = obstacle(report, kKernelNeeds);
  const std::string no_fuse = obstacle(report, kFuseNeeds);
  const auto choose = [&](const char* tier, const std::string& reason) {
    report.tier = tier;
    report.reason = reason;
  };
  if (!nothing.empty()) return choose("none", nothing);
  switch (wanted) {
    case MountKind::automatic:
      if (no_kernel.empty()) return choose("kernel", "");
      return no_fuse.empty() ? choose("fuse", no_kernel) : choose("extract", no_fuse);
    case MountKind::kernel:
      return no_kernel.empty() ? choose("kernel", "") : choose("none", no_kernel);
    case MountKind::fuse:
      return no_fuse.empty() ? choose("fuse", who_wants) : choose("none", no_fuse);
    case MountKind::extract:
      return choose("extract", who_wants);
  }
}

std::string lines_of(const std::vector<Check>& checks) {
  size_t width = 0;
  for (const Check& check : checks) width = std::max(width, check.name.size());
  std::string text;
  for (const Check& check : checks) {
    const std::string_view state = to_string(check.state);
    text += std::string(state) + std::string(6 - state.size(), ' ');
    text += check.name + std::string(width + 2 - check.name.size(), ' ') + check.found + "\n";
    if (!check.fix.empty()) text += std::string(8 + width, ' ') + "fix: " + check.fix + "\n";
  }
  return text;
}

nlohmann::ordered_json checks_as_json(const std::vector<Check>& checks) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const Check& check : checks) {
    array.push_back(
        {{"name", check.name}, {"state", to_string(check.state)}, {"found", check.found}, {"fix", check.fix}});
    for (const auto& [name, value] : check.facts) array.back()[name] = value;
  }
  return array;
}

}  // namespace

std::string_view to_string(State state) {
  switch (state) {
    case State::ok:
      return "ok";
    case State::warn:
      return "warn";
    case State::fail:
      return "fail";
  }
  return "fail";
}

bool Report::failed() const {
  return std::any_of(checks.begin(), checks.end(), [](const Check& check) { return check.state == State::fail; });
}

std::string Report::text() const {
  std::string text = lines_of(checks) + "\nimages become root file systems by: " + tier;
  if (!complete) text += " (for what you start yourself; only root's doctor can tell for Slurm jobs)";
  text += "\n";
  for (const Section& section : sections) text += "\n" + section.title + ":\n" + lines_of(section.lines);
  return text;
}

std::string Report::json() const {
  nlohmann::ordered_json document;
  document["ok"] = !failed();
  document["tier"] = tier;
  document["complete"] = complete;
  document["checks"] = checks_as_json(checks);
  document["devices"] = nlohmann::ordered_json::object();
  for (const Section& section : sections) document["devices"][section.name] = checks_as_json(section.lines);
  // Names of files may hold any bytes; the report has to stay valid JSON.
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string Report::brief() const {
  std::string text = tier == "kernel"    ? "images by kernel mount"
                     : tier == "fuse"    ? "images by FUSE"
                     : tier == "extract" ? "images by extraction"
                                         : "no containers";
  if (!reason.empty()) text += " (" + printable(reason) + ")";
  if (!complete) text += "; only root's doctor can tell for Slurm jobs";
  if (!gpus.empty()) text += "; " + printable(gpus);
  text += "\n";
  for (const Check& check : checks)
    if (check.state == State::fail)
      text += "error: " + check.name + ": " + printable(check.found) +
              (check.fix.empty() ? "" : "; fix: " + printable(check.fix)) + "\n";
  return text;
}

Places Places::installed() {
  Places places;
  places.site_config = SITULA_SYSCONF_DIR "/situla.toml";
  places.libexec = SITULA_LIBEXEC_DIR;
  places.plugin = SITULA_PLUGIN_PATH;
  return places;
}

Report examine(const Places& places, const Environment& environment) {
  Report report;
  SiteConfig config;
  report.checks = {check_kernel(places),   check_user_namespaces(places),
                   check_mount_api(),      check_overlay(),
                   check_squashfs(places), check_loop(places),
                   check_compressors(),    check_idmapped_mounts(),
                   check_fuse(places),     check_site_config(places, config)};
  for (Check& check : std::vector<Check>{check_service_user(config), check_store(config), check_runtime_directory(),
                                         check_programs(places), check_shell(), check_slurm_plugin(places),
                                         check_plugstack(places, environment)})
    report.checks.push_back(std::move(check));
  report.complete = geteuid() == 0;
  if (const auto devices = RootDir::open(config.device_settings.device_root)) report.gpus = brief_gpus(*devices);
  const bool by_plugstack = plugstack_wants_fuse(places, environment);
  if (by_plugstack) config.mount = MountKind::fuse;
  choose_tier(report, config.mount,
              by_plugstack ? "use_squashfuse=1 in plugstack.conf"
                           : "mount = \"" + std::string(to_string(config.mount)) + "\" in " + places.site_config);
  if (report.tier == "none")
    report.checks.push_back({"tier", State::fail, "no way to turn an image into a root file system works here",
                             "mend the lines above, or set mount = \"auto\" in " + places.site_config});
  return report;
}

void examine_devices(Report& report, const Places& places, const Environment& environment) {
  const Result<SiteConfig> config = SiteConfig::load(places.site_config);  // the checks say what is wrong with it
  const DeviceSettings settings = config ? config->device_settings : DeviceSettings();
  const Result<HostRoots> roots = HostRoots::open(settings.driver_root, settings.device_root);
  if (!roots) {
    report.sections.push_back({"devices",
                               "devices",
                               {{"roots", State::warn, roots.error().message(),
                                 "correct driver_root and device_root in " + places.site_config}}});
    return;
  }
  report.sections.push_back(gpus(*roots, places.libexec + "/situla-nvml"));
  report.sections.push_back(cdi_section(settings.cdi_directories));
  report.sections.push_back(hca_section(*roots));
  report.sections.push_back(injection_section(settings, environment));
}

}  // namespace situla::doctor
