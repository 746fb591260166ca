// What container does this step want? Everything the user said in options and environment, parsed once. COMPAT.md
// section 1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/mount_option.hpp"
#include "common/spec/progress_view.hpp"

namespace situla {

/// unset: follow the enroot configuration of the user and site.
enum class Tristate : uint8_t { unset, no, yes };
constexpr Tristate last_of(Tristate) {
  return Tristate::yes;
}

/// Namespaces that a container has beside its user, mount and cgroup namespace.
struct Isolation {
  bool pid = false, net = false, ipc = false, uts = false;

  static auto fields(auto& own) { return std::tie(own.pid, own.net, own.ipc, own.uts); }
  friend bool operator==(const Isolation&, const Isolation&) = default;
};

/// The FLAG of --container-name=NAME:FLAG.
enum class NameFlag : uint8_t {
  automatic,  ///< join the container if it runs, start it if it exists, else make it
  create,     ///< make it; there must be none
  exec,       ///< join it; it must be running
  no_exec,    ///< start or make it, never join
};
constexpr NameFlag last_of(NameFlag) {
  return NameFlag::no_exec;
}

struct ContainerSpec {
  std::string image;      ///< as typed; see image_kind(); empty = none
  std::string pinned;     ///< what its tag means for all nodes of the job, "sha256:..."; empty: each node asks
  std::string name;       ///< --container-name, as typed; empty = none
  std::string directory;  ///< of that name, beneath ENROOT_DATA_PATH (COMPAT.md 1, "Names on disk")
  NameFlag name_flag = NameFlag::automatic;
  std::string save;  ///< --container-save: path on the node, relative to the job's directory; empty = none
  std::vector<MountOption> mounts;
  std::string workdir;                ///< empty = the image's WORKDIR, else "/"
  std::vector<std::string> keep_env;  ///< --container-env: names that keep the host's value
  /// Of an environment file: "NAME=VALUE", whose references (expand_references()) mean the image's and then the job's
  /// variables; without a VALUE the container and its tasks have none.
  std::vector<std::string> variables;
  std::string resolve;               ///< --container-resolve: a text of ResolveRule; empty: the site's rule
  std::vector<std::string> devices;  ///< --container-devices: CDI names; "none" alone: none; empty: the site's
  Tristate mount_home = Tristate::unset;
  Tristate remap_root = Tristate::unset;
  Tristate writable = Tristate::unset;
  Tristate entrypoint = Tristate::unset;  ///< unset: follow plugstack.conf
  bool entrypoint_log = false;
  bool prefetch = false;     ///< --container-prefetch: the image is fetched, and the tasks run outside of it
  bool slurm_inside = true;  ///< not --no-slurm-inside: srun and its like work in the container
  Isolation unshare;
  ProgressView progress;  ///< of an import

  static auto fields(auto& spec) {
    return std::tie(spec.image, spec.pinned, spec.name, spec.directory, spec.name_flag, spec.save, spec.mounts,
                    spec.workdir, spec.keep_env, spec.variables, spec.resolve, spec.devices, spec.mount_home,
                    spec.remap_root, spec.writable, spec.entrypoint, spec.entrypoint_log, spec.prefetch,
                    spec.slurm_inside, spec.unshare, spec.progress);
  }

  /// The image to be got: its name, and the digest in `pinned`.
  [[nodiscard]] std::string exact_image() const;

  /// A versioned byte string for the way plugin -> builder; deserialize() trusts nothing and reports
  /// ErrorKind::corrupt.
  [[nodiscard]] std::string serialize() const;
  static Result<ContainerSpec> deserialize(std::string_view bytes);

  friend bool operator==(const ContainerSpec&, const ContainerSpec&) = default;
};

}  // namespace situla
