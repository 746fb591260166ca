#include "hooks/cli/doctor/doctor.hpp"

#include <algorithm>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "common/spec/site_config.hpp"
#include "hooks/cli/doctor/checks.hpp"

namespace situla::doctor {
namespace {

bool good(const Report& report, std::string_view name) {
  return std::any_of(report.checks.begin(), report.checks.end(),
                     [&](const Check& check) { return check.name == name && check.state == State::ok; });
}

/// DESIGN.md 3: the new mount API with an id-mapped squashfs, else FUSE with an overlay, else extraction.
std::string tier_of(const Report& report, MountKind wanted) {
  if (!good(report, "user-namespaces")) return "none";
  const bool overlay = good(report, "overlay");
  const bool kernel = overlay && good(report, "mount-api") && good(report, "loop") && good(report, "idmapped-mounts");
  const bool fuse = overlay && good(report, "fuse");
  switch (wanted) {
    case MountKind::automatic:
      return kernel ? "kernel" : fuse ? "fuse" : "extract";
    case MountKind::kernel:
      return kernel ? "kernel" : "none";
    case MountKind::fuse:
      return fuse ? "fuse" : "none";
    case MountKind::extract:
      return "extract";
  }
  return "none";
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
  size_t width = 0;
  for (const Check& check : checks) width = std::max(width, check.name.size());
  std::string text;
  for (const Check& check : checks) {
    const std::string_view state = to_string(check.state);
    text += std::string(state) + std::string(6 - state.size(), ' ');
    text += check.name + std::string(width + 2 - check.name.size(), ' ') + check.found + "\n";
    if (!check.fix.empty()) text += std::string(8 + width, ' ') + "fix: " + check.fix + "\n";
  }
  text += "\nimages become root file systems by: " + tier;
  if (!complete) text += " (for what you start yourself; only root's doctor can tell for Slurm jobs)";
  return text + "\n";
}

std::string Report::json() const {
  nlohmann::ordered_json document;
  document["ok"] = !failed();
  document["tier"] = tier;
  document["complete"] = complete;
  document["checks"] = nlohmann::ordered_json::array();
  for (const Check& check : checks)
    document["checks"].push_back(
        {{"name", check.name}, {"state", to_string(check.state)}, {"found", check.found}, {"fix", check.fix}});
  // Names of files may hold any bytes; the report has to stay valid JSON.
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
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
  report.tier = tier_of(report, config.mount);
  if (report.tier == "none")
    report.checks.push_back({"tier", State::fail, "no way to turn an image into a root file system works here",
                             "mend the lines above, or set mount = \"auto\" in " + places.site_config});
  return report;
}

}  // namespace situla::doctor
