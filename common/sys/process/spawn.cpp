// spawn(): everything that needs memory happens before the fork, everything after it is async-signal-safe
// (signal-safety(7)), because slurmstepd has other threads that may hold any lock at that moment.
#include <algorithm>
#include <array>
#include <climits>
#include <cstring>

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "common/sys/kernel.hpp"
#include "common/sys/process/process.hpp"

namespace situla {
namespace {

/// What the child was doing when it failed; travels with the errno through the close-on-exec pipe.
enum class Step : int {
  fork,
  parent_died,
  move_descriptors,
  open_null,
  map_descriptors,
  session,
  privileges,
  directory,
  execute
};

constexpr std::array<const char*, 9> kStepText = {"fork again",
                                                  "notice the death of its parent",
                                                  "move descriptors",
                                                  "open /dev/null",
                                                  "map descriptors",
                                                  "start a new session",
                                                  "give up privileges",
                                                  "enter directory ",
                                                  "execute "};

struct Failure {
  Step step = Step::execute;
  int errnum = 0;
};

/// All that the child needs, in memory of the parent.
struct Plan {
  const char* program = nullptr;
  int program_fd = -1;  ///< instead of the path; the child puts its moved copy here
  const char* directory = nullptr;
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  std::pair<int, int>* fds = nullptr;  ///< .first is overwritten by the child with its moved copy
  size_t fd_count = 0;
  int first_free = 3;  ///< above every descriptor number that the child will have
  int error_pipe = -1;
  pid_t parent = -1;
  bool die_with_parent = true;
  bool new_session = false;
  bool no_new_privileges = false;
  bool detached = false;
};

[[noreturn]] void give_up(int pipe, Step step, int errnum) {
  const Failure failure{step, errnum};
  (void)!write(pipe, &failure, sizeof failure);
  _exit(127);
}

/// Marks every descriptor from 3 on as close-on-exec.
void close_all_on_exec() {
  if (kernel::close_range(3, ~0U, kernel::kCloseRangeCloexec) == 0) return;
  // Before Linux 5.11. opendir(3) allocates, so the directory is read with the bare call.
  const int listing = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (listing < 0) return;
  alignas(8) std::array<char, 4096> buffer{};
  for (;;) {
    const long size = syscall(SYS_getdents64, listing, buffer.data(), buffer.size());
    if (size <= 0) break;
    for (long at = 0; at < size;) {
      // struct linux_dirent64: ino 8, off 8, reclen 2, type 1, name
      uint16_t length = 0;
      std::memcpy(&length, buffer.data() + at + 16, sizeof length);
      int fd = 0;
      const char* name = buffer.data() + at + 19;
      for (; *name >= '0' && *name <= '9'; ++name) fd = fd * 10 + (*name - '0');
      if (*name == '\0' && fd > 2) (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
      at += length;
    }
  }
  close(listing);
}

bool maps_standard_descriptors(const Plan& plan) {
  unsigned mapped = 0;
  for (size_t i = 0; i < plan.fd_count; ++i)
    if (plan.fds[i].second >= 0 && plan.fds[i].second <= 2) mapped |= 1U << static_cast<unsigned>(plan.fds[i].second);
  return mapped == 7;
}

/// First every source is copied above all targets, so that no dup2() can overwrite a source that is still needed.
int arrange_descriptors(Plan& plan) {
  int pipe = plan.error_pipe;
  const int moved = fcntl(pipe, F_DUPFD_CLOEXEC, plan.first_free);
  if (moved < 0) give_up(pipe, Step::move_descriptors, errno);
  pipe = moved;
  for (size_t i = 0; i < plan.fd_count; ++i) {
    const int copy = fcntl(plan.fds[i].first, F_DUPFD_CLOEXEC, plan.first_free);
    if (copy < 0) give_up(pipe, Step::move_descriptors, errno);
    plan.fds[i].first = copy;
  }
  if (plan.program_fd >= 0) {
    plan.program_fd = fcntl(plan.program_fd, F_DUPFD_CLOEXEC, plan.first_free);
    if (plan.program_fd < 0) give_up(pipe, Step::move_descriptors, errno);
  }
  // A container need not have a /dev/null: whoever maps 0, 1 and 2 does without.
  int null_copy = -1;
  if (!maps_standard_descriptors(plan)) {
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) give_up(pipe, Step::open_null, errno);
    null_copy = fcntl(null, F_DUPFD_CLOEXEC, plan.first_free);
    if (null_copy < 0) give_up(pipe, Step::move_descriptors, errno);
  }
  close_all_on_exec();
  for (int fd = 0; fd <= 2 && null_copy >= 0; ++fd)
    if (dup2(null_copy, fd) < 0) give_up(pipe, Step::map_descriptors, errno);
  for (size_t i = 0; i < plan.fd_count; ++i)
    if (dup2(plan.fds[i].first, plan.fds[i].second) < 0) give_up(pipe, Step::map_descriptors, errno);
  return pipe;
}

/// slurmstepd runs at -1000; a helper must not be spared by the OOM killer. Lowering a positive score may be refused:
/// fine.
void reset_oom_score() {
  const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  (void)!write(fd, "0", 1);
  close(fd);
}

/// fork(2) that also yields the pidfd, so that no other thread can reap the child in between. The bare call skips the
/// fork handlers of other libraries in this process; the child only makes system calls.
pid_t fork_with_pidfd(int& pidfd) {
  pidfd = -1;
  const auto pid = static_cast<pid_t>(syscall(SYS_clone, kernel::kClonePidfd | SIGCHLD, nullptr, &pidfd, nullptr, 0UL));
  return pid;
}

[[noreturn]] void run_child(Plan& plan) {
  if (plan.detached) {
    int unused = -1;
    const pid_t pid = fork_with_pidfd(unused);
    if (pid < 0) give_up(plan.error_pipe, Step::fork, errno);
    if (pid > 0) _exit(0);
  }
  if (plan.die_with_parent) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    // 0: the parent lives outside this pid namespace and cannot be compared.
    const pid_t parent = getppid();
    if (parent != 0 && parent != plan.parent) give_up(plan.error_pipe, Step::parent_died, ECANCELED);
  }
  const int pipe = arrange_descriptors(plan);
  reset_oom_score();
  if (plan.new_session && setsid() < 0) give_up(pipe, Step::session, errno);
  if (plan.no_new_privileges && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) give_up(pipe, Step::privileges, errno);
  if (chdir(plan.directory) != 0) give_up(pipe, Step::directory, errno);
  reset_signals();
  if (plan.program_fd >= 0)
    (void)kernel::execveat(plan.program_fd, plan.arguments, plan.environment);
  else
    execve(plan.program, plan.arguments, plan.environment);
  give_up(pipe, Step::execute, errno);
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const std::string& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

Result<void> check(const SpawnOptions& options) {
  for (const auto& [source, target] : options.fds)
    if (source < 0 || target < 0)
      return fail(ErrorKind::usage, "start " + options.program + ": bad descriptor " + std::to_string(source) + " -> " +
                                        std::to_string(target));
  return {};
}

Result<Child> start(const SpawnOptions& options, bool detached) {
  TRY(check(options));
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno(errno, "create pipe");
  UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);

