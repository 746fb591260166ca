#include "hooks/run/attach.hpp"

#include <chrono>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/process/seccomp.hpp"
#include "common/sys/process/stand_in.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/containers/container_process.hpp"
#include "hooks/run/isolation.hpp"
#include "hooks/run/rc_script.hpp"

namespace situla {
namespace {

constexpr size_t kMaxEnvironmentBytes = size_t{64} << 20U;
/// Of one process that stands in for another: two of them with a PID namespace, or someone starts containers in one.
constexpr int kMaxStandIns = 8;
/// Who runs rc in a Slurm step (hooks/builder).
constexpr std::string_view kBuilder = "situla-builder";

// Nothing is what /proc/PID/environ holds of a process that ends, or is just executing a program: before that program's
// stack is made, and where the file was opened before. In proc_pid_stat(5):
constexpr size_t kVirtualSize = 23, kEnvironmentBegin = 50, kEnvironmentEnd = 51;
constexpr std::chrono::milliseconds kLookAgain{10};
constexpr int kMostLooks = 1000;

/// enroot's words for it.
Error not_found(pid_t pid) {
  return Error(ErrorKind::not_found, "Process not found: " + std::to_string(pid))
      .with_code(ErrorCode::container_not_found);
}

/// A field of /proc/PID/status; empty when there is none.
std::string_view status_field(std::string_view status, std::string_view name) {
  for (const std::string_view line : split(status, '\n'))
    if (line.starts_with(name) && line.substr(name.size()).starts_with(':')) return trim(line.substr(name.size() + 1));
  return {};
}

/// The oldest child; 0 when there is none, or the kernel does not say (CONFIG_PROC_CHILDREN).
pid_t first_child(int process, pid_t pid) {
  const std::string text = read_process_file(process, "task/" + std::to_string(pid) + "/children");
  const auto children = split_words(text);
  return children.empty() ? 0 : static_cast<pid_t>(parse_unsigned(children.front()).value_or(0));
}

bool same_file(int left, int right) {
  struct stat a {
  }, b{};
  return fstat(left, &a) == 0 && fstat(right, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

Error exec_command(const std::vector<std::string>& command, const Environment& environment) {
  std::vector<std::string> variables = environment.strings();
  std::vector<char*> pointers, arguments;
  for (std::string& text : variables) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  for (const std::string& text : command) arguments.push_back(const_cast<char*>(text.c_str()));
  arguments.push_back(nullptr);
  close_other_fds(3, {});
  char** const own = environ;
  environ = pointers.data();  // execvp(3) looks for the program in this PATH
  execvp(arguments[0], arguments.data());
  const int reason = errno;
  environ = own;
  return Error::from_errno(reason, "execute " + printable(command[0])).with_code(ErrorCode::command);
}

Result<Environment> environment_of(const AttachTarget& target, const ExecRequest& request) {
  TRY_ASSIGN(Environment environment, target.environment());
  for (const std::string& word : request.environment) {
    const auto pair = cut(word, '=');
    const std::string_view name = pair ? pair->first : std::string_view(word);
    if (!is_variable_name(name))
      return fail(Error(ErrorKind::usage, "Invalid argument: " + printable(word)).with_code(ErrorCode::option));
    environment.set(name, pair ? std::string(pair->second) : request.host.get_or(name, ""));
  }
  return environment;
}

}  // namespace

Result<AttachTarget> AttachTarget::open(pid_t pid) {
  TRY_ASSIGN(AttachTarget target, open_exactly(pid));
  for (int i = 0; i < kMaxStandIns && runs_host_program(target.proc_.get()); ++i) {
    const pid_t child = first_child(target.proc_.get(), target.pid_);
    if (child == 0) break;
    auto next = open_exactly(child);
    if (!next) break;
    target = std::move(*next);
  }
  return target;
}

Result<AttachTarget> AttachTarget::open_exactly(pid_t pid) {
  AttachTarget target(pid);
  auto directory = open_file("/proc/" + std::to_string(pid), O_RDONLY | O_DIRECTORY);
  if (!directory && directory.error().kind() == ErrorKind::not_found) return fail(not_found(pid));
  if (!directory) return fail(std::move(directory).error());
  target.proc_ = std::move(*directory);
  TRY(target.check_alive());
  TRY(target.check_owner());
  if (auto opened = target.open_namespaces(); !opened) {
    TRY(target.check_alive());
    return fail(std::move(opened).error().with_context("process " + std::to_string(pid)));
  }
  if (!target.joined_[kMount])
    return fail(Error(ErrorKind::usage, "process " + std::to_string(pid) + " is not in a container")
                    .with_code(ErrorCode::container_not_found)
                    .with_hint("list --fancy shows the containers' processes"));
  return target;
}

Result<void> AttachTarget::check_alive() const {
  const std::string status = read_process_file(proc_.get(), "status");
  const std::string_view state = status_field(status, "State");
  if (state.empty() || state.starts_with('Z') || state.starts_with('X')) return fail(not_found(pid_));
  return {};
}

Result<void> AttachTarget::check_owner() const {
  const std::string status = read_process_file(proc_.get(), "status");
  const auto ids = split_words(status_field(status, "Uid"));
  const auto own = std::to_string(geteuid());
  // Real, effective, saved, file system.
  if (ids.size() == 4 && ids[0] == own && ids[1] == own) return {};
  Error error(ErrorKind::denied, "process " + std::to_string(pid_) + " belongs to another user");
  if (geteuid() == 0 && !ids.empty())
    error.with_code(ErrorCode::denied).with_hint("run the command as user id " + std::string(ids[0]));
  return fail(std::move(error));
}

Result<void> AttachTarget::open_namespaces() {
  // A process that stands in for one in a PID namespace of its own is not in that namespace itself.
  constexpr std::array<const char*, kKinds> kNames = {"user", "cgroup", "ipc", "uts", "net", "pid_for_children", "mnt"};
  for (size_t kind = 0; kind < kKinds; ++kind) {
    auto theirs = open_file_at(proc_.get(), std::string("ns/") + kNames[kind], O_RDONLY);
    // A kernel without this kind (cgroup before 4.6), or a process namespace that nobody is in any more.
    if (!theirs && theirs.error().kind() == ErrorKind::not_found) continue;
    if (!theirs) return fail(std::move(theirs).error());
    TRY_ASSIGN(const UniqueFd ours, open_namespace(0, kNames[kind]));
    if (!same_file(theirs->get(), ours.get())) joined_[kind] = std::move(*theirs);
  }
  TRY_ASSIGN(root_, open_file_at(proc_.get(), "root", O_PATH | O_DIRECTORY));
  TRY_ASSIGN(directory_, open_file_at(proc_.get(), "cwd", O_PATH | O_DIRECTORY));
  return {};
}

bool AttachTarget::is_at_work() const {
  if (runs_host_program(proc_.get())) return false;
  const std::string status = read_process_file(proc_.get(), "status");
  const std::string parent = "/proc/" + std::string(status_field(status, "PPid")) + "/comm";
  return trim(read_file(parent).value_or("")) != kBuilder;
}

Result<Environment> AttachTarget::environment() const {
  const std::string what = "read the environment of process " + std::to_string(pid_);
  for (int looks = 0; looks < kMostLooks; ++looks) {
    TRY(check_alive());
    auto file = open_file_at(proc_.get(), "environ", O_RDONLY);
    if (!file) return fail(std::move(file).error().with_context(what));
    auto block = read_all(file->get(), kMaxEnvironmentBytes);
    if (!block) return fail(std::move(block).error().with_context(what));
    if (!block->empty()) return Environment::from_block(*block);
    const auto stat = read_stat(proc_.get());
    if (!stat || stat->number(kVirtualSize) == 0) return fail(not_found(pid_));
    const int64_t begin = stat->number(kEnvironmentBegin);
    if (begin != 0 && begin == stat->number(kEnvironmentEnd)) return Environment();
    std::this_thread::sleep_for(kLookAgain);
  }
  return fail(Error(ErrorKind::failure, "process " + std::to_string(pid_) + " is about to execute another program")
                  .with_code(ErrorCode::container_not_found)
                  .with_hint("try again when it runs; list --fancy shows the containers' processes"));
}

Isolation AttachTarget::isolation() const {
  const auto own = [this](Kind kind) { return static_cast<bool>(joined_[kind]); };
  return {.pid = own(kPid), .net = own(kNet), .ipc = own(kIpc), .uts = own(kUts)};
}

bool AttachTarget::has_range() const {
  return has_own_ids() &&
         NamespaceIds(read_process_file(proc_.get(), "uid_map"), read_process_file(proc_.get(), "gid_map")).range();
}

Result<std::vector<UniqueFd>> AttachTarget::take_namespaces() {
  std::vector<UniqueFd> taken;
  for (const Kind kind : {kUser, kMount, kCgroup}) {
    if (!joined_[kind])
      return fail(ErrorKind::unsupported, "process " + std::to_string(pid_) + " has not all namespaces of a container");
    taken.push_back(std::move(joined_[kind]));
  }
  for (const Kind kind : {kIpc, kUts, kNet, kPid})
    if (joined_[kind]) taken.push_back(std::move(joined_[kind]));
  return taken;
}

std::string AttachTarget::image_workdir() const {
  const auto root = RootDir::open(fd_path(root_.get()));
  const auto script = root ? root->read_file("/etc/rc") : fail(root.error());
  return script ? rc_directory(*script).value_or("/") : "/";
}

Result<void> AttachTarget::join() const {
  static constexpr std::array<const char*, kKinds> kNames = {"user", "cgroup", "IPC", "UTS", "network", "PID", "mount"};
  const auto enter = [this]() -> Result<void> {
    for (size_t kind = 0; kind < kKinds; ++kind)
      if (joined_[kind]) TRY(join_namespace(joined_[kind].get(), kNames[kind]));
    TRY_ASSIGN(const UniqueFd now, open_file("/", O_PATH | O_DIRECTORY));
    if (!same_file(now.get(), root_.get())) TRY(change_root(root_.get()));
    if (fchdir(directory_.get()) != 0)
      return fail_errno(errno, "enter the working directory of process " + std::to_string(pid_));
    return {};
  };
  auto entered = enter();
  // Whatever went wrong: when the process has ended, that is why.
  TRY(check_alive());
  return entered;
}

Result<int> exec_in_container(const ExecRequest& request) {
  TRY_ASSIGN(const AttachTarget target, AttachTarget::open(request.pid));
  TRY_ASSIGN(const Environment environment, environment_of(target, request));
  const bool has_range = target.has_range();
  TRY(target.join());
  if (target.has_own_processes()) {
    TRY_ASSIGN(const std::optional<int> ended, stand_in_for_child(StandInFor::shell));
    if (ended) return *ended;
  }
  TRY(restrict_privileges(geteuid() == 0));
  if (target.has_own_ids() && !has_range) TRY(install_id_filter());
  return fail(exec_command(request.command, environment));
}

}  // namespace situla
