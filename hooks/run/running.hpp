// Which processes run in which containers? COMPAT.md section 3, `list --fancy`. Nothing is recorded anywhere: the
// kernel knows.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "common/base/result.hpp"

namespace situla {

/// The source of a container's overlay, as mountinfo shows it: how its processes are recognised from outside. `path` is
/// ENROOT_DATA_PATH/NAME; none for a container without a name.
std::string root_mark(const std::optional<std::string>& path);

/// The oldest process of a mount namespace whose root is a container, as ps(1) shows it.
struct RunningProcess {
  std::optional<std::string> container;  ///< path, one of those asked for; none: a container without a name
  pid_t pid = 0;
  std::string comm, state, command;  ///< state: ps(1) STAT; printable
  std::chrono::system_clock::time_point started;
  std::chrono::seconds elapsed{0};
  uint64_t mount_namespace = 0, user_namespace = 0;  ///< inode numbers
};

/// Of every container whose processes the caller may look at, in the order of their age. `containers` are paths of
/// directories. A process that ends meanwhile is not listed.
Result<std::vector<RunningProcess>> running_processes(const std::vector<std::string>& containers);

}  // namespace situla
