#include <algorithm>

#include "common/base/text.hpp"
#include "hooks/inject/hooks.hpp"

namespace situla {
namespace {

constexpr const char* kPmiOrigin = "built-in hook slurm-pmi";
constexpr const char* kMungeDirectory = "/run/munge";
constexpr const char* kSlurmConf = "/etc/slurm/slurm.conf";
constexpr size_t kMaxConfiguration = size_t{4} << 20U;

/// Every variable with the prefix; whether there is any.
bool take_variables(const Environment& from, std::string_view prefix, Environment& to) {
  bool any = false;
  for (const auto& [name, value] : from.entries()) {
    if (!name.starts_with(prefix)) continue;
    to.set(name, value);
    any = true;
  }
  return any;
}

/// The first of these variables that is set and not empty.
std::string first_of(const Environment& host, std::initializer_list<std::string_view> names, std::string fallback) {
  for (const std::string_view name : names)
    if (const auto value = host.get(name); value && !value->empty()) return std::string(*value);
  return fallback;
}

constexpr std::string_view kModulePrefix = "PMIX_MCA_";

/// What Slurm's PMIx plugin says in its own variables, under the names that Open PMIx reads.
void name_modules(const Environment& host, Environment& environment) {
  for (const auto& [slurm, pmix] :
       {std::pair{"PMIX_PTL_MODULE", "PMIX_MCA_ptl"}, std::pair{"PMIX_SECURITY_MODE", "PMIX_MCA_psec"},
        std::pair{"PMIX_GDS_MODULE", "PMIX_MCA_gds"}})
    if (!host.get_or(slurm, "").empty() && host.get_or(pmix, "").empty()) environment.set(pmix, host.get_or(slurm, ""));
}

/// Steps that are started from within a PMIx step inherit its variables, whatever their own kind is.
bool uses_pmix(const Environment& host) {
  const std::string type = host.get_or("SLURM_MPI_TYPE", "");
  return type.empty() || type.starts_with("pmix");
}

bool in_step(const Environment& host) {
  return !host.get_or("SLURM_JOB_ID", "").empty() && !host.get_or("SLURM_STEP_ID", "").empty();
}

MountStep bind_directory(const std::string& path, bool read_only = false) {
  return {.source = path,
          .target = path,
          .create = CreateTarget::directory,
          .flags = {.read_only = read_only, .no_suid = true, .no_dev = true, .no_exec = true},
          .propagation = Propagation::private_mount,
          .origin = kPmiOrigin};
}

/// As enroot's script has it. https://docs.openpmix.org/en/latest/how-things-work/session_dirs.html has the order of
/// the variables.
void bind_usual_directories(const HookContext& context, std::vector<MountStep>& steps) {
  const Environment& host = context.host;
  const std::string usual = first_of(host, {"TMPDIR", "TEMP", "TMP"}, "/tmp");
  const std::string step = host.get_or("SLURM_JOB_ID", "") + "." + host.get_or("SLURM_STEP_ID", "");
  const std::string system = first_of(host, {"PMIX_SYSTEM_TMPDIR"}, usual) + "/spmix_appdir_";
  const std::string with_user = system + host.get_or("SLURM_JOB_UID", "") + "_" + step;
  steps.push_back(bind_directory(context.host_root.exists(with_user) ? with_user : system + step));
  steps.back().on_failure = OnFailure::ignore;
  steps.push_back(bind_directory(first_of(host, {"PMIX_SERVER_TMPDIR"}, usual)));
  // COMPAT.md 9: nofail; the variable may be of an outer step, on another node.
  steps.back().on_failure = OnFailure::warn;
}

/// A rank tells the PMIx server who it is. By itself it says root in a container with remapped root, and is refused;
/// what munge says of it is true. The job's tasks outside of containers can talk to munge as well.
void bind_credentials(const HookContext& context, std::vector<MountStep>& steps) {
  if (!context.remap_root) return;
  if (context.host.get_or("PMIX_SECURITY_MODE", "").find("munge") != std::string::npos &&
      context.host_root.exists(kMungeDirectory))
    steps.push_back(bind_directory(kMungeDirectory, true));
  else
    context.log.warning("PMIx will refuse the tasks, who are root inside: use --no-container-remap-root");
}

/// The value of a key in one of Slurm's configuration files; empty where it is not set or the file cannot be read.
std::string slurm_setting(const RootDir& host_root, const std::string& file, std::string_view key) {
  std::string value;
  const auto content = host_root.read_file(file, kMaxConfiguration);
  if (!content) return value;
  for (const std::string_view line : split(*content, '\n')) {
    const auto setting = cut(line.substr(0, line.find('#')), '=');
    if (setting && to_lower(trim(setting->first)) == key) value = trim(setting->second);
  }
  return value;
}

/// Where Slurm's PMIx plugin may have made the application's directory. Slurm tells the ranks, through PMIx, but nobody
/// else; a rank that does not find it makes one itself, which a read-only root does not allow.
std::vector<std::string> application_bases(const HookContext& context) {
  const Environment& host = context.host;
  const std::string node = host.get_or("SLURMD_NODENAME", ""), conf = first_of(host, {"SLURM_CONF"}, kSlurmConf);
  const std::string directory = conf.substr(0, conf.find_last_of('/') + 1);
  std::vector<std::string> bases = {host.get_or("SLURM_PMIX_TMPDIR", ""),
                                    slurm_setting(context.host_root, directory + "mpi.conf", "pmixclitmpdirbase"),
                                    slurm_setting(context.host_root, conf, "tmpfs"),
                                    host.get_or("PMIX_SYSTEM_TMPDIR", ""), "/tmp"};
  for (std::string& base : bases)
    for (const std::string_view pattern : {"%n", "%h"})
      if (const size_t found = base.find(pattern); found != std::string::npos)
        base.replace(found, pattern.size(), node);
  std::erase(bases, "");
  return bases;
}

std::vector<std::string> present_directories(const HookContext& context) {
  const Environment& host = context.host;
  std::vector<std::string> found;
  const auto look = [&](const std::string& path) {
    if (context.host_root.exists(path) && std::find(found.begin(), found.end(), path) == found.end())
      found.push_back(path);
  };
  const std::string step = host.get_or("SLURM_JOB_ID", "") + "." + host.get_or("SLURM_STEP_ID", "");
  if (const std::string server = host.get_or("PMIX_SERVER_TMPDIR", ""); !server.empty()) look(server);
  for (const std::string& base : application_bases(context)) {
    look(base + "/spmix_appdir_" + host.get_or("SLURM_JOB_UID", "") + "_" + step);
    look(base + "/spmix_appdir_" + step);  // of older releases
  }
  return found;
}

/// All that the ranks need of the host, unless it is among the steps already.
void bind_for_ranks(const HookContext& context, std::vector<MountStep>& steps) {
  for (const std::string& path : present_directories(context)) {
    const auto is_bound = [&](const MountStep& step) { return step.source == path; };
    if (std::none_of(steps.begin(), steps.end(), is_bound)) steps.push_back(bind_directory(path));
  }
  bind_credentials(context, steps);
}

}  // namespace

Result<ContainerEdits> slurm_pmi_hook(const HookContext& context) {
  ContainerEdits edits;
  const Environment& host = context.host;
  if (!in_step(host)) return edits;
  take_variables(host, "SLURM_", edits.environment);
  if (uses_pmix(host) && take_variables(host, "PMIX_", edits.environment)) {
    name_modules(host, edits.environment);
    bind_usual_directories(context, edits.mounts_after_hooks);
    bind_for_ranks(context, edits.mounts_after_hooks);
  }
  take_variables(host, "PMI_", edits.environment);
  return edits;
}

Result<ContainerEdits> slurm_pmix_hook(const HookContext& context) {
  ContainerEdits edits;
  const Environment& host = context.host;
  if (!in_step(host) || !uses_pmix(host) || host.get_or("PMIX_NAMESPACE", "").empty()) return edits;
  name_modules(host, edits.environment);
  // Without the script nobody wants a variable of the image's changed.
  for (const auto& [name, value] : context.container.entries())
    if (name.starts_with(kModulePrefix) && !value.empty()) edits.environment.unset(name);
  bind_for_ranks(context, edits.mounts_after_hooks);
  return edits;
}

}  // namespace situla
