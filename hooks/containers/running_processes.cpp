#include "hooks/containers/running_processes.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <map>
#include <tuple>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/mount_table.hpp"
#include "common/sys/process/cgroup.hpp"
#include "hooks/containers/container_identity.hpp"
#include "hooks/containers/container_process.hpp"

namespace situla {
namespace {

using std::chrono::seconds;

constexpr std::string_view kMark = "situla";
// What the mark says after a colon, before another one and who it is. mountinfo is everybody's to read.
constexpr std::string_view kNamed = "container", kStep = "step";

using FileId = std::pair<dev_t, ino_t>;

std::optional<FileId> file_id(int directory, const std::string& path) {
  struct stat status {};
  if (fstatat(directory, path.c_str(), &status, 0) != 0) return std::nullopt;
  return FileId{status.st_dev, status.st_ino};
}

/// The mount that is a process's "/".
std::optional<MountRecord> root_mount(int process) {
  for (MountRecord& mount : parse_mount_table(read_process_file(process, "mountinfo")))
    if (mount.path == "/") return std::move(mount);
  return std::nullopt;
}

/// The directory in which a root of its own lies that was extracted: ".../NAME/rootfs".
std::string_view scratch_of(const std::string& root) {
  const auto pieces = split_nonempty(root, '/');
  return pieces.size() < 2 || pieces.back() != "rootfs" ? std::string_view() : pieces[pieces.size() - 2];
}

/// Whose root a process has.
struct Owner {
  std::optional<std::string> container;
  std::optional<StepName> step;
  std::string image;
};

/// Its image is in an attribute of its root: unlike mountinfo, only its user can read that.
Owner owner_of_step(int process, std::string_view scratch) {
  const auto step = step_of_scratch(scratch);
  if (!step) return {};
  constexpr size_t kMostBytes = 4096;
  std::string image(kMostBytes, '\0');
  const std::string root = fd_path(process) + "/root";
  const ssize_t size = getxattr(root.c_str(), kImageAttribute, image.data(), image.size());
  image.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return {std::nullopt, step, printable(image)};
}

/// A copy (cp -a) has the same identity; its directory is another one. Empty: nothing tells it from others.
std::string which(const KnownContainer& container) {
  if (container.identity.empty()) return {};
  return container.identity + "." + std::to_string(container.device) + "." + std::to_string(container.inode);
}

/// Of an overlay's mark, without "situla:".
Owner owner_of_mark(int process, std::string_view mark, const std::vector<KnownContainer>& containers) {
  const auto fields = cut(mark, ':');
  if (!fields || fields->second.empty()) return {};
  if (fields->first == kStep) return owner_of_step(process, fields->second);
  for (const KnownContainer& container : containers)
    if (fields->first == kNamed && fields->second == which(container)) return {container.path, {}, {}};
  return {};
}

/// nullopt: its root is no container.
std::optional<Owner> owner_of(int process, const std::vector<KnownContainer>& containers) {
  // A directory as it is, wherever its file system is mounted. While it is this process's root, nothing else gets its
  // number.
  if (const auto id = file_id(process, "root/"))
    for (const KnownContainer& container : containers)
      if (*id == FileId(container.device, container.inode)) return Owner{container.path, {}, {}};
  const auto mount = root_mount(process);
  if (!mount) return std::nullopt;
  const std::string marked = std::string(kMark) + ":";
  if (mount->source.starts_with(marked)) return owner_of_mark(process, mount->source.substr(marked.size()), containers);
  const std::string_view scratch = scratch_of(mount->root);
  if (step_of_scratch(scratch)) return owner_of_step(process, scratch);
  // enroot's own containers have its lock file.
  if (mount->source == kMark || scratch.starts_with(kStartPrefix) || file_id(process, "root/.lock")) return Owner();
  return std::nullopt;
}

/// The letters of ps(1): PROCESS STATE CODES.
std::string state_letters(const ProcessStat& stat, pid_t pid) {
  enum { kGroup = 5, kSession = 6, kTerminalGroup = 8, kNice = 19, kThreads = 20 };
  std::string letters(stat.fields[0]);
  if (stat.number(kNice) < 0) letters += '<';
  if (stat.number(kNice) > 0) letters += 'N';
  if (stat.number(kSession) == pid) letters += 's';
  if (stat.number(kThreads) > 1) letters += 'l';
  if (stat.number(kGroup) == stat.number(kTerminalGroup)) letters += '+';
  return letters;
}

std::string command_line(int process, const std::string& comm) {
  std::string text = read_process_file(process, "cmdline");
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text.empty() ? "[" + comm + "]" : printable(text);
}

std::optional<uint64_t> namespace_number(int process, const char* name) {
  const auto id = file_id(process, std::string("ns/") + name);
  if (!id) return std::nullopt;
  return id->second;
}

std::optional<uint32_t> job_after(std::string_view prefix, std::string_view text) {
  const auto number = text.starts_with(prefix) ? parse_unsigned(text.substr(prefix.size())) : std::nullopt;
  if (!number || *number > UINT32_MAX) return std::nullopt;
  return static_cast<uint32_t>(*number);
}

/// Slurm's cgroups of a job are called "job_12"; without them (proctrack/linuxproc), and where they have a SLUID (Slurm
/// 26.05, version 2), its variables tell, which Slurm set for the task. For messages: its user may have set others.
std::optional<uint32_t> job_of(int process) {
  const std::string cgroups = read_process_file(process, "cgroup");
  for (const CgroupLine& line : cgroup_lines(cgroups))
    for (const std::string_view piece : split_nonempty(line.path, '/'))
      if (const auto job = job_after("job_", piece)) return job;
  const std::string variables = read_process_file(process, "environ");
  for (const std::string_view variable : split_nonempty(variables, '\0'))
    if (const auto job = job_after("SLURM_JOB_ID=", variable)) return job;
  return std::nullopt;
}

struct Candidate {
  UniqueFd process;  ///< /proc/PID
  pid_t pid = 0;
  int64_t start = 0;    ///< ticks after boot
  bool serves = false;  ///< runs a program of the host
  uint64_t mount_namespace = 0, user_namespace = 0;
};

/// Processes that share a mount namespace have the same root (or made another one on purpose): one is enough, the
/// oldest, but rather the container's own than one that only serves it.
bool represents_better(const Candidate& left, const Candidate& right) {
  return std::tuple(left.serves, left.start, left.pid) < std::tuple(right.serves, right.start, right.pid);
}

/// nullopt: it has ended, belongs to somebody else, or shares our mount namespace.
std::optional<Candidate> look_at(pid_t pid, std::optional<uint64_t> own_namespace) {
  enum { kStart = 22 };
  Candidate candidate;
  auto process = open_file("/proc/" + std::to_string(pid), O_RDONLY | O_DIRECTORY);
  if (!process) return std::nullopt;
  candidate.process = std::move(*process);
  candidate.pid = pid;
  const int fd = candidate.process.get();
  const auto mount = namespace_number(fd, "mnt");
  const auto user = namespace_number(fd, "user");
  const auto stat = read_stat(fd);
  if (!mount || !user || mount == own_namespace || !stat || stat->fields[0] == "Z") return std::nullopt;
  candidate.start = stat->number(kStart);
  candidate.serves = runs_host_program(fd);
  candidate.mount_namespace = *mount;
  candidate.user_namespace = *user;
  return candidate;
}

/// One process for every mount namespace but our own.
Result<std::map<uint64_t, Candidate>> representatives() {
  TRY_ASSIGN(const std::vector<std::string> names, list_directory("/proc"));
  TRY_ASSIGN(const UniqueFd self, open_file("/proc/self", O_RDONLY | O_DIRECTORY));
  const auto own = namespace_number(self.get(), "mnt");
  std::map<uint64_t, Candidate> result;
  for (const std::string& name : names) {
    const auto pid = parse_unsigned(name);
    auto candidate = pid ? look_at(static_cast<pid_t>(*pid), own) : std::nullopt;
    if (!candidate) continue;
    const auto known = result.find(candidate->mount_namespace);
    if (known == result.end())
      result.emplace(candidate->mount_namespace, std::move(*candidate));
    else if (represents_better(*candidate, known->second))
      known->second = std::move(*candidate);
  }
  return result;
}

std::optional<RunningProcess> describe(const Candidate& candidate, Owner owner) {
  const int fd = candidate.process.get();
  const auto stat = read_stat(fd);
  if (!stat) return std::nullopt;
  RunningProcess process;
  process.container = std::move(owner.container);
  process.step = owner.step;
  process.image = std::move(owner.image);
  process.job = job_of(fd);
  process.pid = candidate.pid;
  process.comm = printable(trim(read_process_file(fd, "comm")));
  process.state = state_letters(*stat, candidate.pid);
  process.command = command_line(fd, process.comm);
  process.mount_namespace = candidate.mount_namespace;
  process.user_namespace = candidate.user_namespace;
  timespec since_boot{};
  (void)clock_gettime(CLOCK_BOOTTIME, &since_boot);
  process.elapsed = seconds(std::max<int64_t>(since_boot.tv_sec - candidate.start / sysconf(_SC_CLK_TCK), 0));
  process.started = std::chrono::system_clock::now() - process.elapsed;
  return process;
}

std::string marked(std::string_view kind, const std::string& which) {
  return std::string(kMark) + (which.empty() ? "" : ":" + std::string(kind) + ":" + which);
}

}  // namespace

std::string start_prefix() {
  return std::string(kStartPrefix) + host_name() + ".";
}

std::string container_mark(const NamedContainer& container) {
  const auto known = KnownContainer::of(container);
  return marked(kNamed, known ? which(*known) : "");
}

std::string step_mark(const std::string& scratch_name) {
  return marked(kStep, step_of_scratch(scratch_name) ? scratch_name : "");
}

std::optional<KnownContainer> KnownContainer::of(const NamedContainer& container) {
  const auto directory = open_file(container.held(), O_PATH | O_DIRECTORY);
  struct stat status {};
  if (!directory || fstat(directory->get(), &status) != 0) return std::nullopt;
  return KnownContainer{container.path, status.st_dev, status.st_ino, identity_of(directory->get())};
}

Result<std::vector<RunningProcess>> running_processes(const std::vector<KnownContainer>& containers) {
  TRY_ASSIGN(const auto candidates, representatives());
  std::vector<const Candidate*> sorted;
  for (const auto& [number, candidate] : candidates) sorted.push_back(&candidate);
  std::sort(sorted.begin(), sorted.end(), [](const Candidate* left, const Candidate* right) {
    return std::pair(left->start, left->pid) < std::pair(right->start, right->pid);
  });
  std::vector<RunningProcess> result;
  for (const Candidate* candidate : sorted) {
    auto owner = owner_of(candidate->process.get(), containers);
    if (!owner) continue;
    if (auto process = describe(*candidate, std::move(*owner))) result.push_back(std::move(*process));
  }
  return result;
}

}  // namespace situla
