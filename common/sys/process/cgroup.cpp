#include "common/sys/process/cgroup.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount_table.hpp"
#include "common/sys/process/process.hpp"

namespace situla {
namespace {

constexpr size_t kMaxProcBytes = size_t{4} << 20U;
constexpr std::chrono::seconds kLockLimit{5};

struct Hierarchy {
  std::string mount_point;
  std::string root;  ///< which of its cgroups is mounted there; empty: its first
  bool v2 = false;
  std::vector<std::string> options;  ///< v1: controllers, or name=NAME
};

Result<std::vector<Hierarchy>> mounted_hierarchies() {
  TRY_ASSIGN(const std::vector<MountRecord> mounts, mount_table());
  std::vector<Hierarchy> found;
  for (const MountRecord& mount : mounts) {
    if ((mount.type != "cgroup" && mount.type != "cgroup2") || mount.root.starts_with("/..")) continue;
    Hierarchy hierarchy{mount.path, mount.root == "/" ? "" : mount.root, mount.type == "cgroup2", {}};
    for (const std::string_view option : split_nonempty(mount.options, ',')) hierarchy.options.emplace_back(option);
    found.push_back(std::move(hierarchy));
  }
  return found;
}

template <typename Lines>
bool has_all(const Lines& lines, const std::vector<std::string_view>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](std::string_view line) { return std::find(lines.begin(), lines.end(), line) != lines.end(); });
}

const Hierarchy* find_hierarchy(const std::vector<Hierarchy>& mounted, const CgroupLine& line) {
  const auto names = split_nonempty(line.controllers, ',');
  for (const Hierarchy& hierarchy : mounted)
    if (hierarchy.v2 == line.controllers.empty() && (hierarchy.v2 || has_all(hierarchy.options, names)))
      return &hierarchy;
  return nullptr;
}

}  // namespace

Result<std::string> cgroups_of(int proc_fd) {
  TRY_ASSIGN(const UniqueFd listing, open_file_at(proc_fd, "cgroup", O_RDONLY));
  return read_all(listing.get(), kMaxProcBytes);
}

std::vector<CgroupLine> cgroup_lines(std::string_view cgroups) {
  std::vector<CgroupLine> lines;
  for (const std::string_view text : split_nonempty(cgroups, '\n')) {
    const auto id = cut(text, ':');
    const auto rest = id ? cut(id->second, ':') : std::nullopt;
    if (rest) lines.push_back({text.substr(0, text.size() - rest->second.size()), rest->first, rest->second});
  }
  return lines;
}

std::optional<std::string_view> cut_after(std::string_view path, std::string_view component) {
  for (size_t at = path.find(component); at != std::string_view::npos; at = path.find(component, at + 1)) {
    const size_t end = at + component.size();
    if (end == path.size() || path[end] == '/') return path.substr(0, end);
  }
  return std::nullopt;
}

namespace {

std::optional<CgroupDirectory> find_in(const std::vector<Hierarchy>& mounted, const CgroupLine& line) {
  const Hierarchy* hierarchy = line.path.starts_with("/..") ? nullptr : find_hierarchy(mounted, line);
  // In a container the node's own hierarchy may be mounted from the container's cgroup on; paths count from the first.
  if (hierarchy == nullptr || !line.path.starts_with(hierarchy->root)) return std::nullopt;
  const std::string_view path = line.path.substr(hierarchy->root.size());
  if (!path.empty() && path.front() != '/') return std::nullopt;
  return CgroupDirectory{hierarchy->mount_point, hierarchy->root, hierarchy->mount_point + std::string(path)};
}

/// Those of `cgroups` that a listing (/proc/PID/cgroup) does not have.
Result<std::string> missing_in(const std::string& listing, std::string_view cgroups) {
  TRY_ASSIGN(const std::string text, read_file(listing, kMaxProcBytes));
  const auto lives_in = split_nonempty(text, '\n');
  std::string missing;
  for (const std::string_view line : split_nonempty(cgroups, '\n'))
    if (!has_all(lives_in, {line})) missing += std::string(line) + "\n";
  return missing;
}

}  // namespace

Result<std::optional<CgroupDirectory>> find_cgroup(const CgroupLine& line) {
  TRY_ASSIGN(const auto mounted, mounted_hierarchies());
  return find_in(mounted, line);
}

Result<bool> lives_in_cgroups(std::string_view cgroups) {
  TRY_ASSIGN(const std::string missing, missing_in("/proc/self/cgroup", cgroups));
  return missing.empty();
}

