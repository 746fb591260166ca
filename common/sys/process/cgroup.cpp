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

const Hierarchy* find_hierarchy(const std::vector<Hierarchy>& mounted, std::string_view controllers) {
  for (const Hierarchy& hierarchy : mounted) {
    if (hierarchy.v2 != controllers.empty()) continue;
    if (hierarchy.v2) return &hierarchy;
    const auto names = split_nonempty(controllers, ',');
    const auto& options = hierarchy.options;
    if (std::all_of(names.begin(), names.end(), [&](std::string_view name) {
          return std::find(options.begin(), options.end(), name) != options.end();
        }))
      return &hierarchy;
  }
  return nullptr;
}

}  // namespace

Result<std::string> cgroups_of(int proc_fd) {
  TRY_ASSIGN(const UniqueFd listing, open_file_at(proc_fd, "cgroup", O_RDONLY));
  return read_all(listing.get(), kMaxProcBytes);
}

namespace {

struct Place {
  std::string root;       ///< mount point of the hierarchy
  std::string top;        ///< path of the cgroup that is mounted there; empty: the first
  std::string directory;  ///< of the cgroup
};

/// Of one line of /proc/PID/cgroup, "hierarchy-id:controllers:path" (cgroups(7)); nullopt: not mounted.
std::optional<Place> place_of(const std::vector<Hierarchy>& mounted, std::string_view line) {
  const auto id = cut(line, ':');
  const auto rest = id ? cut(id->second, ':') : std::nullopt;
  if (!rest || rest->second.starts_with("/..")) return std::nullopt;
  const Hierarchy* hierarchy = find_hierarchy(mounted, rest->first);
  if (hierarchy == nullptr) return std::nullopt;
  std::string_view path = rest->second;
  // In a container the node's own hierarchy may be mounted from the container's cgroup on; paths count from the first.
  if (!path.starts_with(hierarchy->root)) return std::nullopt;
  path.remove_prefix(hierarchy->root.size());
  if (!path.empty() && path.front() != '/') return std::nullopt;
  return Place{hierarchy->mount_point, hierarchy->root, hierarchy->mount_point + std::string(path)};
}

}  // namespace

Result<bool> lives_in_cgroups(std::string_view cgroups) {
  TRY_ASSIGN(const std::string text, read_file("/proc/self/cgroup", kMaxProcBytes));
  const auto own = split_nonempty(text, '\n');
  const auto wanted = split_nonempty(cgroups, '\n');
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](std::string_view line) { return std::find(own.begin(), own.end(), line) != own.end(); });
}

Result<void> move_to_cgroups(pid_t who, std::string_view cgroups) {
  const std::string listing = "/proc/" + std::to_string(who) + "/cgroup";
  TRY_ASSIGN(const std::string before_text, read_file(listing, kMaxProcBytes));
  const auto before = split_nonempty(before_text, '\n');
  const auto lives_in = [](const std::vector<std::string_view>& lines, std::string_view line) {
    return std::find(lines.begin(), lines.end(), line) != lines.end();
  };
  const auto wanted = split_nonempty(cgroups, '\n');
  // A write that changes nothing still waits for an RCU grace period: 14 ms measured, half of a container's start.
  if (std::all_of(wanted.begin(), wanted.end(), [&](std::string_view line) { return lives_in(before, line); }))
    return {};
  TRY_ASSIGN(const auto mounted, mounted_hierarchies());
  for (const std::string_view line : wanted) {
    if (lives_in(before, line)) continue;
    const auto place = place_of(mounted, line);
    if (!place)
      return fail(ErrorKind::not_found, "move process into cgroup " + std::string(line) + ": not mounted here");
    TRY_ASSIGN(const UniqueFd procs, open_file(place->directory + "/cgroup.procs", O_WRONLY));
    TRY_CONTEXT("move process into " + place->directory, write_all(procs.get(), std::to_string(who)));
  }
  TRY_ASSIGN(const std::string after_text, read_file(listing, kMaxProcBytes));
  const auto after = split_nonempty(after_text, '\n');
  for (const std::string_view line : wanted)
    if (!lives_in(after, line))
      return fail(ErrorKind::failure, "move process into cgroup " + std::string(line) + ": it lives elsewhere");
  return {};
}

std::optional<std::string> cgroup_directory(std::string_view line) {
  const auto mounted = mounted_hierarchies();
  const auto place = mounted ? place_of(*mounted, line) : std::nullopt;
  return place ? std::optional<std::string>(place->directory) : std::nullopt;
}

std::optional<std::string> cgroup_top(std::string_view line) {
  const auto mounted = mounted_hierarchies();
  const auto place = mounted ? place_of(*mounted, line) : std::nullopt;
  return place ? std::optional<std::string>(place->top) : std::nullopt;
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

bool kill_cgroups(std::string_view cgroups, std::string_view name) {
  const auto mounted = mounted_hierarchies();
  if (!mounted) return true;
  const std::string component = "/" + std::string(name);
  size_t found = 0;
  for (const std::string_view line : split_nonempty(cgroups, '\n')) {
    const auto place = place_of(*mounted, line);
    if (!place) continue;
    const size_t at = place->directory.find(component);
    if (at == std::string::npos) continue;
    const size_t end = at + component.size();
    if (end == place->directory.size() || place->directory[end] == '/')
      found += kill_members(place->directory.substr(0, end));
  }
  return found == 0;
}

bool remove_empty_cgroups(std::string_view cgroups, std::string_view name) {
  const auto mounted = mounted_hierarchies();
  if (!mounted) return true;
  bool gone = true;
  for (const std::string_view line : split_nonempty(cgroups, '\n')) {
    auto place = place_of(*mounted, line);
    if (!place) continue;
    // Version 2: what was in the job was in a leaf of ours.
    if (const std::string leaf = "/" + std::string(name) + "/situla"; place->directory.ends_with(leaf)) {
      if (rmdir(place->directory.c_str()) != 0 && errno != ENOENT) gone = false;
      place->directory.resize(place->directory.rfind('/'));
    }
    if (!place->directory.ends_with("/" + std::string(name))) continue;
    // Slurm's lock, without which a parent could go while it makes the child for a new step (cgroup_common.c).
    auto root = open_file(place->root, O_RDONLY | O_DIRECTORY);
    if (!root) continue;
    const auto lock = FileLock::acquire(std::move(*root), FileLock::Kind::exclusive, kLockLimit, place->root);
    if (!lock)
      gone = false;
    else if (rmdir(place->directory.c_str()) == 0)
      (void)rmdir(place->directory.substr(0, place->directory.rfind('/')).c_str());
    else
      gone = gone && errno == ENOENT;
  }
  return gone;
}

}  // namespace situla
