#include "hooks/inject/hooks.hpp"

namespace situla {
namespace {

constexpr const char* kOrigin = "built-in hook slurm-pmi";

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

/// What Slurm's PMIx plugin says in its own variables, under the names that Open PMIx reads.
void name_modules(const Environment& host, Environment& environment) {
  for (const auto& [slurm, pmix] :
       {std::pair{"PMIX_PTL_MODULE", "PMIX_MCA_ptl"}, std::pair{"PMIX_SECURITY_MODE", "PMIX_MCA_psec"},
        std::pair{"PMIX_GDS_MODULE", "PMIX_MCA_gds"}})
    if (!host.get_or(slurm, "").empty() && host.get_or(pmix, "").empty()) environment.set(pmix, host.get_or(slurm, ""));
}

Result<void> bind_directory(const std::string& path, bool must_exist, std::vector<MountStep>& steps) {
  MountFields fields;
  fields.source = fields.target = path;
  fields.options = {"x-create=dir", "bind", "rw", "nosuid", "noexec", "nodev", "private"};
  if (!must_exist) fields.options.insert(fields.options.end(), {"nofail", "silent"});
  TRY_ASSIGN(MountStep step, make_step(fields, kOrigin));
  steps.push_back(std::move(step));
  return {};
}

/// https://docs.openpmix.org/en/latest/how-things-work/session_dirs.html has the order of the variables.
Result<void> bind_server_directories(const InjectContext& context, std::vector<MountStep>& steps) {
  const Environment& host = context.host;
  const std::string usual = first_of(host, {"TMPDIR", "TEMP", "TMP"}, "/tmp");
  const std::string step = host.get_or("SLURM_JOB_ID", "") + "." + host.get_or("SLURM_STEP_ID", "");
  const std::string system = first_of(host, {"PMIX_SYSTEM_TMPDIR"}, usual) + "/spmix_appdir_";
  const std::string with_user = system + host.get_or("SLURM_JOB_UID", "") + "_" + step;
  TRY(bind_directory(context.host_root.exists(with_user) ? with_user : system + step, false, steps));
  return bind_directory(first_of(host, {"PMIX_SERVER_TMPDIR"}, usual), true, steps);
}

}  // namespace

Result<Proposal> slurm_pmi_hook(const InjectContext& context) {
  Proposal proposal;
  const Environment& host = context.host;
  if (host.get_or("SLURM_JOB_ID", "").empty() || host.get_or("SLURM_STEP_ID", "").empty()) return proposal;
  take_variables(host, "SLURM_", proposal.environment);
  const std::string type = host.get_or("SLURM_MPI_TYPE", "");
  if ((type.empty() || type.starts_with("pmix")) && take_variables(host, "PMIX_", proposal.environment)) {
    name_modules(host, proposal.environment);
    TRY(bind_server_directories(context, proposal.mounts));
  }
  take_variables(host, "PMI_", proposal.environment);
  return proposal;
}

}  // namespace situla
