// How does a helper come to live in the job's cgroup, so that its memory and CPU time are the job's and not the node's?
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// One line of such a text, "hierarchy-id:controllers:path" (cgroups(7)). Views of it.
struct CgroupLine {
  std::string_view head;         ///< "5:freezer:"
  std::string_view controllers;  ///< "cpu,cpuacct"; empty in version 2
  std::string_view path;

  [[nodiscard]] bool v2() const { return head.starts_with("0::"); }
  [[nodiscard]] std::string text() const { return std::string(head) + std::string(path); }
  /// Of the same hierarchy.
  [[nodiscard]] CgroupLine at(std::string_view other_path) const { return {head, controllers, other_path}; }
};
std::vector<CgroupLine> cgroup_lines(std::string_view cgroups);

/// Up to and with a component of a path ("/job_7"); nullopt: it has none.
std::optional<std::string_view> cut_after(std::string_view path, std::string_view component);

struct CgroupDirectory {
  std::string root;  ///< where its hierarchy is mounted
  std::string top;   ///< the uppermost of its cgroups that can be seen there; empty when it is the first
  std::string path;
};
/// nullopt: that hierarchy is not mounted here, or not that part.
Result<std::optional<CgroupDirectory>> find_cgroup(const CgroupLine& line);

/// Whether the kernel has killed a process in one of them, or beneath, because no memory was left there.
bool memory_ran_out(std::string_view cgroups);

/// Whether the processes of one of them, or of one above it, are being stopped or stand still.
bool is_frozen(std::string_view cgroups);

/// stopping: where they cannot be killed at once (before Linux 5.14), they are stopped first, so that none of them
/// begins others meanwhile. Should this process be killed in that moment, they stay stopped.
enum class KillBy { list, stopping };
/// SIGKILL to every process that lives in, or beneath, the cgroups of this text whose name is `name` ("job_7"), but for
/// this one and those that have started it. True when there is none left.
bool kill_cgroups(std::string_view cgroups, std::string_view name, KillBy way = KillBy::list);

/// Removes the cgroups of this text whose name is `name` ("job_7"), or is `situla` beneath that, unless they have
/// processes or cgroups beneath them, and then their parent likewise ("uid_1000"). True when none of them is left but
/// where this process, or one that has started it, lives.
bool remove_empty_cgroups(std::string_view cgroups, std::string_view name);
/// Removes those above the cgroup of this line, up to and with the one whose name is `name`, as far as they are empty.
void remove_empty_parents(const CgroupLine& line, std::string_view name);

}  // namespace situla
