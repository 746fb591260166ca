// srun, sbatch, squeue and so on inside a container: one static program, called by many names, that has the step's
// proxy run the host's command of its name (hooks/slurm/README.md).
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "common/protocol/slurm_inside.hpp"
#include "common/spec/environment.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/process/run_program.hpp"
#include "common/sys/socket.hpp"
#include "hooks/slurm/messages.hpp"

extern "C" char** environ;

namespace situla {
namespace {

namespace line = slurm_line;

constexpr std::chrono::seconds kPatience{10};  ///< for the proxy's first word
/// What srun and its like would hear themselves. Others end or stop this program, whose end the proxy notices.
constexpr std::array kForwarded = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH};

Error no_proxy() {
  return Error(ErrorKind::failure, "the step of this container does not answer")
      .with_code(ErrorCode::slurm)
      .with_hint("it has ended, or its proxy was killed: Slurm's commands end with the step that began the container");
}

/// A copy of one of the three; of one that is closed, /dev/null.
Result<UniqueFd> standard_stream(int number) {
  if (auto copy = duplicate_fd(number, "standard stream " + std::to_string(number))) return copy;
  return open_file("/dev/null", O_RDWR);
}

/// A shell has put this program into the background: the terminal's input is not its own. The kernel would stop a
/// command that reads it, but the host's does not belong to this terminal.
bool in_background() {
  const pid_t foreground = isatty(STDIN_FILENO) != 0 ? tcgetpgrp(STDIN_FILENO) : -1;
  return foreground > 0 && foreground != getpgrp();
}

line::Request request_of(const std::string& command, const std::vector<std::string>& words) {
  line::Request request;
  request.command = command;
  request.arguments.assign(words.begin() + 1, words.end());
  for (char** entry = environ; *entry != nullptr; ++entry) request.environment.emplace_back(*entry);
  request.directory = current_directory();
  for (int which = 0; which < static_cast<int>(RLIM_NLIMITS); ++which) {
    rlimit limit{};
    request.limits.push_back(getrlimit(static_cast<__rlimit_resource_t>(which), &limit) == 0 ? limit.rlim_cur
                                                                                             : RLIM_INFINITY);
  }
  const mode_t mask = umask(0);
  (void)umask(mask);
  request.umask = mask;
  return request;
}

/// The terminal as it was, when the command was killed in the middle of --pty.
class TerminalState {
 public:
  TerminalState() : known_(tcgetattr(STDIN_FILENO, &before_) == 0) {}
  void restore() const {
    if (known_ && !in_background()) (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  }

 private:
  termios before_{};
  bool known_;
};

class Client {
 public:
  Client(UniqueFd socket, UniqueFd signals) : socket_(std::move(socket)), signals_(std::move(signals)) {}

  Result<void> ask(const line::Request& request, const StepToken& token) {
    TRY_ASSIGN(const UniqueFd memory, sealed_memory("situla-slurm", line::encode_request(request)));
    gave_terminal_ = !in_background() && isatty(STDIN_FILENO) != 0;
    TRY_ASSIGN(const UniqueFd input, in_background() ? open_file("/dev/null", O_RDONLY) : standard_stream(0));
    TRY_ASSIGN(const UniqueFd output, standard_stream(1));
    TRY_ASSIGN(const UniqueFd errors, standard_stream(2));
    TRY_ASSIGN(const UniqueFd mounts, open_file("/proc/self/mountinfo", O_RDONLY));
    return send_packet(socket_.get(), line::encode(line::Asked{line::second_half(token)}),
                       {memory.get(), input.get(), output.get(), errors.get(), mounts.get()});
  }

