#include "common/sys/process/process.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <syslog.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/kernel.hpp"

namespace situla {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kKillLimit{5};

ExitStatus status_from_wait(int status) {
  ExitStatus result;
  if (WIFSIGNALED(status))
    result.signal = WTERMSIG(status);
  else
    result.code = WEXITSTATUS(status);
  return result;
}

struct SignalName {
  int number;
  std::string_view name;
};
/// sigabbrev_np(3) needs glibc 2.32.
constexpr std::array<SignalName, 31> kSignalNames = {{
    {SIGHUP, "SIGHUP"},       {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"},   {SIGILL, "SIGILL"},   {SIGTRAP, "SIGTRAP"},
    {SIGABRT, "SIGABRT"},     {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},     {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"},
    {SIGSEGV, "SIGSEGV"},     {SIGUSR2, "SIGUSR2"}, {SIGPIPE, "SIGPIPE"},   {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"},
    {SIGSTKFLT, "SIGSTKFLT"}, {SIGCHLD, "SIGCHLD"}, {SIGCONT, "SIGCONT"},   {SIGSTOP, "SIGSTOP"}, {SIGTSTP, "SIGTSTP"},
    {SIGTTIN, "SIGTTIN"},     {SIGTTOU, "SIGTTOU"}, {SIGURG, "SIGURG"},     {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"},
    {SIGVTALRM, "SIGVTALRM"}, {SIGPROF, "SIGPROF"}, {SIGWINCH, "SIGWINCH"}, {SIGPOLL, "SIGPOLL"}, {SIGPWR, "SIGPWR"},
    {SIGSYS, "SIGSYS"},
}};

std::string child_name(pid_t pid) {
  return "child process " + std::to_string(pid);
}

/// A zombie has ended. proc_pid_stat(5): "PID (NAME) STATE ...", where NAME may hold anything.
bool has_not_ended(int proc_directory) {
  const UniqueFd file(openat(proc_directory, "stat", O_RDONLY | O_CLOEXEC));
  std::array<char, 512> buffer{};
  const ssize_t size = file ? read(file.get(), buffer.data(), buffer.size()) : -1;
  if (size <= 0) return false;
  const std::string_view text(buffer.data(), static_cast<size_t>(size));
  const size_t name_end = text.rfind(')');
  return name_end == std::string_view::npos || text.substr(name_end, 3) != ") Z";
}

}  // namespace

std::string ExitStatus::text() const {
  if (signal == 0) return "exited with return code " + std::to_string(code);
  const auto* known = std::find_if(kSignalNames.begin(), kSignalNames.end(),
                                   [this](const SignalName& entry) { return entry.number == signal; });
  return "was killed by " +
         (known != kSignalNames.end() ? std::string(known->name) : "signal " + std::to_string(signal));
}

Child& Child::operator=(Child&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  return *this;
}

Child::~Child() {
  if (pid_ <= 0) return;
  const int saved = errno;
  // What the kernel waits for in its name (a file system that does not answer) no signal ends.
  if (signal(SIGKILL))
    if (const auto ended = wait_for(kKillLimit); ended && !*ended)
      syslog(LOG_ERR, "process %d does not end after SIGKILL: it is left to itself", static_cast<int>(pid_));
  errno = saved;
}

UniqueFd Child::release() {
  pid_ = -1;
  return std::move(pidfd_);
}

Result<std::optional<ExitStatus>> Child::reap(int flags) {
  int status = 0;
  const pid_t ended = kernel::uninterrupted([&] { return waitpid(pid_, &status, flags); });
  if (ended == 0) return std::optional<ExitStatus>();
  const int errnum = ended < 0 ? errno : 0;
  const pid_t pid = pid_;
  // ECHILD: the program we live in (slurmstepd) reaped it. It has ended, but how is lost.
  if (ended > 0 || errnum == ECHILD) pid_ = -1;
  if (ended < 0) return fail_errno(errnum, "wait for " + child_name(pid));
  return std::optional(status_from_wait(status));
}

Result<ExitStatus> Child::wait() {
  TRY_ASSIGN(const auto status, reap(0));
  return *status;
}

Result<std::optional<ExitStatus>> Child::wait_for(std::chrono::milliseconds time) {
  const auto deadline = Clock::now() + time;
  auto pause = std::chrono::milliseconds(1);
  for (;;) {
    TRY_ASSIGN(const auto ended, reap(WNOHANG));
    if (ended) return ended;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return std::optional<ExitStatus>();
    if (pidfd_) {
      pollfd item{pidfd_.get(), POLLIN, 0};
      (void)poll(&item, 1, static_cast<int>(std::min<int64_t>(left.count(), 3600 * 1000)));
    } else {
      std::this_thread::sleep_for(std::min(pause, left));
      pause = std::min(pause * 2, std::chrono::milliseconds(20));
    }
  }
}

Result<void> Child::signal(int number) const {
  if (pid_ <= 0) return fail(ErrorKind::not_found, "signal child process: it has ended already");
  if (pidfd_) return signal_pidfd(pidfd_.get(), number);
  // Without a pidfd the number is still ours as long as nobody has reaped the child.
  if (::kill(pid_, number) != 0) return fail_errno(errno, "signal " + child_name(pid_));
  return {};
}

Result<Child> fork_child() {
  const pid_t pid = fork();
  if (pid < 0) return fail_errno(errno, "fork");
  if (pid == 0) return Child();
  return Child(pid, UniqueFd(kernel::pidfd_open(pid)));
}

Result<void> die_with_parent() {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return fail_errno(errno, "ask for a signal at the parent's end");
  return {};
}

Result<void> run_when_idle() {
  const sched_param none{};
  if (sched_setscheduler(0, SCHED_IDLE, &none) != 0) return fail_errno(errno, "give way to other processes");
  return {};
}

Result<void> forbid_new_processes() {
  const rlimit none{0, 0};
  if (setrlimit(RLIMIT_NPROC, &none) != 0) return fail_errno(errno, "give up the right to start processes");
  return {};
}

Result<void> give_way(int steps) {
  errno = 0;
  const int before = getpriority(PRIO_PROCESS, 0);  // of the thread: threads have nice values of their own on Linux
  if (before == -1 && errno != 0) return fail_errno(errno, "read the priority of a thread");
  if (setpriority(PRIO_PROCESS, 0, before + steps) != 0) return fail_errno(errno, "lower the priority of a thread");
  return {};
}

Result<UniqueFd> open_pidfd(pid_t pid) {
  UniqueFd fd(kernel::pidfd_open(pid));
  if (!fd) return fail_errno(errno, "open a descriptor of process " + std::to_string(pid));
  return fd;
}

Result<void> signal_pidfd(int pidfd, int number) {
  if (kernel::pidfd_send_signal(pidfd, number) != 0) return fail_errno(errno, "signal process by descriptor");
  return {};
}

Result<ProcessEnd> ProcessEnd::of(pid_t pid, bool by_pidfd) {
  if (by_pidfd) {
    auto process = open_pidfd(pid);
    if (process) return ProcessEnd(std::move(*process), true);
    if (process.error().errnum() != ENOSYS) return fail(std::move(process).error());
  }
  // The directory stays that of this process: nothing is found in it once the number is somebody else's.
  TRY_ASSIGN(UniqueFd directory, open_file("/proc/" + std::to_string(pid), O_PATH | O_DIRECTORY));
  return ProcessEnd(std::move(directory), false);
}

void ProcessEnd::wait() const {
  constexpr auto kLookAgain = std::chrono::milliseconds(100);
  pollfd end{fd_.get(), POLLIN, 0};
  if (is_pidfd_)
    (void)kernel::uninterrupted([&] { return poll(&end, 1, -1); });
  else
    while (has_not_ended(fd_.get())) std::this_thread::sleep_for(kLookAgain);
}

void take_program_name() {
  (void)prctl(PR_SET_NAME, program_invocation_short_name);
}

ProcessName::ProcessName(const char* name) {
  (void)prctl(PR_GET_NAME, before_.data());
  (void)prctl(PR_SET_NAME, name);
}

ProcessName::~ProcessName() {
  (void)prctl(PR_SET_NAME, before_.data());
}

void reset_signals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  // SIGKILL, SIGSTOP and the two that libc keeps to itself refuse; nothing to be done about that.
  for (int number = 1; number < NSIG; ++number) (void)sigaction(number, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, nullptr);
}

void close_other_fds(int first, const std::vector<int>& keep) {
  std::vector<int> sorted = keep;
  std::sort(sorted.begin(), sorted.end());
  auto next = static_cast<unsigned>(first);
  const auto close_gap = [](unsigned from, unsigned to) {
    if (from > to) return;
    if (kernel::close_range(from, to, 0) == 0) return;
    // Before Linux 5.9: only what is really open, because the limit on descriptors can be a million.
    const auto open = list_directory("/proc/self/fd");
    for (const std::string& name : open.value_or(std::vector<std::string>()))
      if (const auto fd = parse_unsigned(name); fd && *fd >= from && *fd <= to) ::close(static_cast<int>(*fd));
    // Where /proc is another PID namespace's: more than a process has, as a rule.
    constexpr unsigned kMost = 65536;
    for (unsigned fd = from; !open && fd <= std::min(to, kMost); ++fd) ::close(static_cast<int>(fd));
  };
  for (const int fd : sorted) {
    if (fd < first || static_cast<unsigned>(fd) < next) continue;
    if (static_cast<unsigned>(fd) > next) close_gap(next, static_cast<unsigned>(fd) - 1);
    next = static_cast<unsigned>(fd) + 1;
  }
  close_gap(next, ~0U);
}

}  // namespace situla
