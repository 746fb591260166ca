#include "plugin/broker/node/cgroup_place.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/spec/step_name.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/cgroup.hpp"
#include "common/sys/process/device_filter.hpp"

namespace situla {
namespace {

constexpr const char* kOwn = "/situla";
constexpr const char* kBroker = "/broker";
constexpr const char* kCleanup = "/cleanup";
/// Of a step in version 2: Slurm's own, and ours beside the tasks.
constexpr const char* kSlurmLeaf = "/slurm";
constexpr const char* kUserLeaf = "/user/situla";
/// What Slurm can constrain in version 1, and what limits us.
constexpr std::array<std::string_view, 7> kControllers = {"memory",  "pids", "cpuset", "devices",
                                                          "freezer", "cpu",  "cpuacct"};
/// For all steps of one user on the node together: far above what they need, far below what would hurt the node.
constexpr std::array<std::pair<const char*, const char*>, 3> kLimits = {
    {{"memory.limit_in_bytes", "2147483648"}, {"memory.max", "2147483648"}, {"pids.max", "1024"}}};
constexpr time_t kIdleSeconds = 3600;
/// Where what runs before and after a job finds Situla's own: a file of root. Empty: Slurm uses no cgroups here.
constexpr const char* kOwnRecord = SITULA_RUNTIME_DIR "/cgroups";

std::string step_component(uint32_t step) {
  if (step == kBatchStep) return "/step_batch";
  if (step == kInteractiveStep) return "/step_interactive";
  return "/step_" + std::to_string(step);
}

/// Without an answer nothing may go on: a process would live outside of its job's limits.
Result<std::optional<std::string>> top_of(const CgroupLine& line) {
  TRY_ASSIGN(const auto found, find_cgroup(line));
  return found ? std::optional(found->top) : std::nullopt;
}

Result<bool> exists(const CgroupLine& line, const std::string& path) {
  TRY_ASSIGN(const auto found, find_cgroup(line.at(path)));
  if (!found) return false;
  if (access(found->path.c_str(), F_OK) == 0) return true;
  if (errno == ENOENT) return false;
  return fail_errno(errno, "look at cgroup " + found->path);
}

/// The step's cgroup in that of its job, or "". In version 1 slurmstepd need not be in it: where a part of "srun A : B"
/// has one with a number more it is found by its name, unless several parts run on this node.
Result<std::string> step_beneath(const CgroupLine& job, const std::string& step) {
  TRY_ASSIGN(const bool has_step, exists(job, std::string(job.path) + step));
  if (has_step) return step;
  TRY_ASSIGN(const auto found, find_cgroup(job));
  std::vector<std::string> parts;
  for (const std::string& name : list_directory(found ? found->path : "").value_or(std::vector<std::string>()))
    if (("/" + name).starts_with(step + "+")) parts.push_back("/" + name);
  return parts.size() == 1 ? parts.front() : "";
}

Result<void> write_control(const std::string& file, std::string_view value) {
  TRY_ASSIGN(const UniqueFd fd, open_file(file, O_WRONLY));
  return write_all(fd.get(), value);
}

/// A version 1 cpuset takes no process before it has processors and memory.
Result<void> inherit_cpuset(const std::string& directory) {
  const std::string parent = directory.substr(0, directory.rfind('/'));
  for (const char* name : {"/cpuset.cpus", "/cpuset.mems"}) {
    const auto own = read_file(directory + name);
    if (!own || own->find_first_not_of(" \n") != std::string::npos) continue;
    TRY_ASSIGN(const std::string theirs, read_file(parent + name));
    TRY(write_control(directory + name, theirs));
  }
  return {};
}

/// True: it is new.
Result<bool> make_cgroup(const std::string& directory) {
  const bool made = mkdir(directory.c_str(), 0755) == 0;
  if (!made && errno != EEXIST) return fail_errno(errno, "make cgroup " + directory);
  TRY(inherit_cpuset(directory));
  return made;
}

void set_limits(const std::string& directory) {
  for (const auto& [name, value] : kLimits) {
    const std::string file = directory + "/" + name;
    if (access(file.c_str(), F_OK) != 0) continue;
    if (const auto set = write_control(file, value); !set) syslog(LOG_WARNING, "%s", set.error().message().c_str());
  }
}

/// What runs there as the user is outside of his jobs, whose devices are Slurm's to give. Where it cannot be had,
/// Slurm, which asks the kernel for the same, keeps devices from nobody: the log says so, and jobs are cleaned up all
/// the same.
void close_devices(const CgroupLine& line, const std::string& directory) {
  if (!line.v2() && line.controllers.find("devices") == std::string_view::npos) return;
  const auto closed = allow_plain_devices(directory, line.v2() ? CgroupVersion::v2 : CgroupVersion::v1);
  if (!closed) syslog(LOG_WARNING, "%s: %s", directory.c_str(), closed.error().message().c_str());
}

/// One user's part of Situla's own in one hierarchy. The path of `line` ends in kOwn; `leaf`: "/broker/1000".
Result<void> make_share_in(const CgroupLine& line, const std::string& leaf) {
  TRY_ASSIGN(const auto found, find_cgroup(line));
  if (!found) return fail(ErrorKind::not_found, "make cgroup " + std::string(line.path) + ": not mounted here");
  const std::string& own = found->path;
  const std::string directory = own + leaf;
  // It is there, as a rule. Its time says when it was used last: remove_idle_shares(). Another broker may have made it
  // just now, and be about to give it its processors.
  if (utimensat(AT_FDCWD, directory.c_str(), nullptr, 0) == 0)
    return line.controllers.find("cpuset") == std::string_view::npos ? Result<void>() : inherit_cpuset(directory);
  const std::string all_users = directory.substr(0, directory.rfind('/'));
  TRY(make_cgroup(own));
  TRY(make_cgroup(all_users));
  // As far as Slurm was given them; it does not hand on the number of processes by itself.
  if (line.v2())
    for (const std::string& parent : {own.substr(0, own.rfind('/')), own, all_users})
      for (const char* controller : {"+memory", "+pids"})
        (void)write_control(parent + "/cgroup.subtree_control", controller);
  TRY_ASSIGN(const bool made, make_cgroup(directory));
  if (made) set_limits(directory);
  if (made && leaf.starts_with(kCleanup)) close_devices(line, directory);
  return {};
}

Result<void> make_share(std::string_view own, const std::string& leaf) {
  for (const CgroupLine& line : cgroup_lines(own))
    if (line.path.ends_with(kOwn)) TRY(make_share_in(line, leaf));
  return {};
}

/// Of users who have not been here for a while.
void remove_idle_below(const std::string& all_users) {
  const auto names = list_directory(all_users);
  if (!names) return;
  for (const std::string& name : *names) {
    const std::string directory = all_users + "/" + name;
    struct stat info {};
    if (!parse_unsigned(name) || stat(directory.c_str(), &info) != 0 || time(nullptr) - info.st_mtime < kIdleSeconds)
      continue;
    (void)rmdir(directory.c_str());  // refused while a process lives in it
  }
}

/// With what the user's helpers have left in it: Slurm does not know of this cgroup.
void remove_leaf(const CgroupLine& line) {
  constexpr int kTries = 20;
  const auto found = find_cgroup(line);
  if (!found || !*found) return;
  const std::string& path = (*found)->path;
  const bool at_once = write_control(path + "/cgroup.kill", "1").has_value();
  for (int tries = 0; rmdir(path.c_str()) != 0 && errno == EBUSY && tries < kTries; ++tries) {
    if (!at_once) (void)kill_cgroups(line.text(), "situla");  // Linux < 5.14
    usleep(5000);
  }
}

std::string with_leaf(const std::string& own, const std::string& leaf) {
  std::string text;
  for (const std::string_view line : split_nonempty(own, '\n'))
    text += std::string(line) + (line.ends_with(kOwn) ? leaf : "") + "\n";
  return text;
}

/// Only leaves may hold processes in version 2, and only those that Slurm made for tasks do. One of our own beside them
/// has the step's limits.
Result<void> make_leaf(const CgroupLine& line) {
  TRY_ASSIGN(const auto leaf, find_cgroup(line));
  if (!leaf) return fail(ErrorKind::not_found, "make cgroup " + std::string(line.path) + ": not mounted here");
  TRY(make_cgroup(leaf->path));
  return {};
}

/// "s2D1M8KFRQN300": Slurm's sortable number of a job, 64 bits in base 32.
bool is_sluid(std::string_view name) {
  constexpr size_t kDigits = 13;
  return name.size() == 1 + kDigits && name.starts_with('s') &&
         name.find_first_not_of("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", 1) == name.npos;
}

}  // namespace

std::string job_component(uint32_t job, std::string_view cgroups) {
  std::string usual = "/job_" + std::to_string(job);
  const auto lines = cgroup_lines(cgroups);
  const auto has_usual = [&](const CgroupLine& line) { return cut_after(line.path, usual).has_value(); };
  if (std::any_of(lines.begin(), lines.end(), has_usual)) return usual;
  for (const CgroupLine& line : lines) {
    if (!line.v2()) continue;
    // From the left: beneath its own cgroups a job may have others.
    for (const std::string_view name : split_nonempty(line.path, '/'))
      if (is_sluid(name)) return "/" + std::string(name);
  }
  return usual;
}

Result<NodeCgroups> NodeCgroups::enter(uint32_t job, uint32_t step, uid_t user) {
  TRY_ASSIGN(std::string inherited, read_file("/proc/self/cgroup"));
  NodeCgroups cgroups(job, step, user, std::move(inherited));
  TRY(cgroups.make_own(cgroups.inherited_));
  return cgroups;
}

Result<NodeCgroups> NodeCgroups::enter_before_job(uint32_t job, uid_t user) {
  TRY_ASSIGN(std::string inherited, read_file("/proc/self/cgroup"));
  NodeCgroups cgroups(job, kPrologStep, user, std::move(inherited));
  auto own = read_file(kOwnRecord);
  if (!own && own.error().kind() == ErrorKind::not_found)
    return fail(ErrorKind::not_found, "no step with a container has shown yet where Slurm has its cgroups");
  if (!own) return fail(std::move(own).error());
  cgroups.own_ = std::move(*own);
  if (cgroups.used()) TRY(cgroups.enter_own());
  cgroups.step_text_ = cgroups.job_text_ = cgroups.cleanup().text();
  cgroups.prepared_ = true;
  return cgroups;
}

Result<NodeCgroups> NodeCgroups::enter_after_jobs(uid_t user) {
  TRY_ASSIGN(std::string inherited, read_file("/proc/self/cgroup"));
  NodeCgroups cgroups(0, 0, user, std::move(inherited));
  // Beside a slurmstepd whose broker was killed.
  for (const CgroupLine& line : cgroup_lines(cgroups.inherited_))
    if (line.v2() && line.path.ends_with(kSlurmLeaf))
      remove_leaf(line.at(std::string(line.path.substr(0, line.path.rfind('/'))) + kUserLeaf));
  auto own = read_file(kOwnRecord);
  if (!own || own->empty()) return cgroups;
  cgroups.own_ = std::move(*own);
  TRY(cgroups.enter_own());
  return cgroups;
}

Result<void> NodeCgroups::make_own(std::string_view text) {
  const auto lines = cgroup_lines(text);
  const std::string job = job_component(job_, text);
  const auto is_in_job = [&](const CgroupLine& line) { return cut_after(line.path, job).has_value(); };
  if (std::none_of(lines.begin(), lines.end(), is_in_job)) return {};
  std::string own;
  for (const CgroupLine& line : lines) {
    std::string path(line.path);
    const auto names = split_nonempty(line.controllers, ',');
    const bool limiting = std::any_of(names.begin(), names.end(), [](std::string_view name) {
      return std::find(kControllers.begin(), kControllers.end(), name) != kControllers.end();
    });
    const auto in_job = cut_after(line.path, job);
    if (line.v2() && in_job)
      path = std::string(in_job->substr(0, in_job->size() - job.size())) + kOwn;
    else if (limiting) {
      TRY_ASSIGN(const auto top, top_of(line));
      path = top.value_or(path) + kOwn;
    }
    own += std::string(line.head) + path + "\n";
  }
  own_ = std::move(own);
  TRY(enter_own());
  if (const auto record = read_file(kOwnRecord); record && *record == own_) return {};
  TRY(make_directories(SITULA_RUNTIME_DIR, 0755));
  return write_file_atomically(kOwnRecord, own_, 0600);
}

/// Unless there were some before: those still serve, with their limits.
Result<void> NodeCgroups::note_none() {
  if (access(kOwnRecord, F_OK) == 0) return {};
  TRY(make_directories(SITULA_RUNTIME_DIR, 0755));
  return write_file_atomically(kOwnRecord, "", 0600);
}

Result<void> NodeCgroups::enter_own() const {
  constexpr int kAttempts = 3;  // another broker may find it idle just now
  for (int attempt = 1;; ++attempt) {
    TRY(make_share(own_, kBroker + share()));
    auto moved = move_to_cgroups(getpid(), broker().text());
    if (moved || moved.error().errnum() != ENOENT || attempt == kAttempts) return moved;
  }
}

void NodeCgroups::remove_idle_shares() const {
  for (const CgroupLine& line : cgroup_lines(own_)) {
    if (!line.path.ends_with(kOwn)) continue;
    const auto own = find_cgroup(line);
    if (!own || !*own) continue;
    for (const char* part : {kBroker, kCleanup}) remove_idle_below((*own)->path + part);
  }
}

CgroupPlace NodeCgroups::broker() const {
  return CgroupPlace(own_.empty() ? inherited_ : with_leaf(own_, kBroker + share()));
}

CgroupPlace NodeCgroups::cleanup() const {
  if (own_.empty()) return CgroupPlace(inherited_);
  if (const auto made = make_share(own_, kCleanup + share()); !made)
    syslog(LOG_ERR, "%s", made.error().message().c_str());
  return CgroupPlace(with_leaf(own_, kCleanup + share()));
}

/// In version 1 slurmstepd lives in some of the step's cgroups, in the job's freezer, and for accounting nowhere;
/// their paths below the hierarchies are the same. In version 2 it has a leaf of its own, for which other limits hold
/// than for the tasks.
Result<void> NodeCgroups::step_is_prepared(int slurmstepd) {
  if (prepared_) return {};
  TRY_ASSIGN(const std::string text, cgroups_of(slurmstepd));
  const auto lines = cgroup_lines(text);
  const std::string job = job_component(job_, text);
  if (own_.empty()) TRY(make_own(text));
  if (own_.empty()) TRY(note_none());
  std::string below;  // of version 1, with the job
  std::string own_step = step_component(step_);
  for (const CgroupLine& line : lines) {
    const auto in_job = cut_after(line.path, job);
    if (!in_job) continue;
    // Of "srun A : B" in one allocation it has a number more: "/step_0+1".
    if (const std::string_view rest = line.path.substr(in_job->size()); rest.starts_with("/step_"))
      own_step = rest.substr(0, rest.find('/', 1));
    if (line.v2()) continue;
    TRY_ASSIGN(const auto top, top_of(line.at(*in_job)));
    below = in_job->substr(top.value_or("").size());
  }
  std::string step_text, job_text;
  for (const CgroupLine& line : lines) {
    std::string in_step(line.path);
    std::string in_job(line.path);
    if (const auto part = cut_after(line.path, job); part && line.v2()) {
      in_job = std::string(*part) + kOwn;
      in_step = std::string(*part) + own_step + kUserLeaf;
      TRY(make_leaf(line.at(in_step)));
    } else if (!below.empty() && !line.v2()) {
      TRY_ASSIGN(const auto top, top_of(line));
      TRY_ASSIGN(const bool has_job, exists(line, top.value_or("") + below));
      if (has_job) {
        in_step = in_job = top.value_or("") + below;
        TRY_ASSIGN(const std::string step, step_beneath(line.at(in_job), own_step));
        in_step += step;
      }
    }
    step_text += std::string(line.head) + in_step + "\n";
    job_text += std::string(line.head) + in_job + "\n";
  }
  step_text_ = std::move(step_text);
  job_text_ = std::move(job_text);
  prepared_ = true;
  return {};
}

Result<CgroupPlace> NodeCgroups::step() const {
  if (!prepared_) return fail(ErrorKind::failure, "Slurm has not made the step's cgroups yet");
  return CgroupPlace(step_text_);
}

Result<CgroupPlace> NodeCgroups::job() const {
  if (!prepared_) return fail(ErrorKind::failure, "Slurm has not made the step's cgroups yet");
  for (const CgroupLine& line : cgroup_lines(job_text_))
    if (line.v2() && line.path.ends_with(kOwn)) TRY(make_leaf(line));
  return CgroupPlace(job_text_);
}

Result<void> NodeCgroups::check_task(std::string_view cgroups) const {
  const std::string job = job_component(job_, step_text_);
  const auto lines = cgroup_lines(cgroups);
  for (const CgroupLine& ours : cgroup_lines(step_text_)) {
    if (!cut_after(ours.path, job)) continue;
    const bool inside = std::any_of(lines.begin(), lines.end(), [&](const CgroupLine& line) {
      return line.head == ours.head && cut_after(line.path, job).has_value();
    });
    if (!inside)
      return fail(ErrorKind::denied, "the asking process does not live in the cgroup of job " + std::to_string(job_));
  }
  return {};
}

void NodeCgroups::leave_step(bool alone) const {
  for (const CgroupLine& line : cgroup_lines(step_text_)) {
    if (!line.v2() || !line.path.ends_with(kUserLeaf)) continue;
    remove_leaf(line);
    if (alone) remove_empty_parents(line, job_component(job_, line.text()).substr(1));
  }
}

}  // namespace situla