  const std::vector<char*> arguments = pointers(options.arguments);
  const std::vector<char*> environment = pointers(options.environment);
  std::vector<std::pair<int, int>> fds = options.fds;
  Plan plan;
  plan.program = options.program.c_str();
  plan.program_fd = options.program_fd;
  plan.directory = options.directory.c_str();
  plan.arguments = arguments.data();
  plan.environment = environment.data();
  plan.fds = fds.data();
  plan.fd_count = fds.size();
  for (const auto& entry : fds) plan.first_free = std::max(plan.first_free, entry.second + 1);
  plan.error_pipe = writer.get();
  plan.parent = getpid();
  plan.die_with_parent = options.die_with_parent && !detached;
  plan.detached = detached;
  plan.new_session = options.new_session;
  plan.no_new_privileges = options.no_new_privileges;

  // No handler of this program may run in the child before its dispositions are reset.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int pidfd = -1;
  const pid_t pid = fork_with_pidfd(pidfd);
  if (pid == 0) run_child(plan);
  const int errnum = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return fail_errno(errnum, "fork");

  Child child(pid, UniqueFd(pidfd));
  writer.reset();
  Failure failure;
  ssize_t size = -1;
  do {
    size = read(reader.get(), &failure, sizeof failure);
  } while (size < 0 && errno == EINTR);
  if (size == 0) return child;
  if (size != static_cast<ssize_t>(sizeof failure)) return fail_errno(EIO, "start " + options.program);
  std::string what = kStepText.at(static_cast<size_t>(failure.step));
  if (failure.step == Step::execute)
    what += options.program;
  else
    what = "start " + options.program + ": " + what + (failure.step == Step::directory ? options.directory : "");
  return fail_errno(failure.errnum, what);
}

}  // namespace

Result<Child> spawn(const SpawnOptions& options) {
  return start(options, false);
}

Result<void> spawn_detached(const SpawnOptions& options) {
  TRY_ASSIGN(Child between, start(options, true));
  // It has ended already; slurmstepd may have reaped it, which is as good.
  (void)between.wait();
  return {};
}

}  // namespace situla