  /// Until the host's command has ended.
  Result<ExitStatus> run() {
    while (true) {
      std::array<pollfd, 2> wait = {{{socket_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}}};
      if (poll(wait.data(), wait.size(), -1) < 0) {
        if (errno == EINTR) continue;
        return fail_errno(errno, "wait for Slurm's command");
      }
      if (wait[1].revents != 0) TRY(on_signal());
      if (wait[0].revents == 0) continue;
      TRY_ASSIGN(auto packet, receive_packet(socket_.get(), line::kMaxMessageBytes));
      if (!packet) return fail(no_proxy());
      TRY_ASSIGN(const line::Message message, line::decode(packet->bytes));
      if (const auto* ended = std::get_if<line::Ended>(&message))
        return ExitStatus{static_cast<int>(ended->code), static_cast<int>(ended->signal)};
      TRY(on_message(message, packet->fds));
    }
  }

 private:
  [[nodiscard]] Result<void> say(const line::Message& message, const std::vector<int>& fds = {}) const {
    return send_packet(socket_.get(), line::encode(message), fds);
  }

  Result<void> on_message(const line::Message& message, std::vector<UniqueFd>& fds) {
    if (const auto* wanted = std::get_if<line::Open>(&message)) return open(*wanted);
    if (const auto* signal = std::get_if<line::Signal>(&message)) {
      if (inside_) (void)inside_.signal(static_cast<int>(signal->number));
      return {};
    }
    if (std::holds_alternative<line::RunInside>(message) && fds.size() == 1 && !inside_) return run_inside(fds[0]);
    return fail(ErrorKind::corrupt, "the step's proxy sent a message out of turn");
  }

  [[nodiscard]] Result<void> open(const line::Open& wanted) const {
    const auto file = open_file(wanted.path, wanted.directory ? O_PATH | O_DIRECTORY : O_RDONLY);
    if (!file) return say(line::Opened{static_cast<uint32_t>(file.error().errnum())});
    return say(line::Opened{}, {file->get()});
  }

  /// What salloc was to run: here, with what salloc knows of the allocation.
  Result<void> run_inside(const UniqueFd& memory) {
    TRY_ASSIGN(const std::string bytes, read_sealed_memory(memory.get(), line::kMaxRequestBytes));
    TRY_ASSIGN(const line::Inside wanted, line::decode_inside(bytes));
    auto environment = Environment::from_envp(environ);
    environment.merge(Environment::from_strings(wanted.environment));
    std::vector<std::string> command = wanted.command;
    if (command.empty()) {
      const std::string shell = environment.get_or("SHELL", "/bin/sh");
      command = {access(shell.c_str(), X_OK) == 0 ? shell : "/bin/sh"};
    }
    SpawnOptions options;
    options.program = command[0].find('/') != std::string::npos
                          ? command[0]
                          : find_program(command[0], environment.get_or("PATH", "/usr/bin:/bin"));
    options.arguments = command;
    options.environment = environment.strings();
    options.directory = wanted.directory.empty() ? current_directory() : wanted.directory;
    options.fds = {{0, 0}, {1, 1}, {2, 2}};
    auto child = options.program.empty() ? fail(Error(ErrorKind::not_found, command[0] + ": command not found"))
                                         : spawn(options);
    if (child) {
      inside_ = std::move(*child);
      return {};
    }
    std::fprintf(stderr, "salloc: error: %s\n", child.error().message().c_str());
    constexpr uint32_t kNotFound = 127;
    return say(line::Ended{kNotFound, 0});
  }