Result<void> move_to_cgroups(pid_t who, std::string_view cgroups) {
  const std::string listing = "/proc/" + std::to_string(who) + "/cgroup";
  // A write that changes nothing still waits for an RCU grace period: 14 ms measured, half of a container's start.
  TRY_ASSIGN(const std::string wanted, missing_in(listing, cgroups));
  if (wanted.empty()) return {};
  TRY_ASSIGN(const auto mounted, mounted_hierarchies());
  for (const CgroupLine& line : cgroup_lines(wanted)) {
    const auto place = find_in(mounted, line);
    if (!place) return fail(ErrorKind::not_found, "move process into cgroup " + line.text() + ": not mounted here");
    TRY_ASSIGN(const UniqueFd procs, open_file(place->path + "/cgroup.procs", O_WRONLY));
    TRY_CONTEXT("move process into " + place->path, write_all(procs.get(), std::to_string(who)));
  }
  TRY_ASSIGN(const std::string left, missing_in(listing, cgroups));
  if (left.empty()) return {};
  return fail(ErrorKind::failure,
              "move process into cgroup " + left.substr(0, left.find('\n')) + ": it lives elsewhere");
}

namespace {

/// How many there were, in the cgroup and beneath it.
size_t kill_members(const std::string& directory) {
  size_t found = 0;
  if (const auto listed = read_file(directory + "/cgroup.procs", kMaxProcBytes))
    for (const std::string_view word : split_nonempty(*listed, '\n')) {
      const auto pid = parse_unsigned(word);
      if (!pid || *pid <= 1) continue;
      ++found;
      const auto pidfd = open_pidfd(static_cast<pid_t>(*pid));
      // It may have ended and its number be another's: only who is listed still, while we hold it, is meant.
      const auto again = read_file(directory + "/cgroup.procs", kMaxProcBytes);
      const auto members = again ? split_nonempty(*again, '\n') : std::vector<std::string_view>();
      if (std::find(members.begin(), members.end(), word) == members.end()) continue;
      if (pidfd)
        (void)signal_pidfd(pidfd->get(), SIGKILL);
      else
        (void)kill(static_cast<pid_t>(*pid), SIGKILL);  // Linux < 5.3
    }
  if (const auto names = list_directory(directory))
    for (const std::string& name : *names) {
      struct stat info {};
      const std::string path = directory + "/" + name;
      if (lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) found += kill_members(path);
    }
  return found;
}

}  // namespace

bool memory_ran_out(std::string_view cgroups) {
  for (const CgroupLine& line : cgroup_lines(cgroups)) {
    const auto controllers = split_nonempty(line.controllers, ',');
    if (!line.v2() && std::find(controllers.begin(), controllers.end(), "memory") == controllers.end()) continue;
    const auto found = find_cgroup(line);
    if (!found || !*found) continue;
    // Absent where the memory is not limited, and in version 1 before Linux 4.13 without a number.
    const auto events =
        read_file((*found)->path + (line.v2() ? "/memory.events" : "/memory.oom_control"), kMaxProcBytes);
    if (!events) continue;
    for (const std::string_view event : split_nonempty(*events, '\n'))
      if (event.starts_with("oom_kill ") && event != "oom_kill 0") return true;
  }
  return false;
}

bool kill_cgroups(std::string_view cgroups, std::string_view name) {
  const auto mounted = mounted_hierarchies();
  if (!mounted) return false;
  size_t found = 0;
  for (const CgroupLine& line : cgroup_lines(cgroups)) {
    const auto place = find_in(*mounted, line);
    if (const auto named = place ? cut_after(place->path, "/" + std::string(name)) : std::nullopt)
      found += kill_members(std::string(*named));
  }
  return found == 0;
}

bool remove_empty_cgroups(std::string_view cgroups, std::string_view name) {
  const auto mounted = mounted_hierarchies();
  if (!mounted) return false;
  bool gone = true;
  for (const CgroupLine& line : cgroup_lines(cgroups)) {
    auto place = find_in(*mounted, line);
    if (!place) continue;
    // Version 2: what was in the job was in a leaf of ours.
    if (const std::string leaf = "/" + std::string(name) + "/situla"; place->path.ends_with(leaf)) {
      if (rmdir(place->path.c_str()) != 0 && errno != ENOENT) gone = false;
      place->path.resize(place->path.rfind('/'));
    }
    if (!place->path.ends_with("/" + std::string(name))) continue;
    // Slurm's lock, without which a parent could go while it makes the child for a new step (cgroup_common.c).
    auto root = open_file(place->root, O_RDONLY | O_DIRECTORY);
    if (!root) continue;
    const auto lock = FileLock::acquire(std::move(*root), FileLock::Kind::exclusive, kLockLimit, place->root);
    if (!lock)
      gone = false;
    else if (rmdir(place->path.c_str()) == 0)
      (void)rmdir(place->path.substr(0, place->path.rfind('/')).c_str());
    else
      gone = gone && errno == ENOENT;
  }
  return gone;
}

}  // namespace situla
