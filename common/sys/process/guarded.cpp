#include "common/sys/process/guarded.hpp"

#include <csignal>
#include <cstring>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/socket.hpp"

namespace situla {
namespace {

constexpr size_t kMaxAnswer = 8192;
constexpr int kLookAgainMs = 100;

/// Kills children until there are none: those of a killed process become ours, because we are a subreaper.
void kill_descendants() {
  const std::string list = "/proc/self/task/" + std::to_string(getpid()) + "/children";
  do {
    const auto children = read_file(list);
    if (!children) return;  // the program itself dies with us (PR_SET_PDEATHSIG)
    for (const std::string_view word : split_words(*children))
      if (const auto pid = parse_unsigned(word)) (void)kill(static_cast<pid_t>(*pid), SIGKILL);
  } while (waitpid(-1, nullptr, 0) > 0 || errno == EINTR);
}

/// As the program ended, for whoever waits for us.
[[noreturn]] void end_like(const ExitStatus& status) {
  if (status.signal != 0) {
    const rlimit none{0, 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    reset_signals();
    (void)raise(status.signal);
  }
  _exit(status.signal != 0 ? 128 + status.signal : status.code);
}

Result<Child> spawn_adopting(const SpawnOptions& options, bool keep_capabilities) {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) return fail_errno(errno, "become a subreaper");
  if (keep_capabilities) TRY(keep_capabilities_over_exec());
  return spawn(options);
}

[[noreturn]] void guard(int line, const SpawnOptions& options, bool keep_capabilities) {
  // Ctrl-C reaches the whole process group; who ends whom is not decided by that.
  for (const int number : {SIGINT, SIGQUIT, SIGTERM, SIGHUP}) (void)std::signal(number, SIG_IGN);
  auto program = spawn_adopting(options, keep_capabilities);
  if (!program) {
    (void)send_packet(line, std::to_string(program.error().errnum()) + '\n' + program.error().message());
    _exit(127);
  }
  (void)send_packet(line, "ok");
  // Nothing of our parent's may be kept open by us.
  std::vector<int> kept = {0, 1, 2, line};
  if (program->pidfd() >= 0) kept.push_back(program->pidfd());
  close_other_fds(3, kept);
  for (;;) {
    pollfd entries[] = {{line, POLLIN, 0}, {program->pidfd(), POLLIN, 0}};
    (void)poll(entries, 2, program->pidfd() >= 0 ? -1 : kLookAgainMs);
    if (const auto status = program->wait_for(std::chrono::milliseconds(0)); !status || *status)
      end_like(status ? **status : ExitStatus{127, 0});
    if (entries[0].revents == 0) continue;
    kill_descendants();
    _exit(128 + SIGKILL);
  }
}

Error exec_error(std::string_view answer) {
  const auto parts = cut(answer, '\n');
  if (!parts) return {ErrorKind::failure, "start a program: its guard answered nothing"};
  const int errnum = static_cast<int>(parse_unsigned(parts->first).value_or(0));
  if (errnum == 0) return {ErrorKind::failure, std::string(parts->second)};
  // The message ends with the errno's text already.
  std::string what(parts->second);
  const std::string tail = Error::from_errno(errnum, "").message();
  if (what.ends_with(tail)) what.resize(what.size() - tail.size());
  return Error::from_errno(errnum, what);
}

}  // namespace

GuardedProgram::~GuardedProgram() {
  if (!guard_) return;
  line_.reset();
  (void)guard_.wait();
}

Result<GuardedProgram> spawn_guarded(const SpawnOptions& options, bool keep_capabilities) {
  TRY_ASSIGN(auto sockets, socket_pair());
  TRY_ASSIGN(Child child, fork_child());
  if (!child) {
    sockets.first.reset();
    guard(sockets.second.get(), options, keep_capabilities);
  }
  sockets.second.reset();
  GuardedProgram program(std::move(child), std::move(sockets.first));
  TRY_ASSIGN(const auto answer, receive_packet(program.line_.get(), kMaxAnswer));
  if (!answer || answer->bytes != "ok") return fail(exec_error(answer ? answer->bytes : ""));
  return program;
}

}  // namespace situla
