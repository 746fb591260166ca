#include "common/sys/stand_in.hpp"

#include <array>
#include <cerrno>
#include <csignal>

#include <sys/wait.h>
#include <unistd.h>

#include "common/sys/process.hpp"

namespace situla {
namespace {

/// Sent to this process by number, the command has to have all of them but those that tell of this process itself. The
/// terminal sends some to the whole process group, and so to the child as well.
sigset_t watched_signals() {
  constexpr std::array<int, 9> kOwn = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGTSTP, SIGTTIN, SIGTTOU};
  sigset_t set;
  sigfillset(&set);
  for (const int number : kOwn) sigdelset(&set, number);
  return set;
}

bool from_terminal(const siginfo_t& info) {
  return (info.si_signo == SIGINT || info.si_signo == SIGQUIT || info.si_signo == SIGWINCH) &&
         info.si_code == SI_KERNEL;
}

[[noreturn]] void die_by(int number) {
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

/// nullopt: still there.
std::optional<int> look_at(Child& child, StandInFor whom) {
  int status = 0;
  for (;;) {
    const pid_t found = waitpid(child.pid(), &status, WNOHANG | WUNTRACED);
    if (found != child.pid()) return std::nullopt;
    if (WIFSTOPPED(status)) {
      if (whom == StandInFor::shell && stopped_alone(found, WSTOPSIG(status))) (void)raise(SIGSTOP);
      continue;
    }
    (void)child.release();
    if (WIFSIGNALED(status)) die_by(WTERMSIG(status));
    return WEXITSTATUS(status);
  }
}

int follow(Child& child, const sigset_t& watched, StandInFor whom) {
  for (;;) {
    siginfo_t info{};
    if (sigwaitinfo(&watched, &info) < 0) continue;
    if (info.si_signo != SIGCHLD && !from_terminal(info)) (void)child.signal(info.si_signo);
    if (const std::optional<int> ended = look_at(child, whom)) return *ended;
  }
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

Result<std::optional<int>> stand_in_for_child(StandInFor whom) {
  const sigset_t watched = watched_signals();
  const bool foreground = tcgetpgrp(STDIN_FILENO) == getpgrp();
  sigset_t before;
  (void)sigprocmask(SIG_BLOCK, &watched, &before);
  auto child = fork_child();
  if (!child) {
    (void)sigprocmask(SIG_SETMASK, &before, nullptr);
    Error error = std::move(child).error();
    if (error.errnum() == ENOMEM) error.with_hint("the container's first process has ended, and with it the container");
    return fail(std::move(error));
  }
  if (!*child) {
    TRY(die_with_parent());
    if (whom == StandInFor::slurm) lead_group(foreground);
    (void)sigprocmask(SIG_SETMASK, &before, nullptr);
    return std::optional<int>();
  }
  return std::optional<int>(follow(*child, watched, whom));
}

}  // namespace situla
