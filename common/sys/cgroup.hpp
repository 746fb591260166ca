// How does a helper come to live in the job's cgroup, so that its memory and CPU time are the job's and not the node's?
#pragma once

#include <sys/types.h>

#include "common/base/result.hpp"

namespace situla {

/// Moves process `who` into every cgroup that process `like` is in: all v1 hierarchies and the v2 one (cgroups(7)).
/// `like_proc_fd` is an open /proc/<pid> directory, so that a recycled pid cannot be meant. Hierarchies that are not
/// mounted are skipped.
Result<void> move_to_cgroups_of(pid_t who, int like_proc_fd);

}  // namespace situla
