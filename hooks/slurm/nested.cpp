#include "hooks/slurm/nested.hpp"

#include <algorithm>
#include <array>

#include "common/protocol/slurm_inside.hpp"
#include "common/spec/image_reference.hpp"

namespace situla {
namespace {

/// What belongs to the step that was, or to Slurm, and comes anew for each task.
constexpr std::array<std::string_view, 8> kOfStep = {"SLURM",   "SRUN_",  "SBATCH_", "SALLOC_",
                                                     "SITULA_", "PYXIS_", "ENROOT_", "PMI"};
/// How options of sbatch and salloc reach steps: said of the job, not of what is run in the container.
constexpr std::array<std::string_view, 3> kRelayed = {"_SLURM_SPANK_OPTION_", "SLURM_SPANK_", "SLURM_SITULA_"};
/// ld.so(8), "Secure-execution mode".
constexpr std::array<std::string_view, 8> kOfLinker = {"LD_",          "GCONV_PATH", "GETCONF_DIR",    "LOCPATH",
                                                       "MALLOC_TRACE", "NLSPATH",    "GLIBC_TUNABLES", "TZDIR"};
/// Where something is, outside.
constexpr std::array<std::string_view, 8> kPlaces = {"PATH",    "HOME",   "SHELL",           "USER",
                                                     "LOGNAME", "TMPDIR", "XDG_RUNTIME_DIR", "PWD"};

template <size_t N>
bool begins_with_one_of(std::string_view name, const std::array<std::string_view, N>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

/// Beneath the job's directory; `~` and `$NAME` mean the same on every node.
void make_absolute(std::string& path, const std::string& directory) {
  if (!path.empty() && path[0] != '/' && path[0] != '~' && path[0] != '$') path = directory + "/" + path;
}

}  // namespace

ContainerSpec same_container(const OuterContainer& outer, const std::string& workdir, const Environment& environment) {
  ContainerSpec spec = outer.spec;
  if (image_kind(spec.image) == ImageKind::path) make_absolute(spec.image, outer.directory);
  const auto reference = ImageReference::parse(spec.image);
  const bool may_move = reference && image_kind(spec.image) == ImageKind::registry && !reference->digest;
  if (may_move && spec.pinned.empty()) spec.pinned = outer.digest;
  spec.save.clear();
  spec.directory.clear();
  spec.name_flag = NameFlag::automatic;
  spec.progress = {};
  std::erase_if(spec.mounts, [](const MountOption& mount) { return mount.kind == MountOption::Kind::script; });
  for (MountOption& mount : spec.mounts)
    if (mount.kind == MountOption::Kind::bind) make_absolute(mount.source, outer.directory);
  spec.workdir = workdir;
  spec.keep_env.clear();
  for (const auto& [name, value] : environment.entries())
    if (is_variable_name(name) && name != "_" && !begins_with_one_of(name, kOfStep)) spec.keep_env.push_back(name);
  return spec;
}

Environment host_environment(std::string_view command, const Environment& inside, const Environment& outside,
                             const std::string& slurm_conf) {
  const bool on_host = command == "sbatch" || command == "salloc";
  Environment environment;
  for (const auto& [name, value] : inside.entries()) {
    if (begins_with_one_of(name, kRelayed) || name == kSlurmInsideVariable || name.starts_with(kKeptPrefix)) continue;
    if (begins_with_one_of(name, kOfLinker)) {
      if (command == "srun") environment.set(std::string(kKeptPrefix) + name, value);
      continue;
    }
    environment.set(name, value);
  }
  for (const std::string_view name : kPlaces)
    if (const auto value = outside.get(name); on_host && value)
      environment.set(name, *value);
    else if (on_host)
      environment.unset(name);
  environment.unset("SLURM_CONF");
  if (const auto value = outside.get("SLURM_CONF"))
    environment.set("SLURM_CONF", *value);
  else if (!slurm_conf.empty())
    environment.set("SLURM_CONF", slurm_conf);
  // The step that the command is typed in holds what the job has.
  if (command == "srun" && !environment.has("SLURM_OVERLAP") && !environment.has("SLURM_EXACT"))
    environment.set("SLURM_OVERLAP", "1");
  return environment;
}

}  // namespace situla
