#include "hooks/doctor/doctor.hpp"

#include <array>
#include <ctime>
#include <span>
#include <tuple>

#include <sys/utsname.h>
#include <unistd.h>

#include "common/base/installation.hpp"
#include "common/base/text.hpp"
#include "common/spec/site_config.hpp"
#include "hooks/doctor/checks.hpp"
#include "hooks/doctor/device_sections.hpp"
#include "hooks/doctor/store_checks.hpp"

namespace situla::doctor {
namespace {

constexpr std::array<std::string_view, 4> kKernelNeeds = {"overlay", "mount-api", "loop", "image-owner"};
constexpr std::array<std::string_view, 2> kFuseNeeds = {"overlay", "fuse"};
constexpr std::array<std::string_view, 1> kAllNeed = {"user-namespaces"};

/// The first of these checks that is not in order, with what was found; empty when all are.
std::string obstacle(const Report& report, std::span<const std::string_view> needs) {
  for (const std::string_view name : needs)
    if (const Check* check = report.find(name); check != nullptr && check->state != State::ok)
      return check->name + ": " + check->found;
  return "";
}

/// DESIGN.md 3: the new mount API with an id-mapped squashfs, else FUSE with an overlay, else extraction. The tier and
/// the reason.
std::pair<const char*, std::string> choose_tier(const Report& report, MountKind wanted, const std::string& who_wants) {
  const std::string nothing = obstacle(report, kAllNeed);
  const std::string no_kernel = obstacle(report, kKernelNeeds);
  const std::string no_fuse = obstacle(report, kFuseNeeds);
  if (!nothing.empty()) return {"none", nothing};
  if (wanted == MountKind::extract) return {"extract", who_wants};
  if (wanted == MountKind::fuse) return no_fuse.empty() ? std::pair("fuse", who_wants) : std::pair("none", no_fuse);
  if (no_kernel.empty()) return {"kernel", ""};
  if (wanted == MountKind::kernel) return {"none", no_kernel};
  return no_fuse.empty() ? std::pair("fuse", no_kernel) : std::pair("extract", no_fuse);
}

Check tier_check(const Report& report, const Places& places) {
  Check check{"tier", State::ok, "images become root file systems by ", ""};
  if (report.tier == "none") {
    const std::string fix = "fix the lines above, or set mount = \"auto\" in " + places.site_config;
    return {"tier", State::fail, "no way to turn an image into a root file system works here", fix};
  }
  if (report.tier == "kernel") check.found += "kernel mount: the fastest way";
  if (report.tier == "fuse") check.found += "FUSE";
  if (report.tier == "extract") check.found += "extraction: every container is a copy of its image";
  if (report.reason.empty()) return check;
  check.found += " (" + report.reason + ")";
  // Who is not root learns what works for himself; that is no fault of the node.
  check.state = report.complete ? State::ok : State::info;
  if (report.tier == "extract" && report.reason.find("mount = ") == std::string::npos) {
    check.state = State::warn;
    check.fix = "fix the lines above: starts take seconds to minutes this way";
  }
  return check;
}

std::string now() {
  const time_t seconds = time(nullptr);
  tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  return {text.data(), strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

bool has_slurm(const SlurmFiles& files, const Environment& environment) {
  return !files.slurm_conf.empty() || find_program("srun", environment) || find_program("slurmd", environment);
}

Section slurm_section(const Places& places, const SlurmFiles& files, const SiteConfig& config,
                      const Environment& environment) {
  Section section{"slurm", "Slurm", {}};
  if (!has_slurm(files, environment)) {
    section.lines.push_back({"slurm", State::info, "not on this machine: only the situla command works here", ""});
    return section;
  }
  section.lines = {check_slurm_plugin(places), check_slurm_version(places, environment)};
  if (files.slurm_conf.empty()) {
    section.lines.push_back({"plugstack", State::warn, "there is no slurm.conf where Slurm looks for it",
                             "set SLURM_CONF; a node without slurmd and sackd of its own asks slurmctld for it"});
    return section;
  }
  section.lines.push_back(check_plugstack(places, files));
  if (!files.loading("spank_situla.so").empty())
    section.lines.insert(section.lines.end(), {check_plugin_arguments(files), check_prolog(files)});
  if (config.job_comment != JobComment::off) section.lines.push_back(check_job_comment(places, config, environment));
  return section;
}

Section site_section(const Places& places, const SiteConfig& config, Check site_config, bool slurm) {
  Section section{"situla", "Situla", {{"version", State::info, "situla " SITULA_VERSION, ""}}};
  for (Check& check :
       std::vector<Check>{check_programs(places), std::move(site_config), check_configuration_directory(places),
                          check_service_user(config), check_import_user(config), check_store(config),
                          check_runtime_directory(places), check_shell()}) {
    // Who imports for jobs, and where to, matters where there are jobs.
    const bool for_jobs = check.name == "service-user" || check.name == "store";
    if (!slurm && for_jobs && (check.state == State::fail || check.state == State::warn)) {
      check.state = State::info;
      check.found += "; only Slurm jobs need it";
      check.fix.clear();
    }
    section.lines.push_back(std::move(check));
  }
  return section;
}

}  // namespace

Places Places::installed() {
  Places places;
  places.site_config = SITULA_SYSCONF_DIR "/situla.toml";
  places.libexec = libexec_directory();
  places.plugin = plugin_path();
  places.runtime = SITULA_RUNTIME_DIR;
  return places;
}

Report report_of_this_node() {
  utsname names{};
  uname(&names);
  Report report;
  report.version = SITULA_VERSION;
  report.host = names.nodename;
  report.kernel = names.release;
  report.time = now();
  report.complete = geteuid() == 0;
  return report;
}

Report examine(const Places& installed, const Environment& environment) {
  Report report = report_of_this_node();
  Places places = installed;
  const SlurmFiles files = SlurmFiles::find(places, environment);
  places.plugin = plugin_that_loads(places, files);
  SiteConfig config;
  Check site_config = check_site_config(places, config);

  Check idmapped = check_idmapped_mounts();
  const Check owner = check_image_owner(config, idmapped);
  if (owner.state == State::ok && idmapped.state == State::warn) idmapped.state = State::info;

  report.sections.push_back({"node",
                             "kernel and what it allows",
                             {check_kernel(places), check_user_namespaces(places), check_namespace_limits(places),
                              check_apparmor(places), check_selinux(places), check_cgroups(places)}});
  for (Check& check : check_ranges(places, config, files)) report.sections.back().lines.push_back(std::move(check));
  report.sections.push_back({"images",
                             "images as root file systems",
                             {check_mount_api(), check_overlay(), check_squashfs(places), check_loop(places),
                              check_compressors(), idmapped, owner, check_fuse(places)}});
  const bool by_plugstack = plugstack_wants_fuse(files);
  if (by_plugstack) config.mount = MountKind::fuse;
  std::tie(report.tier, report.reason) =
      choose_tier(report, config.mount,
                  by_plugstack ? "use_squashfuse=1 in plugstack.conf"
                               : "mount = \"" + std::string(to_string(config.mount)) + "\" in " + places.site_config);
  report.sections.back().lines.push_back(tier_check(report, places));
  report.sections.push_back(site_section(places, config, std::move(site_config), has_slurm(files, environment)));
  report.sections.push_back(slurm_section(places, files, config, environment));
  if (const auto devices = RootDir::open(config.device_settings.device_root)) report.gpus = brief_gpus(*devices);
  return report;
}

void examine_store(Report& report, const Places& places, const Environment& environment) {
  const SlurmFiles files = SlurmFiles::find(places, environment);
  const Result<SiteConfig> config = SiteConfig::load(places.site_config);  // the checks say what is wrong with it
  if (config && has_slurm(files, environment)) report.sections.push_back(store_section(*config, files, environment));
}

void examine_user(Report& report, const UserPaths& paths) {
  report.sections.push_back(
      {"user",
       "your directories (those of the user who asks)",
       {check_user_directory("data", paths.data, Use::data), check_user_directory("cache", paths.cache, Use::cache),
        check_user_directory("temporary", paths.temp, Use::temp),
        check_user_directory("runtime", paths.runtime, Use::runtime)},
       true});
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
  report.sections.push_back(drm_section(*roots));
  report.sections.push_back(cdi_section(settings.cdi_directories));
  report.sections.push_back(hca_section(*roots));
  report.sections.push_back(injection_section(settings, environment));
}

}  // namespace situla::doctor
