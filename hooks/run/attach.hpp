// How does a process get inside a container that runs already? By the namespaces of one of its processes. COMPAT.md
// section 3, `exec`.
#pragma once

#include <array>
#include <string>
#include <vector>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/spec/container_spec.hpp"
#include "common/spec/environment.hpp"

namespace situla {

/// A process of a container of the calling user, held by descriptors: its number may be given to another process at any
/// moment, but what is read and joined here always belongs to the one that was looked up.
class AttachTarget {
 public:
  /// not_found: "Process not found: PID", also for one that has ended but was not waited for; denied: it belongs to
  /// another user (root included: an id of root is not mapped in a user's container); usage: it is in no container.
  /// When that one only stands in for the container's first process, the latter is meant.
  static Result<AttachTarget> open(pid_t pid);

  /// Whether it runs the container's own program, with the environment that programs of the container have: a task on
  /// its way into the container does not yet, and the image's rc runs before the container is ready.
  [[nodiscard]] bool is_at_work() const;
  /// What the process was started with. Waits while it is just executing a program. not_found: it has ended.
  [[nodiscard]] Result<Environment> environment() const;
  /// Whether the container has processes of its own: after join() only children of this process are among them.
  [[nodiscard]] bool has_own_processes() const { return static_cast<bool>(joined_[kPid]); }
  /// Whether the container's ids are those of a user namespace of its own.
  [[nodiscard]] bool has_own_ids() const { return static_cast<bool>(joined_[kUser]); }
  /// Whether these are many: chown(2) and setuid(2) work.
  [[nodiscard]] bool has_range() const;

  /// What tasks of a step need to join it, in the order of the message JoinReply: user, mount and cgroup namespace,
  /// then those of isolation(). unsupported: it has no user namespace of its own, or lacks another that every step has.
  [[nodiscard]] Result<std::vector<UniqueFd>> take_namespaces();
  [[nodiscard]] Isolation isolation() const;
  /// WORKDIR of the image, else "/".
  [[nodiscard]] std::string image_workdir() const;

  /// This single-threaded process gets the namespaces, the root and the working directory of the other one. not_found
  /// when that one ended meanwhile. After an error the process is in disorder: end it.
  [[nodiscard]] Result<void> join() const;

 private:
  /// In the order in which they are joined: the user namespace gives the rights for the others, and paths of the host
  /// are gone after the mount namespace.
  enum Kind : size_t { kUser, kCgroup, kIpc, kUts, kNet, kPid, kMount, kKinds };
  static Result<AttachTarget> open_exactly(pid_t pid);
  explicit AttachTarget(pid_t pid) : pid_(pid) {}
  Result<void> check_alive() const;
  Result<void> check_owner() const;
  Result<void> open_namespaces();

  pid_t pid_;
  UniqueFd proc_;  ///< /proc/PID: says ESRCH once the process is gone
  UniqueFd root_, directory_;
  std::array<UniqueFd, kKinds> joined_;  ///< empty: the same as ours
};

struct ExecRequest {
  pid_t pid = 0;
  std::vector<std::string> environment;  ///< -e: NAME or NAME=VALUE
  std::vector<std::string> command;      ///< not empty; looked for in the container's PATH
  Environment host;                      ///< where -e NAME takes its value from
};

/// This single-threaded process becomes the command inside the container: same terminal, process group and standard
/// descriptors, all others closed, no privilege. It returns on failure; and with the command's exit code where the
/// container has processes of its own, since then the command has to be a child.
Result<int> exec_in_container(const ExecRequest& request);

}  // namespace situla
