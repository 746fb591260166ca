#include "hooks/slurm/session.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/base64.hpp"
#include "common/base/text.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"
#include "hooks/slurm/host_command.hpp"
#include "hooks/slurm/messages.hpp"
#include "hooks/slurm/outside.hpp"

extern "C" char** environ;

namespace situla {
namespace {

namespace line = slurm_line;

constexpr std::chrono::seconds kPatience{10};         ///< for a client's next word
constexpr std::chrono::milliseconds kGrace{2500};     ///< between SIGTERM and SIGKILL: srun cancels its step
constexpr size_t kMostMounts = size_t{16} << 20U;     ///< bytes of a mountinfo
constexpr int kHelperSocket = 3, kHelperRequest = 4;  ///< of `situla-slurm-proxy run-inside`

struct Asked {
  line::Request request;
  UniqueFd input, output, errors;
  std::string mounts;  ///< the container's
};

Result<std::pair<line::Message, std::vector<UniqueFd>>> next_message(int socket) {
  TRY(wait_for_packet(socket, kPatience));
  TRY_ASSIGN(auto packet, receive_packet(socket, line::kMaxMessageBytes));
  if (!packet) return fail(ErrorKind::cancelled, "the command has gone");
  TRY_ASSIGN(line::Message message, line::decode(packet->bytes));
  return std::pair(std::move(message), std::move(packet->fds));
}

Result<Asked> read_request(int socket, const StepToken& token) {
  TRY_ASSIGN(auto next, next_message(socket));
  auto& [message, fds] = next;
  constexpr size_t kDescriptors = 5;
  const auto* shown = std::get_if<line::Asked>(&message);
  if (shown == nullptr || shown->token != line::second_half(token) || fds.size() != kDescriptors)
    return fail(ErrorKind::corrupt, "a command in the container asked for nothing");
  Asked asked;
  TRY_ASSIGN(const std::string bytes, read_sealed_memory(fds[0].get(), line::kMaxRequestBytes));
  TRY_ASSIGN(asked.request, line::decode_request(bytes));
  asked.input = std::move(fds[1]);
  asked.output = std::move(fds[2]);
  asked.errors = std::move(fds[3]);
  TRY_ASSIGN(asked.mounts, read_all(fds[4].get(), kMostMounts));
  return asked;
}

/// srun hands its own limits on to the tasks (PropagateResourceLimits): those of who typed it, as far as this process
/// may have them, for as long as the command is started.
class TakenLimits {
 public:
  explicit TakenLimits(const line::Request& request) {
    for (size_t which = 0; which < std::min(request.limits.size(), before_.size()); ++which) {
      const auto resource = static_cast<__rlimit_resource_t>(which);
      if (getrlimit(resource, &before_.at(which)) != 0) continue;
      rlimit limit = before_.at(which);
      // To start it takes some.
      const rlim_t least = resource == RLIMIT_NOFILE ? kLeastFiles : 0;
      limit.rlim_cur = std::min(std::max<rlim_t>(request.limits[which], least), limit.rlim_max);
      taken_.at(which) = setrlimit(resource, &limit) == 0;
    }
    (void)umask(request.umask & kMode);
  }
  TakenLimits(const TakenLimits&) = delete;
  TakenLimits& operator=(const TakenLimits&) = delete;
  ~TakenLimits() {
    for (size_t which = 0; which < before_.size(); ++which)
      if (taken_.at(which)) (void)setrlimit(static_cast<__rlimit_resource_t>(which), &before_.at(which));
  }

 private:
  static constexpr uint32_t kMode = 0777;
  static constexpr rlim_t kLeastFiles = 64;
  std::array<rlimit, RLIM_NLIMITS> before_{};
  std::array<bool, RLIM_NLIMITS> taken_{};
};

bool is_offered(const StepOutside& step, const std::string& command) {
  const auto& commands = step.input.commands;
  return is_slurm_command(command) && std::find(commands.begin(), commands.end(), command) != commands.end();
}

/// Where the command begins on the host: where it was typed, else where the job is.
std::string directory_outside(const HostCommand& command, const StepOutside& step) {
  for (const std::string& path : {command.directory, step.input.directory})
    if (!path.empty() && access(path.c_str(), X_OK) == 0) return path;
  return "/";
}

class Session {
 public:
  Session(const StepOutside& step, const UniqueFd& client, Asked asked, UniqueFd signals)
      : step_(step), client_(client.get()), asked_(std::move(asked)), signals_(std::move(signals)) {}

  [[nodiscard]] int errors() const { return asked_.errors.get(); }
  [[nodiscard]] const std::string& name() const { return asked_.request.command; }

  Result<ExitStatus> run() {
    if (!is_offered(step_, name()))
      return fail(Error(ErrorKind::denied, "containers are not offered it on this cluster")
                      .with_code(ErrorCode::slurm)
                      .with_hint("administrators: slurm_inside in situla.toml"));
    const Environment inside = Environment::from_strings(asked_.request.environment);
    // Of an allocation that was made in here the step holds nothing.
    const bool other_job = inside.get_or("SLURM_JOB_ID", "") != step_.environment.get_or("SLURM_JOB_ID", "");
    const TypedIn typed_in{step_.input.batch || other_job, has_dropped_image(inside, step_.environment)};
    TRY_ASSIGN(HostCommand command, host_command(asked_.request, files(), typed_in));
    TRY(start(command, inside));
    return wait();
  }

