#include "hooks/run/init_process.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <set>
#include <string>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/mount_table.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"

namespace situla {
namespace {

constexpr size_t kMaxWord = 64;

/// What we pass on when somebody sends it to us. What the terminal sends reaches the command by itself.
constexpr std::array<int, 11> kForwarded = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2,
                                            SIGALRM, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU};

sigset_t forwarded_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kForwarded) sigaddset(&set, number);
  return set;
}

/// What hooks and a site have mounted beneath /proc (covers of a driver's files, lxcfs).
struct KeptMount {
  std::string path;
  DetachedMount mount;
};

/// While /proc is that of the namespace in which this process is. What cannot be had again is left out.
std::vector<KeptMount> mounts_beneath_proc() {
  std::vector<KeptMount> kept;
  const auto table = modern_mount_api() ? mount_table() : fail(ErrorKind::unsupported, "");
  if (!table) return kept;
  std::set<std::string> paths;
  for (const MountRecord& mount : *table)
    if (mount.path.starts_with("/proc/")) paths.insert(mount.path);
  for (const std::string& path : paths) {
    const bool beneath = std::any_of(kept.begin(), kept.end(), [&](const KeptMount& other) {
      return path.starts_with(other.path + "/");  // it comes with that one
    });
    const auto top = beneath ? fail(ErrorKind::exists, "") : open_file(path, O_PATH | O_NOFOLLOW);
    auto clone = top ? clone_tree(top->get(), true) : fail(top.error());
    if (clone) kept.push_back({path, std::move(*clone)});
  }
  return kept;
}

/// A new /proc while the old one is still seen, without which the kernel allows none in a user namespace.
Result<void> mount_own_proc(const std::vector<KeptMount>& kept) {
  constexpr MountFlags kFlags = {.no_suid = true, .no_dev = true, .no_exec = true};
  if (!modern_mount_api()) {
    TRY_ASSIGN(const UniqueFd point, open_file("/proc", O_PATH | O_DIRECTORY));
    return mount_new_at(point.get(), "proc", "proc", {}, kFlags, "/proc");
  }
  TRY_ASSIGN(const DetachedMount proc, new_mount("proc", "proc", {}, kFlags));
  (void)unmount("/proc", true);
  TRY_ASSIGN(const UniqueFd point, open_file("/proc", O_PATH | O_DIRECTORY));
  TRY(proc.attach(point.get()));
  // Where the new one has no such place, there is nothing to be covered.
  for (const KeptMount& mount : kept)
    if (const auto place = open_file(mount.path, O_PATH | O_NOFOLLOW)) (void)mount.mount.attach(place->get());
  return {};
}

Error no_own_proc(Error error) {
  return std::move(error)
      .with_context("PID namespace of the container")
      .with_code(ErrorCode::namespaces)
      .with_hint("a node that hides parts of its own /proc allows no new one: do without a PID namespace");
}

[[noreturn]] void fail_in_child(const Error& error, LogSink& log) {
  log.error(error.line());
  if (!error.hint().empty()) (void)write_all(STDERR_FILENO, "hint: " + error.hint() + "\n");
  _exit(1);
}

/// Process 1: tells the parent what becomes of the command ("stop", or its wait status), and ends with it.
[[noreturn]] void be_init(int parent, const std::vector<KeptMount>& kept, const sigset_t& mask,
                          const std::function<Error()>& become, LogSink& log) {
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  // It may have died before; its number says nothing here, its end of the line does.
  pollfd line{parent, 0, 0};
  if (poll(&line, 1, 0) > 0) _exit(1);
  (void)prctl(PR_SET_NAME, "situla-init");
  if (auto mounted = mount_own_proc(kept); !mounted) fail_in_child(no_own_proc(std::move(mounted).error()), log);
  auto command = fork_child();
  if (!command) fail_in_child(command.error(), log);
  if (!*command) {
    (void)sigprocmask(SIG_SETMASK, &mask, nullptr);
    fail_in_child(become(), log);
  }
  const pid_t pid = command->pid();
  std::vector<int> fds;
  if (command->pidfd() >= 0) fds.push_back(command->pidfd());
  (void)send_packet(parent, "started", fds);
  close_other_fds(3, {parent});
  for (;;) {
    int status = 0;
    const pid_t changed = waitpid(-1, &status, WUNTRACED);
    if (changed < 0 && errno != EINTR) _exit(1);
    if (changed != pid) continue;
    (void)send_packet(parent, WIFSTOPPED(status) ? "stop" : std::to_string(status));
    if (!WIFSTOPPED(status)) _exit(0);
  }
}

int end_like(int status) {
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  const rlimit none{0, 0};
  (void)setrlimit(RLIMIT_CORE, &none);
  reset_signals();
  (void)raise(WTERMSIG(status));
  return 128 + WTERMSIG(status);
}

