// Which options does the plugin add to srun, sbatch and salloc, and what did the user ask for with them? COMPAT.md
// section 1.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/container_spec.hpp"

namespace situla {

enum class OptionId : int {
  image,
  mounts,
  workdir,
  name,
  save,
  mount_home,
  no_mount_home,
  remap_root,
  no_remap_root,
  entrypoint,
  no_entrypoint,
  entrypoint_log,
  writable,
  readonly,
  env,
  unshare,
  devices,
};

/// One row of the option table. Strings are literals: Slurm keeps the pointers.
struct OptionInfo {
  OptionId id;
  const char* name;      ///< without the leading dashes
  const char* argument;  ///< placeholder in --help; nullptr: the option takes none
  const char* usage;
};
std::span<const OptionInfo> option_table();

/// Collects option values, from the command line first and from the environment for what is missing, and makes a
/// ContainerSpec. The same class runs in srun/sbatch/salloc and again on the node.
class ContainerOptions {
 public:
  using Lookup = std::function<std::optional<std::string>(const std::string& name)>;

  /// One use of an option. The value is checked here, so that a slip is reported before the job is queued.
  Result<void> set(OptionId id, std::string_view value);
  /// Slurm hands on to the node an option's last use only. On the client: what the options that add up came to, for the
  /// job's environment; an empty value removes the variable, which is an outer job's.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> sums() const;
  /// On the client, before any option: what an outer job had, of which Slurm calls back with the last use, too.
  void inherit_sums(const Lookup& lookup);
  /// On the node, for a batch script: with --export=NONE or a list, sbatch's options reach slurmstepd only in variables
  /// that Slurm means for other scripts, and the job would silently run on the host.
  Result<void> apply_submitted(const Lookup& lookup);
  /// Options of sbatch and salloc reach the sruns inside in variables of Slurm that carry the plugin's name. Scripts
  /// that do not want them unset those of pyxis. In sbatch and salloc: the same variables with that name, and their
  /// values, for spank_job_control_setenv() and the environment of salloc's shell.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> pyxis_variables() const;
  /// In srun, before options are read: the variables of ours whose counterparts of pyxis are not there any more.
  static std::vector<std::string> unset_by_script(const Lookup& lookup);
  /// On the node: takes such a sum in place of its last part, which Slurm has handed on.
  void apply_sums(const Lookup& lookup);
  /// SITULA_CONTAINER_X, else PYXIS_CONTAINER_X, for every option not given; whole option, no merging.
  Result<void> apply_environment(const Lookup& lookup);
  /// The container wanted, or nullopt: then warnings() says which options were given in vain.
  [[nodiscard]] Result<std::optional<ContainerSpec>> finish() const;
  /// "ignoring --container-X because neither ...", one line each.
  [[nodiscard]] std::vector<std::string> warnings() const;

 private:
  [[nodiscard]] bool given(OptionId id) const { return values_.contains(id); }
  /// An image or a name, from the command line or the environment.
  [[nodiscard]] bool wants_container() const;

  std::map<OptionId, std::string> values_;
  std::set<OptionId> repeated_;  ///< added up from several uses
  std::map<OptionId, std::string> defaults_;
};

}  // namespace situla