 private:
  ContainerFiles files() {
    ContainerFiles files;
    files.open = [this](const std::string& path) { return ask_for(path, false); };
    files.host_path = [this](const std::string& path) -> Result<std::optional<std::string>> {
      TRY_ASSIGN(const UniqueFd directory, ask_for(path, true));
      return host_path(directory.get(), asked_.mounts);
    };
    return files;
  }

  /// Has the client open something. Who is told to end meanwhile begins nothing.
  [[nodiscard]] Result<UniqueFd> ask_for(const std::string& path, bool directory) const {
    TRY(send_packet(client_, line::encode(line::Open{path, directory})));
    while (true) {
      TRY_ASSIGN(auto next, next_message(client_));
      auto& [message, fds] = next;
      if (const auto* signal = std::get_if<line::Signal>(&message)) {
        const auto number = static_cast<int>(signal->number);
        if (number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT)
          return fail(ErrorKind::cancelled, "");
        continue;
      }
      const auto* opened = std::get_if<line::Opened>(&message);
      if (opened == nullptr) return fail(ErrorKind::corrupt, "a command in the container sent a message out of turn");
      if (opened->errnum != 0) return fail_errno(static_cast<int>(opened->errnum), "open " + printable(path));
      if (fds.size() == 1) return std::move(fds[0]);
      return fail(ErrorKind::corrupt, "a command in the container sent no file");
    }
  }

  Result<void> start(HostCommand& command, const Environment& inside) {
    Environment environment =
        host_environment(command.same_container, inside, step_.environment, step_.input.slurm_conf);
    if (command.same_container)
      environment.set(
          kSameContainerVariable,
          encode_base64(
              same_container({step_.spec, step_.input.directory, step_.input.digest}, command.workdir).serialize()));
    SpawnOptions options;
    options.program = step_.input.programs + "/" + name();
    options.arguments = {name()};
    options.arguments.insert(options.arguments.end(), command.arguments.begin(), command.arguments.end());
    options.environment = environment.strings();
    options.directory = directory_outside(command, step_);
    options.fds = {{asked_.input.get(), 0}, {asked_.output.get(), 1}, {asked_.errors.get(), 2}};
    // Not the terminal's session: what a key does, the client says.
    options.new_session = true;
    for (size_t i = 0; i < command.files.size(); ++i)
      options.fds.emplace_back(command.files[i].get(), kFirstFile + static_cast<int>(i));
    UniqueFd theirs, request;
    if (command.inside) TRY(add_helper(options, *command.inside, theirs, request));
    auto child = [&] {
      const TakenLimits limits(asked_.request);
      return spawn(options);
    }();
    if (!child) return fail(std::move(child).error().with_code(ErrorCode::slurm));
    child_ = std::move(*child);
    return {};
  }

  /// salloc's own command: it says what salloc knows, and the client runs what was typed.
  Result<void> add_helper(SpawnOptions& options, const line::Inside& inside, UniqueFd& theirs, UniqueFd& request) {
    TRY_ASSIGN(auto sockets, socket_pair());
    helper_ = std::move(sockets.first);
    theirs = std::move(sockets.second);
    TRY_ASSIGN(request, sealed_memory("situla-inside", line::encode_inside(inside)));
    TRY_ASSIGN(const std::string program, find_installed("situla-slurm-proxy"));
    for (const std::string& word :
         {program, std::string("run-inside"), std::to_string(kHelperSocket), std::to_string(kHelperRequest)})
      options.arguments.push_back(word);
    // The terminal is that of what runs inside. Where its input is none of salloc's, salloc wants no job control.
    TRY_ASSIGN(asked_.input, open_file("/dev/null", O_RDONLY));
    options.fds[0] = {asked_.input.get(), 0};
    options.fds.emplace_back(theirs.get(), kHelperSocket);
    options.fds.emplace_back(request.get(), kHelperRequest);
    return {};
  }

  Result<ExitStatus> wait() {
    while (true) {
      std::array<pollfd, 3> entries = {
          {{client_, POLLIN, 0}, {signals_.get(), POLLIN, 0}, {helper_ ? helper_.get() : -1, POLLIN, 0}}};
      if (poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR)
        return fail_errno(errno, "wait for Slurm's command");
      if (entries[1].revents != 0) {
        TRY_ASSIGN(const auto ended, on_signal());
        if (ended) return *ended;
      }
      if (entries[2].revents != 0) on_helper();
      if (entries[0].revents != 0 && !on_client()) return give_up();
    }
  }