/// The side that the caller of `start` sees.
class Watcher {
 public:
  Watcher(Child init, UniqueFd line, UniqueFd signals)
      : init_(std::move(init)), line_(std::move(line)), signals_(std::move(signals)) {}

  Result<int> watch() {
    for (;;) {
      // Signals that come before the command is known wait for it.
      std::array<pollfd, 2> entries = {{{line_.get(), POLLIN, 0}, {started_ ? signals_.get() : -1, POLLIN, 0}}};
      if (poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR)
        return fail_errno(errno, "wait for the command");
      if (entries[1].revents != 0) forward();
      if (entries[0].revents == 0) continue;
      TRY_ASSIGN(auto packet, receive_packet(line_.get(), kMaxWord));
      if (!packet) return end_without_word();
      if (packet->bytes == "started") {
        started_ = true;
        if (!packet->fds.empty()) command_ = std::move(packet->fds[0]);
      } else if (packet->bytes == "stop") {
        stop();
      } else {
        const int status = static_cast<int>(parse_unsigned(packet->bytes).value_or(0));
        (void)init_.wait();
        return end_like(status);
      }
    }
  }

 private:
  void signal_command(int number) {
    if (command_) return (void)signal_pidfd(command_.get(), number);
    // Before Linux 5.3 the command has no name here. Who wants it to end shall have that, if less gently.
    if (number == SIGTERM || number == SIGINT || number == SIGQUIT || number == SIGHUP) (void)init_.signal(SIGKILL);
  }

  void forward() {
    signalfd_siginfo info{};
    if (read(signals_.get(), &info, sizeof info) != sizeof info) return;
    // si_code > 0: from the kernel, so the terminal's, which the command has got as well.
    if (info.ssi_code <= 0) signal_command(static_cast<int>(info.ssi_signo));
  }

  /// Stops as the command did, for the shell whose job we are, and goes on with it.
  void stop() {
    (void)raise(SIGSTOP);
    signal_command(SIGCONT);
  }

  /// Process 1 failed before the command, and has said why, or was killed.
  Result<int> end_without_word() {
    TRY_ASSIGN(const ExitStatus status, init_.wait());
    return status.signal != 0 ? 128 + status.signal : status.code;
  }

  Child init_;
  UniqueFd line_, signals_, command_;
  bool started_ = false;
};

/// Process 1 of a step: SIGCHLD is ignored, so that the kernel reaps for it.
[[noreturn]] void idle_as_init(const UniqueFd& line, const std::vector<KeptMount>& kept) {
  (void)prctl(PR_SET_NAME, "situla-init");
  (void)setsid();
  (void)std::signal(SIGCHLD, SIG_IGN);
  for (const int number : {SIGHUP, SIGINT, SIGTERM, SIGQUIT}) (void)std::signal(number, SIG_IGN);
  const auto mounted = mount_own_proc(kept);
  (void)send_packet(line.get(), mounted ? "started" : mounted.error().message());
  if (!mounted) _exit(1);
  close_other_fds(0, {line.get()});
  pollfd end{line.get(), POLLIN, 0};
  while (poll(&end, 1, -1) < 0 && errno == EINTR) continue;
  _exit(0);
}

}  // namespace

Result<StepInit> start_init() {
  constexpr size_t kMaxAnswer = 4096;
  const std::vector<KeptMount> kept = mounts_beneath_proc();
  TRY_ASSIGN(auto sockets, socket_pair());
  TRY(unshare_namespaces(kPidNs));
  TRY_ASSIGN(Child init, fork_child());
  if (!init) {
    sockets.first.reset();
    idle_as_init(sockets.second, kept);
  }
  sockets.second.reset();
  const pid_t pid = init.pid();
  (void)init.release();
  TRY_ASSIGN(const auto answer, receive_packet(sockets.first.get(), kMaxAnswer));
  if (answer && answer->bytes == "started") return StepInit{std::move(sockets.first), pid};
  return fail(no_own_proc(Error(ErrorKind::unsupported, answer ? answer->bytes : "process 1 died")));
}

Result<int> run_as_init(const std::function<Error()>& become, LogSink& log) {
  const std::vector<KeptMount> kept = mounts_beneath_proc();
  const sigset_t ours = forwarded_signals();
  sigset_t before;
  if (sigprocmask(SIG_BLOCK, &ours, &before) != 0) return fail_errno(errno, "block signals");
  UniqueFd signals(signalfd(-1, &ours, SFD_CLOEXEC));
  if (!signals) return fail_errno(errno, "create a signal descriptor");
  TRY_ASSIGN(auto sockets, socket_pair());
  TRY(unshare_namespaces(kPidNs));
  TRY_ASSIGN(Child init, fork_child());
  if (!init) {
    sockets.first.reset();
    signals.reset();
    be_init(sockets.second.get(), kept, before, become, log);
  }
  sockets.second.reset();
  return Watcher(std::move(init), std::move(sockets.first), std::move(signals)).watch();
}

}  // namespace situla
