// What did the user ask for, with options and with variables? COMPAT.md section 1.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/container_spec.hpp"
#include "common/spec/resolved_environment.hpp"
#include "plugin/option_table.hpp"

namespace situla {

/// Collects option values and makes a ContainerSpec. The command line wins over variables of the environment, and these
/// over an environment file; mounts and devices of the file and of an option add up. The same class runs in
/// srun/sbatch/salloc and again on the node.
class ContainerOptions {
 public:
  using Lookup = std::function<std::optional<std::string>(const std::string& name)>;

  /// One use of an option. The value is checked here, so that a slip is reported before the job is queued.
  Result<void> set(const OptionInfo& option, std::string_view value);
  /// SITULA_CONTAINER_X, else PYXIS_CONTAINER_X, for every option not given; whole option, no merging.
  Result<void> apply_environment(const Lookup& lookup);
  /// The value of --environment; and what its files say.
  [[nodiscard]] std::optional<std::string> environment() const;
  void use(std::optional<ResolvedEnvironment> resolved) { file_ = std::move(resolved); }
  /// In sbatch and salloc: ErrorKind::usage for what is said of a step alone.
  [[nodiscard]] Result<void> check_for_allocation() const;
  /// srun in a container: its tasks run in one like it (kSameContainerVariable), unless they are told otherwise on the
  /// command line.
  Result<void> use_outer_container(const Lookup& lookup);
  /// The container wanted, or nullopt: then warnings() says what was given in vain.
  [[nodiscard]] Result<std::optional<ContainerSpec>> finish() const;
  /// "ignoring --container-X because neither ...", one line each; with a container, variables that are no yes or no.
  [[nodiscard]] std::vector<std::string> warnings() const;

  // options_relay.cpp: what Slurm does not carry from sbatch and salloc to srun, and from there to the nodes

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
  /// In a srun inside a job: what --environment of sbatch or salloc came to there.
  void inherit_environment(const Lookup& lookup);
  /// Whether that was inherited, and is what this srun's --environment names.
  [[nodiscard]] bool has_environment_of_job() const;
  /// On the node: takes such a sum in place of its last part, which Slurm has handed on.
  void apply_sums(const Lookup& lookup);

  // Of the parts of a heterogeneous srun: plugin/parts.hpp

  /// On the client, after a part: set() begins the next one.
  void end_part();
  /// On the client, when a part's options are known: with those of the parts before, but for --no-container, what it
  /// came to, for the node. What the whole job was given (inherit_sums()) no part was given.
  void take_from_parts_before();
  [[nodiscard]] std::string part() const;
  /// On the node: what part() said, in place of all that Slurm has handed on.
  Result<void> use_part(std::string_view text);

 private:
  [[nodiscard]] bool given(const char* name) const;
  void begin_part();
  /// The specification before what was given is put into it.
  [[nodiscard]] Result<ContainerSpec> beneath_options() const;
  /// An image or a name, from the command line or the environment.
  [[nodiscard]] bool wants_container() const;

  /// By their rows, which makes the order that of the table.
  std::map<const OptionInfo*, std::string> values_;
  std::set<const OptionInfo*> repeated_;  ///< added up from several uses
  /// values_ and repeated_ of the parts before.
  std::map<const OptionInfo*, std::string> before_;
  std::set<const OptionInfo*> repeated_before_;
  /// Where each part begins; and what Slurm's calls for the job's options make of it.
  std::map<const OptionInfo*, std::string> job_sums_, of_job_;
  std::map<const OptionInfo*, std::string> defaults_;
  std::vector<std::string> ignored_;  ///< what apply_environment() could not use
  std::optional<ResolvedEnvironment> file_;
  std::optional<ContainerSpec> outer_;
};

}  // namespace situla