  /// The command has ended, or this process is to.
  Result<std::optional<ExitStatus>> on_signal() {
    signalfd_siginfo info{};
    if (read(signals_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info))
      return std::optional<ExitStatus>();
    if (info.ssi_signo == SIGCHLD) return child_.wait_for(std::chrono::milliseconds(0));
    return give_up().map([](const ExitStatus& status) { return std::optional(status); });
  }

  /// False: it has gone.
  bool on_client() {
    auto packet = receive_packet(client_, line::kMaxMessageBytes);
    if (!packet || !*packet) return false;
    const auto message = line::decode((*packet)->bytes);
    if (!message) return false;
    if (const auto* signal = std::get_if<line::Signal>(&*message))
      (void)child_.signal(static_cast<int>(signal->number));
    if (std::holds_alternative<line::Ended>(*message) && helper_) (void)send_packet(helper_.get(), (*packet)->bytes);
    return true;
  }

  /// What it says goes to the client as it is, with its memory file.
  void on_helper() {
    const auto packet = receive_packet(helper_.get(), line::kMaxMessageBytes);
    if (!packet || !*packet) return helper_.reset();
    std::vector<int> fds;
    for (const UniqueFd& fd : (*packet)->fds) fds.push_back(fd.get());
    (void)send_packet(client_, (*packet)->bytes, fds);
  }

  /// salloc waits for what it runs, whatever it is sent.
  Result<ExitStatus> give_up() {
    helper_.reset();
    (void)child_.signal(SIGCONT);
    (void)child_.signal(SIGTERM);
    TRY_ASSIGN(const auto status, child_.wait_for(kGrace));
    if (status) return *status;
    (void)child_.signal(SIGKILL);
    return child_.wait();
  }

  const StepOutside& step_;
  int client_;
  Asked asked_;
  UniqueFd signals_;
  UniqueFd helper_;  ///< of salloc
  Child child_;
};

Result<UniqueFd> take_signals(std::initializer_list<int> numbers) {
  sigset_t set{};
  sigemptyset(&set);
  for (const int number : numbers) sigaddset(&set, number);
  if (sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return fail_errno(errno, "block signals");
  UniqueFd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return fail_errno(errno, "signalfd");
  return fd;
}

void say_error(int errors, const std::string& command, const Error& error) {
  if (error.kind() == ErrorKind::cancelled) return;
  std::string text = command + ": error: situla: " + printable(error.line()) + "\n";
  if (!error.hint().empty()) text += command + ": error: hint: " + printable(error.hint()) + "\n";
  (void)write_all(errors, text);
}

}  // namespace

void serve_command(const StepOutside& step, const UniqueFd& client) {
  auto signals = take_signals({SIGCHLD, SIGTERM});
  if (!signals || !send_packet(client.get(), line::encode(line::Hello{line::first_half(step.input.token)}))) return;
  auto asked = read_request(client.get(), step.input.token);
  if (!asked) return;
  Session session(step, client, std::move(*asked), std::move(*signals));
  const auto status = session.run();
  line::Ended ended{1, 0};
  if (status)
    ended = {static_cast<uint32_t>(status->code), static_cast<uint32_t>(status->signal)};
  else
    say_error(session.errors(), session.name(), status.error());
  (void)send_packet(client.get(), line::encode(ended));
}

int run_inside(int socket, int request) {
  const auto run = [&]() -> Result<int> {
    // When the allocation ends, salloc says so with these.
    TRY_ASSIGN(const UniqueFd signals, take_signals({SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGCONT}));
    TRY_ASSIGN(const std::string bytes, read_sealed_memory(request, line::kMaxRequestBytes));
    TRY_ASSIGN(line::Inside inside, line::decode_inside(bytes));
    const auto of_salloc = Environment::from_envp(environ);
    for (const auto& [name, value] : of_salloc.entries())
      if (name.starts_with("SLURM_") || name.starts_with("_SLURM_SPANK_OPTION_"))
        inside.environment.push_back(name + "=" + value);
    TRY_ASSIGN(const UniqueFd memory, sealed_memory("situla-inside", line::encode_inside(inside)));
    TRY(send_packet(socket, line::encode(line::RunInside{}), {memory.get()}));
    while (true) {
      std::array<pollfd, 2> entries = {{{socket, POLLIN, 0}, {signals.get(), POLLIN, 0}}};
      if (poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) return fail_errno(errno, "wait");
      signalfd_siginfo info{};
      if (entries[1].revents != 0 && read(signals.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info))
        TRY(send_packet(socket, line::encode(line::Signal{info.ssi_signo})));
      if (entries[0].revents == 0) continue;
      TRY_ASSIGN(const auto packet, receive_packet(socket, line::kMaxMessageBytes));
      if (!packet) return 1;
      TRY_ASSIGN(const line::Message message, line::decode(packet->bytes));
      constexpr uint32_t kBySignal = 128;
      if (const auto* ended = std::get_if<line::Ended>(&message))
        return static_cast<int>(ended->signal == 0 ? ended->code : kBySignal + ended->signal);
    }
  };
  const auto code = run();
  if (!code) say_error(STDERR_FILENO, "salloc", code.error());
  return code.value_or(1);
}

}  // namespace situla
