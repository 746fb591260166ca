// spawn(): the child shares the memory of this process until it runs the program (clone(2) with CLONE_VM and
// CLONE_VFORK, on a stack of its own): no page table is copied, which takes slurmstepd milliseconds, and what went
// wrong the child writes into memory of the parent, which waits. So everything that needs memory happens before, and
// everything in the child is async-signal-safe (signal-safety(7)), because slurmstepd has other threads that may hold
// any lock at that moment. execute() goes the same way without a child.
#include <algorithm>
#include <array>
#include <climits>
#include <cstddef>
#include <cstring>
#include <memory>

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "common/sys/file.hpp"
#include "common/sys/kernel.hpp"
#include "common/sys/process/process.hpp"

namespace situla {
namespace {

/// What the process was doing when it failed.
enum class Step : int {
  fork,
  die_with_parent,
  parent_died,
  move_descriptors,
  open_null,
  map_descriptors,
  privileges,
  directory,
  execute
};

constexpr std::array<const char*, 9> kStepText = {"fork again",
                                                  "ask to die with the parent",
                                                  "notice the death of its parent",
                                                  "move descriptors",
                                                  "open /dev/null",
                                                  "map descriptors",
                                                  "give up privileges",
                                                  "enter directory ",
                                                  "execute "};

struct Failure {
  Step step = Step::execute;
  int errnum = 0;
};

std::string what_failed(const Failure& failure, const SpawnOptions& options) {
  const std::string text = kStepText.at(static_cast<size_t>(failure.step));
  return text + (failure.step == Step::execute     ? options.program
                 : failure.step == Step::directory ? options.directory
                                                   : "");
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const std::string& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

/// All that the child needs, in memory of the parent.
struct Plan {
  explicit Plan(const SpawnOptions& what)
      : options(what), arguments(pointers(what.arguments)), environment(pointers(what.environment)), fds(what.fds) {
    for (const auto& entry : fds) first_free = std::max(first_free, entry.second + 1);
  }

  const SpawnOptions& options;
  std::vector<char*> arguments, environment;
  std::vector<std::pair<int, int>> fds;  ///< .first is overwritten with its moved copy, as are the next two
  int program_fd = options.program_fd;   ///< instead of the path
  int first_free = 3;                    ///< above every descriptor number that the program will have
  bool die_with_parent = options.die_with_parent;
  pid_t parent = 0;  ///< who it has to be; 0: whoever it is
};

/// Marks every descriptor from 3 on as close-on-exec.
void close_all_on_exec() {
  if (kernel::close_range(3, ~0U, kernel::kCloseRangeCloexec) == 0) return;
  // Before Linux 5.11. opendir(3) allocates, so the directory is read with the bare call.
  const int listing = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Without /proc: more than a process has, as a rule.
  for (int fd = 3; listing < 0 && fd < 65536; ++fd) (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
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
  for (const auto& [source, target] : plan.fds)
    if (target >= 0 && target <= 2) mapped |= 1U << static_cast<unsigned>(target);
  return mapped == 7;
}

/// First every source is copied above all targets, so that no dup2() can overwrite a source that is still needed.
std::optional<Failure> arrange_descriptors(Plan& plan) {
  const auto move = [&plan](int& fd) {
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, plan.first_free);
    if (copy >= 0) fd = copy;
    return copy >= 0;
  };
  bool moved = plan.program_fd < 0 || move(plan.program_fd);
  for (auto& entry : plan.fds) moved = moved && move(entry.first);
  int null = -1;
  // A container need not have a /dev/null: whoever maps 0, 1 and 2 does without.
  if (moved && !maps_standard_descriptors(plan)) {
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return Failure{Step::open_null, errno};
    moved = move(null);
  }
  if (!moved) return Failure{Step::move_descriptors, errno};
  close_all_on_exec();
  bool mapped = true;
  for (int fd = 0; fd <= 2 && null >= 0; ++fd) mapped = mapped && dup2(null, fd) >= 0;
  for (const auto& [source, target] : plan.fds) mapped = mapped && dup2(source, target) >= 0;
  return mapped ? std::nullopt : std::optional(Failure{Step::map_descriptors, errno});
}

/// Returns only on failure. Async-signal-safe.
Failure become_program(Plan& plan) {
  if (plan.die_with_parent) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return {Step::die_with_parent, errno};
    // 0: the parent lives outside this pid namespace and cannot be compared.
    const pid_t parent = getppid();
    if (plan.parent != 0 && parent != 0 && parent != plan.parent) return {Step::parent_died, ECANCELED};
  }
  if (plan.options.new_session) (void)setsid();
  if (plan.options.no_new_privileges && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return {Step::privileges, errno};
  if (chdir(plan.options.directory.c_str()) != 0) return {Step::directory, errno};
  if (const auto failure = arrange_descriptors(plan)) return *failure;
  reset_signals();
  if (plan.program_fd >= 0)
    (void)kernel::execveat(plan.program_fd, plan.arguments.data(), plan.environment.data());
  else
    execve(plan.options.program.c_str(), plan.arguments.data(), plan.environment.data());
  return {Step::execute, errno};
}

/// slurmstepd runs at -1000; a helper must not be spared by the OOM killer. Lowering a positive score may be refused:
/// fine.
void reset_oom_score() {
  const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  (void)!write(fd, "0", 1);
  close(fd);
}

/// For the child between clone(2) and execve(2), with room for what a sanitizer adds to each frame.
constexpr size_t kStackBytes = size_t{128} << 10U;

/// What the child works on; in memory of the parent, like the stacks.
struct Birth {
  Plan& plan;
  bool detached = false;
  std::unique_ptr<std::byte[]> stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
  std::unique_ptr<std::byte[]> inner_stack =
      detached ? std::make_unique_for_overwrite<std::byte[]>(kStackBytes) : nullptr;
  std::optional<Failure> failure = std::nullopt;
};

/// Returns when the child has run the program, or has ended. With the pidfd at once, so that no other thread can reap
/// the child in between. clone(2) skips the fork handlers of other libraries in this process; the child only makes
/// system calls.
pid_t start_sharing_memory(int (*entry)(void*), std::byte* stack, Birth& birth, int& pidfd) {
  pidfd = -1;
  return clone(entry, stack + kStackBytes, CLONE_VM | CLONE_VFORK | kernel::kClonePidfd | SIGCHLD, &birth, &pidfd);
}

/// The child; what it returns is its exit status.
int run_program_of(void* argument) {
  Birth& birth = *static_cast<Birth*>(argument);
  reset_oom_score();
  birth.failure = become_program(birth.plan);
  return 127;
}

/// The child of a detached start: has the program started by a child of its own, and ends.
int run_detached(void* argument) {
  Birth& birth = *static_cast<Birth*>(argument);
  int unused = -1;
  if (start_sharing_memory(run_program_of, birth.inner_stack.get(), birth, unused) < 0)
    birth.failure = Failure{Step::fork, errno};
  return birth.failure ? 127 : 0;
}

Result<Child> start(const SpawnOptions& options, bool detached) {
  for (const auto& [source, target] : options.fds)
    if (source < 0 || target < 0)
      return fail(ErrorKind::usage, "start " + options.program + ": bad descriptor " + std::to_string(source) + " -> " +
                                        std::to_string(target));
  Plan plan(options);
  plan.parent = getpid();
  plan.die_with_parent = options.die_with_parent && !detached;
  Birth birth{plan, detached};
  // No handler of this program may run in the child, in this memory, before its dispositions are reset.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int pidfd = -1;
  const pid_t pid = start_sharing_memory(detached ? run_detached : run_program_of, birth.stack.get(), birth, pidfd);
  const int errnum = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return fail_errno(errnum, "start a process for " + options.program);

  Child child(pid, UniqueFd(pidfd));
  if (!birth.failure) return child;
  const std::string what = what_failed(*birth.failure, options);
  return fail_errno(birth.failure->errnum,
                    birth.failure->step == Step::execute ? what : "start " + options.program + ": " + what);
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

Error exec_program(const std::string& path, const std::vector<std::string>& arguments) {
  std::vector<char*> pointers;
  std::vector<std::string> words = arguments;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(path.c_str(), pointers.data());
  return Error::from_errno(errno, "execute " + path);
}

Error execute(const SpawnOptions& options) {
  Plan plan(options);
  const Failure failure = become_program(plan);
  return Error::from_errno(failure.errnum, what_failed(failure, options));
}

}  // namespace situla
