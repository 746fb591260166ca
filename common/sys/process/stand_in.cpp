#include "common/sys/process/stand_in.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/sys/process/process.hpp"

namespace situla {
namespace {

/// Sent to this process by number, the command has to have all of them but those that tell of this process itself. The
/// terminal sends some to the whole process group, and so to the child as well.
sigset_t watched_signals(StandInFor whom) {
  constexpr std::array<int, 6> kOwn = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
  constexpr std::array<int, 3> kStop = {SIGTSTP, SIGTTIN, SIGTTOU};
  sigset_t set;
  sigfillset(&set);
  for (const int number : kOwn) sigdelset(&set, number);
  if (whom == StandInFor::shell)
    for (const int number : kStop) sigdelset(&set, number);
  return set;
}

bool from_terminal(const siginfo_t& info) {
  return (info.si_signo == SIGINT || info.si_signo == SIGQUIT || info.si_signo == SIGWINCH) &&
         info.si_code == SI_KERNEL;
}

[[noreturn]] void die_by(int number) {
  // The core is the child's, and has been written.
  const rlimit none{0, 0};
  (void)setrlimit(RLIMIT_CORE, &none);
  (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  std::signal(number, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  (void)sigprocmask(SIG_UNBLOCK, &set, nullptr);
  (void)raise(number);
  _exit(128 + number);
}

/// The terminal stops a whole process group, and SIGCONT lets all of it go on: what it did to the child it did to this
/// process as well.
bool stopped_alone(pid_t child, int number) {
  return number == SIGSTOP || getpgid(child) != getpgrp();
}

/// Its entry in the process table is still there, and so is its process group.
bool has_ended(pid_t child) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child;
}

/// nullopt: still there. `group`: to be in again when the child has ended.
std::optional<int> look_at(Child& child, StandInFor whom, pid_t group) {
  int status = 0;
  for (;;) {
    if (group > 0 && has_ended(child.pid())) (void)setpgid(0, group);
    const pid_t found = waitpid(child.pid(), &status, WNOHANG | WUNTRACED);
    if (found != child.pid()) return std::nullopt;
    if (WIFSTOPPED(status)) {
      if (whom == StandInFor::shell && stopped_alone(found, WSTOPSIG(status))) (void)raise(SIGSTOP);
      continue;
    }
    (void)child.release();
    return status;
  }
}

/// The child's wait status.
int follow(Child& child, const sigset_t& watched, StandInFor whom, pid_t group) {
  for (;;) {
    siginfo_t info{};
    if (sigwaitinfo(&watched, &info) < 0) continue;
    if (info.si_signo != SIGCHLD && !from_terminal(info)) (void)child.signal(info.si_signo);
    if (const std::optional<int> ended = look_at(child, whom, group)) return *ended;
  }
}

/// A process can leave its group only for another one of the session, and a leader cannot lead a second: a short-lived
/// child leads that.
Result<void> leave_group() {
  TRY_ASSIGN(Child leader, fork_child());
  if (!leader) {
    (void)die_with_parent();
    for (;;) pause();
  }
  if (setpgid(leader.pid(), leader.pid()) == 0 && setpgid(0, leader.pid()) == 0) return {};
  return fail_errno(errno, "leave the task's process group");
}

bool act_last(const LastAct& last) {
  constexpr std::array<int, 9> kForPrograms = {SIGHUP,  SIGINT,  SIGQUIT, SIGUSR1, SIGUSR2,
                                               SIGALRM, SIGTSTP, SIGTTIN, SIGTTOU};
  for (const int number : {SIGTERM, SIGXCPU, SIGXFSZ}) (void)std::signal(number, SIG_DFL);
  for (const int number : kForPrograms) (void)std::signal(number, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, nullptr);
  return last.succeeds();
}

/// In the child.
void lead_group(bool foreground) {
  if (setpgid(0, 0) != 0 || !foreground) return;
  sigset_t stop;
  sigset_t before;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTTOU);
  (void)sigprocmask(SIG_BLOCK, &stop, &before);
  (void)tcsetpgrp(STDIN_FILENO, getpgrp());
  (void)sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

Result<std::optional<int>> stand_in_for_child(StandInFor whom, const LastAct* last) {
  if (whom == StandInFor::slurm_group && getsid(0) == getpid()) whom = StandInFor::slurm;
  const sigset_t watched = watched_signals(whom);
  const bool foreground = tcgetpgrp(STDIN_FILENO) == getpgrp();
  const pid_t group = whom == StandInFor::slurm_group ? getpgrp() : 0;
  sigset_t before;
  (void)sigprocmask(SIG_BLOCK, &watched, &before);
  auto child = fork_child();
  if (!child) {
    (void)sigprocmask(SIG_SETMASK, &before, nullptr);
    Error error = std::move(child).error();
    // The kernel's word for a PID namespace that has ended; no memory is missing.
    if (error.errnum() == ENOMEM)
      error = Error(error.kind(), error.message())
                  .with_code(ErrorCode::helper)
                  .with_hint("the container's first process has ended, and with it the container");
    return fail(std::move(error));
  }
  if (!*child) {
    TRY(die_with_parent());
    if (whom == StandInFor::slurm) lead_group(foreground);
    (void)sigprocmask(SIG_SETMASK, &before, nullptr);
    return std::optional<int>();
  }
  // At worst it gets a signal twice.
  if (group > 0) (void)leave_group();
  if (last != nullptr) {
    std::vector<int> keep = last->keep;
    if (child->pidfd() >= 0) keep.push_back(child->pidfd());
    close_other_fds(0, keep);
  }
  const int status = follow(*child, watched, whom, group);
  const bool good = last == nullptr || act_last(*last);
  if (WIFSIGNALED(status)) die_by(WTERMSIG(status));
  if (good || WEXITSTATUS(status) != 0) return std::optional<int>(WEXITSTATUS(status));
  return std::optional<int>(EXIT_FAILURE);
}

}  // namespace situla
