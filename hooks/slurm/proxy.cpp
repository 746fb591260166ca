// situla-slurm-proxy: started by situla-broker as the job user, outside of the container, with the descriptors of
// slurm_proxy_fd, when the first Slurm command connects: runs the host's commands for it (hooks/slurm/README.md).
// `situla-slurm-proxy run-inside SOCKET REQUEST` is what salloc runs.
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/protocol/contract.hpp"
#include "common/protocol/messages.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"
#include "hooks/slurm/session.hpp"

namespace situla {
namespace {

constexpr size_t kMaxEnvironmentBytes = size_t{64} << 20U;
constexpr size_t kMaxSpecBytes = size_t{16} << 20U;
constexpr size_t kMaxInputBytes = size_t{1} << 20U;
constexpr size_t kMostSessions = 256;  ///< at a time; the next waits in the listener's queue
constexpr std::chrono::milliseconds kSessionsEnd{2800};
constexpr std::chrono::milliseconds kBreath{50};

Result<StepOutside> read_step() {
  StepOutside step;
  TRY_ASSIGN(const std::string input, read_sealed_memory(slurm_proxy_fd::kInput, kMaxInputBytes));
  TRY_ASSIGN(step.input, decode_slurm_proxy_input(input));
  TRY_ASSIGN(const std::string spec, read_sealed_memory(builder_fd::kSpec, kMaxSpecBytes));
  TRY_ASSIGN(step.spec, ContainerSpec::deserialize(spec));
  TRY_ASSIGN(const std::string environment, read_sealed_memory(builder_fd::kEnvironment, kMaxEnvironmentBytes));
  step.environment = Environment::from_block(environment);
  return step;
}

class Proxy {
 public:
  explicit Proxy(StepOutside step) : step_(std::move(step)) {}

  /// Until the broker hangs up.
  Result<void> run() {
    while (true) {
      std::erase_if(sessions_, [](Child& session) {
        const auto ended = session.wait_for(std::chrono::milliseconds(0));
        return !ended || *ended;
      });
      const bool full = sessions_.size() >= kMostSessions;
      std::vector<pollfd> entries = {{builder_fd::kBroker, POLLIN, 0},
                                     {full ? -1 : slurm_proxy_fd::kListener, POLLIN, 0}};
      for (const Child& session : sessions_) entries.push_back({session.pidfd(), POLLIN, 0});
      // Without pidfds (before Linux 5.3) they are looked at now and then.
      constexpr int kLookAgain = 1000;
      if (poll(entries.data(), entries.size(), sessions_.empty() ? -1 : kLookAgain) < 0 && errno != EINTR)
        return fail_errno(errno, "wait for commands");
      if (entries[0].revents != 0) return {};
      if (entries[1].revents != 0) accept();
    }
  }

  void end() {
    (void)close(slurm_proxy_fd::kListener);
    for (const Child& session : sessions_) (void)session.signal(SIGTERM);
    const auto limit = std::chrono::steady_clock::now() + kSessionsEnd;
    for (Child& session : sessions_)
      (void)session.wait_for(
          std::max(std::chrono::duration_cast<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now()),
                   std::chrono::milliseconds(0)));
    sessions_.clear();
  }

 private:
  /// Where no process can be made (a limit of the step's), this command goes without; those that run go on.
  void accept() {
    auto client = accept_from(slurm_proxy_fd::kListener);
    if (!client) return std::this_thread::sleep_for(kBreath);
    const auto peer = peer_credentials(client->get());
    // The address is no secret. Outside of every container the kernel says who it is.
    if (!peer || peer->uid != geteuid()) return;
    auto session = fork_child();
    if (!session) return std::this_thread::sleep_for(kBreath);
    if (*session) return sessions_.push_back(std::move(*session));
    if (die_with_parent()) {
      for (Child& other : sessions_) (void)other.release();
      (void)close(slurm_proxy_fd::kListener);
      (void)close(builder_fd::kBroker);
      if (fcntl(client->get(), F_SETFL, 0) == 0) serve_command(step_, *client);
    }
    _exit(0);
  }

  StepOutside step_;
  std::vector<Child> sessions_;
};

int run_proxy() {
  auto step = read_step();
  if (!step) {
    (void)send_packet(builder_fd::kBroker, encode(Failure::of(step.error())));
    return 1;
  }
  Proxy proxy(std::move(*step));
  const auto done = proxy.run();
  if (!done) (void)send_packet(builder_fd::kBroker, encode(Failure::of(done.error())));
  proxy.end();
  return done ? 0 : 1;
}

}  // namespace
}  // namespace situla

int main(int argc, char** argv) {
  situla::take_program_name();
  (void)signal(SIGPIPE, SIG_IGN);
  const std::vector<std::string> words(argv, argv + argc);
  if (words.size() == 1) return situla::run_proxy();
  const auto socket = words.size() == 4 ? situla::parse_unsigned(words[2]) : std::nullopt;
  const auto request = words.size() == 4 ? situla::parse_unsigned(words[3]) : std::nullopt;
  if (!socket || !request || words[1] != "run-inside") return 2;
  return situla::run_inside(static_cast<int>(*socket), static_cast<int>(*request));
}
