// How does a helper come to live in the job's cgroup, so that its memory and CPU time are the job's and not the node's?
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "common/base/result.hpp"

namespace situla {

/// The cgroups of a process: its /proc/<pid>/cgroup, by an open /proc/<pid>, so that a recycled pid cannot be meant.
Result<std::string> cgroups_of(int proc_fd);

/// Whether this process lives in each of them already.
Result<bool> lives_in_cgroups(std::string_view cgroups);

/// Moves process `who` into each of them, all v1 hierarchies and the v2 one (cgroups(7)), and reads back that it lives
/// there. An error when it does not, in whatever hierarchy; then it may have been moved in others.
Result<void> move_to_cgroups(pid_t who, std::string_view cgroups);

/// Where one line of such a text is a directory: a path. None: that hierarchy is not mounted here, or not that part.
std::optional<std::string> cgroup_directory(std::string_view line);

/// The path of the uppermost cgroup of its hierarchy that can be seen here; empty when it is the first.
std::optional<std::string> cgroup_top(std::string_view line);

/// SIGKILL to every process that lives in, or beneath, the cgroups of this text whose name is `name` ("job_7"). True
/// when there is none left.
bool kill_cgroups(std::string_view cgroups, std::string_view name);

/// Removes the cgroups of this text whose name is `name` ("job_7"), or is `situla` beneath that, unless they have
/// processes or cgroups beneath them, and then their parent likewise ("uid_1000"). True when none of them is left.
bool remove_empty_cgroups(std::string_view cgroups, std::string_view name);

}  // namespace situla
