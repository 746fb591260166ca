#include "common/sys/process/cgroup.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <thread>
#include <utility>
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

/// This process, and those that have started it. They may live in the job whose end it is (PrologFlags=RunInJob: Slurm
/// has the job's own slurmstepd run its epilog).
std::vector<pid_t> own_line() {
  constexpr size_t kMost = 64;
  std::vector<pid_t> line;
  for (pid_t pid = getpid(); pid > 1 && line.size() < kMost;) {
    line.push_back(pid);
    // proc_pid_stat(5): "PID (NAME) STATE PPID ...", where NAME may hold anything.
    const auto text = read_file("/proc/" + std::to_string(pid) + "/stat", kMaxProcBytes);
    const size_t name_end = text ? text->rfind(')') : std::string::npos;
    if (name_end == std::string::npos) break;
    const auto words = split_nonempty(std::string_view(*text).substr(name_end + 1), ' ');
    const auto parent = words.size() > 1 ? parse_unsigned(words[1]) : std::nullopt;
    pid = static_cast<pid_t>(parent.value_or(0));
  }
  return line;
}

std::vector<pid_t> members_of(const std::string& directory) {
  std::vector<pid_t> members;
  if (const auto listed = read_file(directory + "/cgroup.procs", kMaxProcBytes))
    for (const std::string_view word : split_nonempty(*listed, '\n'))
      if (const auto pid = parse_unsigned(word); pid && *pid > 1) members.push_back(static_cast<pid_t>(*pid));
  return members;
}

bool contains(const std::vector<pid_t>& pids, pid_t pid) {
  return std::find(pids.begin(), pids.end(), pid) != pids.end();
}

std::vector<std::string> beneath(const std::string& directory) {
  std::vector<std::string> paths;
  if (const auto names = list_directory(directory))
    for (const std::string& name : *names) {
      struct stat info {};
      std::string path = directory + "/" + name;
      if (lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) paths.push_back(std::move(path));
    }
  return paths;
}

/// Whether one of them lives in the cgroup or beneath it.
bool has_any(const std::string& directory, const std::vector<pid_t>& pids) {
  const auto members = members_of(directory);
  const auto below = beneath(directory);
  return std::any_of(members.begin(), members.end(), [&](pid_t pid) { return contains(pids, pid); }) ||
         std::any_of(below.begin(), below.end(), [&](const std::string& path) { return has_any(path, pids); });
}

bool set_control(const std::string& path, std::string_view value) {
  const auto file = open_file(path, O_WRONLY);
  return file && write_all(file->get(), value);
}

