// How does the broker start a process? In one way: into its cgroup first, then as whom it is to run, then a program
// that was opened when the broker started.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/mount/id_maps.hpp"
#include "common/sys/process/process.hpp"
#include "plugin/broker/node/cgroup_place.hpp"

namespace situla {

/// A child and the socket to talk to it.
struct Helper {
  Child process;
  UniqueFd socket;
};

/// What the broker starts.
enum class Program { builder, importer, saver, inventory, store, courier, recorder, slurm_proxy };

/// As whom it runs. Whom it becomes, it stays.
enum class Rights {
  root,     ///< for situla-inventory alone
  user,     ///< the job's user: no capabilities outside of namespaces of its own
  service,  ///< an account of Situla's, or whoever situla-recorder is: no capability ever, no_new_privs
  reader,   ///< the job's user with CAP_DAC_READ_SEARCH, for situla-courier alone
};

/// There is no way to leave out where it lives.
struct Launch {
  Program program;
  std::vector<std::string> arguments;  ///< without the program's name
  CgroupPlace place;
  Identity who;
  Rights rights = Rights::user;
  std::vector<std::pair<int, int>> fds{};  ///< {descriptor here, number there}; all others are closed
  /// In the child, as root, in its cgroup already: mount namespaces.
  std::function<Result<void>()> prepare{};
  /// In the child, as who it is by then: a directory that only the user may enter (NFS with root squash) works, one
  /// that is not the user's does not.
  std::string directory = "/";
  bool die_with_parent = true;
  bool own_pid_namespace = false;  ///< whatever it starts, or the user makes of it, ends with it, and with us
  /// RootOperation::write_id_maps: it begins in a user namespace of its own with those maps, and has all capabilities
  /// in it. Where none can be made, it does not.
  std::optional<IdMaps> id_maps{};
};

/// What every process needs that starts others. The programs are held open from the broker's start to its end: neither
/// what a job mounts nor an upgrade in the middle of a step changes what is started. Those that others than root (or
/// whoever owns the broker's own file) may write are refused.
class Launcher {
 public:
  /// An error of NodeCgroups is one of own_cgroups.
  static Result<Launcher> open(Result<NodeCgroups> cgroups);

  /// The child says what goes wrong before it executes the program: as a Failure through the socket, or in the log.
  [[nodiscard]] Result<Child> launch(const Launch& what) const;
  /// The same with a socket to it, as descriptor `number` there. Ours does not block: a user who holds the other end,
  /// and neither reads nor closes it, must not stop us.
  [[nodiscard]] Result<Helper> launch_helper(Launch what, int number) const;

  NodeCgroups cgroups;

 private:
  explicit Launcher(NodeCgroups entered) : cgroups(std::move(entered)) {}
  std::array<Result<UniqueFd>, 8> programs_;
};

}  // namespace situla
