#include "common/sys/stand_in.hpp"

#include <array>
#include <cerrno>
#include <csignal>

#include <sys/wait.h>
#include <unistd.h>

#include "common/sys/process.hpp"

namespace situla {
namespace {

/// Sent to this process by number: the command has to have them. SIGINT, SIGQUIT and SIGTSTP come from the terminal, to
/// the whole process group, and so to the child as well.
constexpr std::array<int, 8> kPassedOn = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGINT, SIGQUIT};

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kPassedOn) sigaddset(&set, number);
  sigaddset(&set, SIGCHLD);
  return set;
}

bool from_terminal(const siginfo_t& info) {
  return (info.si_signo == SIGINT || info.si_signo == SIGQUIT) && info.si_code == SI_KERNEL;
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

/// nullopt: still there. Stops with it; SIGCONT is passed on.
std::optional<int> look_at(Child& child) {
  int status = 0;
  for (;;) {
    const pid_t found = waitpid(child.pid(), &status, WNOHANG | WUNTRACED);
    if (found != child.pid()) return std::nullopt;
    if (WIFSTOPPED(status)) {
      if (stopped_alone(found, WSTOPSIG(status))) (void)raise(SIGSTOP);
      continue;
    }
    (void)child.release();
    if (WIFSIGNALED(status)) die_by(WTERMSIG(status));
    return WEXITSTATUS(status);
  }
}

int follow(Child& child, const sigset_t& watched, Signalled signalled) {
  for (;;) {
    siginfo_t info{};
    if (sigwaitinfo(&watched, &info) < 0) continue;
    const bool for_child = signalled == Signalled::alone && info.si_signo != SIGCHLD && !from_terminal(info);
    if (for_child) (void)child.signal(info.si_signo);
    if (const std::optional<int> ended = look_at(child)) return *ended;
  }
}

}  // namespace

Result<std::optional<int>> stand_in_for_child(Signalled signalled) {
  const sigset_t watched = watched_signals();
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
    (void)sigprocmask(SIG_SETMASK, &before, nullptr);
    return std::optional<int>();
  }
  return std::optional<int>(follow(*child, watched, signalled));
}

}  // namespace situla