/// No process of the cgroup runs meanwhile, nor begins another one.
class Frozen {
 public:
  explicit Frozen(const std::string& directory) {
    constexpr int kMost = 50;  // milliseconds; not all of them can be stopped
    const bool v1 = set_control(directory + "/freezer.state", "FROZEN");
    if (!v1 && !set_control(directory + "/cgroup.freeze", "1")) return;
    thaw_ = v1 ? std::pair(directory + "/freezer.state", "THAWED") : std::pair(directory + "/cgroup.freeze", "0");
    const std::string state = v1 ? "/freezer.state" : "/cgroup.events", wanted = v1 ? "FROZEN" : "frozen 1";
    for (int i = 0; i < kMost && read_file(directory + state).value_or("").find(wanted) == std::string::npos; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  Frozen(const Frozen&) = delete;
  Frozen& operator=(const Frozen&) = delete;
  ~Frozen() {
    if (!thaw_.first.empty()) (void)set_control(thaw_.first, thaw_.second);
  }

 private:
  std::pair<std::string, const char*> thaw_{};
};

/// How many there were besides the spared ones, in the cgroup and beneath it.
size_t kill_members(const std::string& directory, const std::vector<pid_t>& spared) {
  size_t found = 0;
  for (const pid_t pid : members_of(directory)) {
    if (contains(spared, pid)) continue;
    ++found;
    const auto pidfd = open_pidfd(pid);
    // It may have ended and its number be another's: only who is listed still, while we hold it, is meant.
    if (!contains(members_of(directory), pid)) continue;
    if (pidfd)
      (void)signal_pidfd(pidfd->get(), SIGKILL);
    else
      (void)kill(pid, SIGKILL);  // Linux < 5.3
  }
  for (const std::string& path : beneath(directory)) found += kill_members(path, spared);
  return found;
}

/// At once, with those that are being begun: who begins others all the time is faster than any list.
size_t kill_beneath(const std::string& directory, const std::vector<pid_t>& spared, KillBy way) {
  if (has_any(directory, spared)) return kill_members(directory, spared);
  if (set_control(directory + "/cgroup.kill", "1") || way == KillBy::list) return kill_members(directory, spared);
  const Frozen frozen(directory);
  return kill_members(directory, spared);
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

bool is_frozen(std::string_view cgroups) {
  for (const CgroupLine& line : cgroup_lines(cgroups)) {
    if (!line.v2() && line.controllers.find("freezer") == std::string_view::npos) continue;
    const auto found = find_cgroup(line);
    if (!found || !*found) continue;
    const auto state = read_file((*found)->path + (line.v2() ? "/cgroup.events" : "/freezer.state"), kMaxProcBytes);
    if (state && (line.v2() ? state->find("frozen 1") != std::string::npos : !state->starts_with("THAWED")))
      return true;
  }
  return false;
}

bool kill_cgroups(std::string_view cgroups, std::string_view name, KillBy way) {
  const auto mounted = mounted_hierarchies();
  if (!mounted) return false;
  const auto spared = own_line();
  size_t found = 0;
  for (const CgroupLine& line : cgroup_lines(cgroups)) {
    const auto place = find_in(*mounted, line);
    if (const auto named = place ? cut_after(place->path, "/" + std::string(name)) : std::nullopt)
      found += kill_beneath(std::string(*named), spared, way);
  }
  return found == 0;
}

namespace {

/// Slurm's lock, without which a parent could go while it makes the child for a new step (cgroup_common.c). In version
/// 2 it is on what its jobs lie in.
Result<FileLock> lock_cgroups(const CgroupDirectory& place, const std::string& job, bool v2) {
  const std::string directory = v2 ? job.substr(0, job.rfind('/')) : place.root;
  TRY_ASSIGN(UniqueFd root, open_file(directory, O_RDONLY | O_DIRECTORY));
  return FileLock::acquire(std::move(root), FileLock::Kind::exclusive, kLockLimit, directory);
}

}  // namespace

bool remove_empty_cgroups(std::string_view cgroups, std::string_view name) {
  const auto mounted = mounted_hierarchies();
  if (!mounted) return false;
  const auto spared = own_line();
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
    // Slurm removes it after those.
    if (has_any(place->path, spared)) continue;
    const auto lock = lock_cgroups(*place, place->path, line.v2());
    if (!lock && lock.error().errnum() == ENOENT) continue;
    if (!lock)
      gone = false;
    else if (rmdir(place->path.c_str()) == 0)
      (void)rmdir(place->path.substr(0, place->path.rfind('/')).c_str());
    else
      gone = gone && errno == ENOENT;
  }
  return gone;
}

void remove_empty_parents(const CgroupLine& line, std::string_view name) {
  const auto place = find_cgroup(line);
  if (!place || !*place) return;
  const auto top = cut_after((*place)->path, "/" + std::string(name));
  if (!top) return;
  const std::string job(*top);
  const auto lock = lock_cgroups(**place, job, line.v2());
  if (!lock) return;
  for (std::string path = (*place)->path; path.size() > job.size();) {
    path.resize(path.rfind('/'));
    if (rmdir(path.c_str()) != 0) return;
  }
}

}  // namespace situla
