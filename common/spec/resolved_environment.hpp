// What does an environment file (--environment) come to? What `situla environment resolve` tells the plugin, as text.
#pragma once

#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/container_spec.hpp"

namespace situla {

/// Carries a ResolvedEnvironment from srun, sbatch and salloc to the node, and from a job to its steps. --export=NONE
/// leaves variables out, but not those that begin with SLURM_.
constexpr const char* kResolvedVariable = "SLURM_SITULA_ENVIRONMENT";

/// An entry of --container-mounts, and what says it: "/home/me/.edf/torch.toml:4: mounts".
struct MountOfFile {
  std::string entry, origin;

  static auto fields(auto& own) { return std::tie(own.entry, own.origin); }
  friend bool operator==(const MountOfFile&, const MountOfFile&) = default;
};

/// Files combined, references replaced. The values are those of the --container-* options of srun.
struct ResolvedEnvironment {
  std::string name;   ///< as given to --environment
  std::string image;  ///< empty: the files name none
  std::string workdir;
  std::vector<MountOfFile> mounts;
  std::vector<std::string> devices;    ///< entries of --container-devices
  std::vector<std::string> variables;  ///< ContainerSpec::variables
  bool writable = true, entrypoint = true;
  std::vector<std::string> warnings;  ///< for the user, once

  static auto fields(auto& own) {
    return std::tie(own.name, own.image, own.workdir, own.mounts, own.devices, own.variables, own.writable,
                    own.entrypoint, own.warnings);
  }

  /// Into a specification that says nothing yet. Everything is checked: on the node it comes from a user.
  Result<void> apply(ContainerSpec& spec) const;

  /// One line of printable characters. ErrorKind::usage where it would be too long for a variable.
  [[nodiscard]] Result<std::string> to_text() const;
  /// ErrorKind::corrupt for anything else.
  static Result<ResolvedEnvironment> from_text(std::string_view text);

  friend bool operator==(const ResolvedEnvironment&, const ResolvedEnvironment&) = default;
};

/// What an option adds to that of a file: mounts of the file whose target it names, too, give way to it; devices are
/// replaced by "none".
void add_to_those_of_file(ContainerSpec& spec, std::vector<MountOption> mounts, std::vector<std::string> devices);

}  // namespace situla
