#include "hooks/slurm/nested.hpp"

#include <algorithm>
#include <array>

#include "common/base/text.hpp"
#include "common/protocol/slurm_inside.hpp"
#include "common/spec/image_reference.hpp"

namespace situla {
namespace {

/// How options of sbatch and salloc reach the steps of their job.
constexpr std::array<std::string_view, 3> kRelayed = {"_SLURM_SPANK_OPTION_", "SLURM_SPANK_", "SLURM_SITULA_"};
/// Defaults of options: said of the container that is there, unless they were set in it.
constexpr std::array<std::string_view, 2> kDefaults = {"SITULA_CONTAINER_", "PYXIS_CONTAINER_"};
/// ld.so(8), "Secure-execution mode".
constexpr std::array<std::string_view, 8> kOfLinker = {"LD_",          "GCONV_PATH", "GETCONF_DIR",    "LOCPATH",
                                                       "MALLOC_TRACE", "NLSPATH",    "GLIBC_TUNABLES", "TZDIR"};
/// Where something is, outside, and what shells there read.
constexpr std::array<std::string_view, 16> kPlaces = {"PATH",
                                                      "HOME",
                                                      "SHELL",
                                                      "USER",
                                                      "LOGNAME",
                                                      "TMPDIR",
                                                      "XDG_RUNTIME_DIR",
                                                      "PWD",
                                                      "XDG_CONFIG_HOME",
                                                      "XDG_DATA_HOME",
                                                      "XDG_CACHE_HOME",
                                                      "PYTHONHOME",
                                                      "BASH_ENV",
                                                      "ENV",
                                                      "EDF_PATH",
                                                      "ENROOT_CONFIG_PATH"};

/// Beneath the job's directory; `~` and `$NAME` are what they are outside, where they are looked at again.
void make_absolute(std::string& path, const std::string& directory) {
  if (!path.empty() && path[0] != '/' && path[0] != '~' && path[0] != '$') path = directory + "/" + path;
}

/// What was said to the step that is there, and not to what is begun in it. An allocation made in it has its own.
bool is_of_outer_step(std::string_view name, std::string_view value, const Environment& outside, bool own_job) {
  if (name == kSlurmInsideVariable || name == kSameContainerVariable || name.starts_with(kKeptPrefix)) return true;
  if (own_job && starts_with_one_of(name, kRelayed)) return true;
  return starts_with_one_of(name, kDefaults) && outside.get(name) == value;
}

Environment for_same_container(const Environment& inside, const Environment& outside, bool own_job) {
  Environment environment;
  for (const auto& [name, value] : outside.entries())
    if (!is_of_slurm(name) && !starts_with_one_of(name, kDefaults)) environment.set(name, value);
  environment.set(kKeptPrefix, "1");
  for (const auto& [name, value] : inside.entries()) {
    if (is_of_outer_step(name, value, outside, own_job)) continue;
    if (name == "SLURM_EXPORT_ENV" || name == "SRUN_EXPORT_ENV")
      environment.set(name, kept_export(value));
    else if (is_of_slurm(name) || starts_with_one_of(name, kDefaults))
      environment.set(name, value);
    else if (!is_of_task(name))
      environment.set(std::string(kKeptPrefix) + name, value);
  }
  return environment;
}

Environment for_host(const Environment& inside, const Environment& outside, bool own_job) {
  Environment environment;
  for (const auto& [name, value] : inside.entries())
    if (!is_of_outer_step(name, value, outside, own_job) && !starts_with_one_of(name, kOfLinker))
      environment.set(name, value);
  for (const std::string_view name : kPlaces)
    if (const auto value = outside.get(name))
      environment.set(name, *value);
    else
      environment.unset(name);
  // What the job's own modules have set for programs of the host.
  for (const auto& [name, value] : outside.entries())
    if (starts_with_one_of(name, kOfLinker)) environment.set(name, value);
  return environment;
}

}  // namespace

ContainerSpec same_container(const OuterContainer& outer, const std::string& workdir) {
  ContainerSpec spec = outer.spec;
  if (image_kind(spec.image) == ImageKind::path) make_absolute(spec.image, outer.directory);
  if (const auto files = FileReference::parse(spec.image)) {
    std::string path = files->path;
    make_absolute(path, outer.directory);
    spec.image.replace(spec.image.find(':') + 1, files->path.size(), path);
  }
  const auto reference = ImageReference::parse(spec.image);
  const bool may_move = reference && image_kind(spec.image) == ImageKind::registry && !reference->digest;
  if (may_move && spec.pinned.empty()) spec.pinned = outer.digest;
  spec.save.clear();
  spec.directory.clear();
  spec.name_flag = NameFlag::automatic;
  spec.progress = {};
  std::erase_if(spec.mounts, [](const MountOption& mount) { return mount.kind == MountOption::Kind::script; });
  for (MountOption& mount : spec.mounts)
    if (mount.kind == MountOption::Kind::bind && !is_registry_image(mount.source))
      make_absolute(mount.source, outer.directory);
  spec.workdir = workdir;
  return spec;
}

Environment host_environment(bool same, const Environment& inside, const Environment& outside,
                             const std::string& slurm_conf) {
  const bool own_job = inside.get_or("SLURM_JOB_ID", "") == outside.get_or("SLURM_JOB_ID", "");
  Environment environment = same ? for_same_container(inside, outside, own_job) : for_host(inside, outside, own_job);
  environment.unset("SLURM_CONF");
  if (const auto value = outside.get("SLURM_CONF"))
    environment.set("SLURM_CONF", *value);
  else if (!slurm_conf.empty())
    environment.set("SLURM_CONF", slurm_conf);
  return environment;
}

bool has_dropped_image(const Environment& inside, const Environment& outside) {
  constexpr std::array<std::string_view, 2> kVariables = {"SLURM_SPANK__SLURM_SPANK_OPTION_situla_container_image",
                                                          "SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_container_image"};
  return std::any_of(kVariables.begin(), kVariables.end(),
                     [&](std::string_view name) { return outside.has(name) && !inside.has(name); });
}

std::string kept_export(std::string_view value) {
  std::string kept;
  char quote = 0;
  bool begins = true;
  for (size_t i = 0; i < value.size(); ++i) {
    if (begins) {
      const size_t end = std::min(value.find_first_of(",=", i), value.size());
      const std::string_view word = value.substr(i, end - i);
      const std::string meant = to_lower(word);  // as Slurm reads it
      if (meant != "all" && meant != "none" && meant != "nil" && !is_of_task(word)) kept += kKeptPrefix;
    }
    const char letter = value[i];
    begins = letter == ',' && quote == 0;
    if (quote != 0 && letter == quote)
      quote = 0;
    else if (quote == 0 && (letter == '\'' || letter == '"'))
      quote = letter;
    kept += letter;
  }
  return kept;
}

}  // namespace situla