  Result<void> on_signal() {
    signalfd_siginfo info{};
    if (read(signals_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return {};
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) return on_child();
    // From the terminal; what runs inside hears it itself.
    if (inside_ && (number == SIGINT || number == SIGQUIT || number == SIGWINCH)) return {};
    // What runs inside has stopped as well; the shell wakes both.
    if (number != SIGTSTP) return say(line::Signal{info.ssi_signo});
    if (!inside_) TRY(say(line::Signal{SIGSTOP}));
    (void)raise(SIGSTOP);
    // The kernel stops who reads the terminal in the background, but not the host's command, whose session is another.
    // But for what is to end it: that is read after this.
    while (!inside_ && gave_terminal_ && in_background() && !has_news()) (void)raise(SIGSTOP);
    return inside_ ? Result<void>() : say(line::Signal{SIGCONT});
  }

  /// A signal, or something of the proxy's.
  [[nodiscard]] bool has_news() const {
    std::array<pollfd, 2> look = {{{signals_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}}};
    return poll(look.data(), look.size(), 0) > 0;
  }

  Result<void> on_child() {
    if (!inside_) return {};
    TRY_ASSIGN(const auto status, inside_.wait_for(std::chrono::milliseconds(0)));
    if (!status) return {};
    inside_ = Child();
    return say(line::Ended{static_cast<uint32_t>(status->code), static_cast<uint32_t>(status->signal)});
  }

  UniqueFd socket_, signals_;
  Child inside_;                ///< of salloc
  bool gave_terminal_ = false;  ///< to the host's command, as its standard input
};

/// Not before the proxy has shown what only the step's own knows.
Result<UniqueFd> connect(const SlurmDoor& door) {
  auto socket = connect_to(door.address);
  if (!socket) return fail(no_proxy());
  if (!wait_for_packet(socket->get(), kPatience)) return fail(no_proxy());
  const auto packet = receive_packet(socket->get(), line::kMaxMessageBytes);
  const auto message = packet && *packet ? line::decode((*packet)->bytes) : fail(no_proxy());
  const auto* hello = message ? std::get_if<line::Hello>(&*message) : nullptr;
  if (hello == nullptr || hello->token != line::first_half(door.token)) return fail(no_proxy());
  return std::move(*socket);
}

/// From here on they are read, and do nothing by themselves.
Result<UniqueFd> take_signals() {
  sigset_t set{};
  sigemptyset(&set);
  for (const int number : kForwarded) sigaddset(&set, number);
  sigaddset(&set, SIGTSTP);
  sigaddset(&set, SIGCHLD);
  (void)signal(SIGPIPE, SIG_IGN);
  if (sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return fail_errno(errno, "block signals");
  UniqueFd fd(signalfd(-1, &set, SFD_CLOEXEC));
  if (!fd) return fail_errno(errno, "signalfd");
  return fd;
}

Result<ExitStatus> run(const std::string& command, const std::vector<std::string>& words) {
  const char* text = getenv(kSlurmInsideVariable);
  const auto door = SlurmDoor::parse(text == nullptr ? "" : text);
  if (!door)
    return fail(Error(ErrorKind::not_found, "this process does not know of a step")
                    .with_code(ErrorCode::slurm)
                    .with_hint(std::string("tasks of srun have the variable ") + kSlurmInsideVariable +
                               ", which something has taken away"));
  TRY_ASSIGN(UniqueFd socket, connect(*door));
  const TerminalState terminal;
  TRY_ASSIGN(UniqueFd signals, take_signals());
  Client client(std::move(socket), std::move(signals));
  TRY(client.ask(request_of(command, words), door->token));
  auto status = client.run();
  if (!status || status->signal != 0) terminal.restore();
  return status;
}

/// As the command did.
int end_as(const ExitStatus& status) {
  if (status.signal == 0) return status.code;
  (void)signal(status.signal, SIG_DFL);
  sigset_t all{};
  sigfillset(&all);
  (void)sigprocmask(SIG_UNBLOCK, &all, nullptr);
  (void)raise(status.signal);
  constexpr int kBySignal = 128;
  return kBySignal + status.signal;
}

}  // namespace
}  // namespace situla

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  const std::string command = words.empty() ? "" : words[0].substr(words[0].rfind('/') + 1);
  const auto status = situla::run(command, words);
  if (status) return situla::end_as(*status);
  std::fprintf(stderr, "%s: error: situla: %s\n", command.c_str(), status.error().line().c_str());
  if (!status.error().hint().empty())
    std::fprintf(stderr, "%s: error: hint: %s\n", command.c_str(), status.error().hint().c_str());
  return 1;
}
