#include "plugin/step_monitor.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "common/base/installation.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"

extern "C" char** environ;

namespace situla {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kConnectLimit{1000};
constexpr std::chrono::milliseconds kCleanLimit{500};
/// Longer than the monitor waits for other nodes that fail alike (hooks/monitor/failures.hpp).
constexpr std::chrono::milliseconds kSaidLimit{10000};

Result<StepToken> new_key() {
  StepToken key{};
  if (getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size()))
    return fail_errno(errno, "read random bytes for the step's monitor");
  return key;
}

}  // namespace

Result<StepMonitor> StepMonitor::listen(std::optional<PortRange> ports) {
  TRY_ASSIGN(TcpListener listener, listen_tcp(ports));
  MonitorDoor door;
  door.port = listener.port;
  TRY_ASSIGN(door.of_monitor, new_key());
  TRY_ASSIGN(door.of_nodes, new_key());
  setenv(kMonitorVariable, door.text().c_str(), 1);
  return StepMonitor(std::move(listener.fd));
}

Result<void> StepMonitor::run(uint32_t nodes, const std::string& image) {
  TRY_ASSIGN(auto control, socket_pair());
  SpawnOptions options;
  options.program = libexec_path("situla-monitor");
  options.arguments = {"situla-monitor", std::to_string(nodes), image};
  options.environment = Environment::from_envp(environ).strings();
  options.fds = {{STDERR_FILENO, STDERR_FILENO},
                 {control.second.get(), monitor_fd::kControl},
                 {listener_.get(), monitor_fd::kListener}};
  TRY(spawn_detached(options));
  listener_.reset();
  control_ = std::move(control.first);
  return {};
}

void StepMonitor::finish(std::chrono::milliseconds limit) const {
  if (!control_) return;
  (void)shutdown(control_.get(), SHUT_WR);
  (void)wait_for_packet(control_.get(), limit);
}

std::optional<MonitorLine> MonitorLine::of(const Environment& job) {
  const auto door = MonitorDoor::parse(job.get_or(kMonitorVariable, ""));
  const auto address = job.get(kSrunAddressVariable);
  if (!door || !address) return std::nullopt;
  return MonitorLine(*door, std::string(*address), job.get_or("SLURMD_NODENAME", "a node"));
}

bool MonitorLine::connect() {
  if (lost_ || frames_) return !lost_;
  auto socket = begin_to_connect(address_, door_.port);
  lost_ = !socket;
  if (lost_) return false;
  frames_.emplace(std::move(*socket), kMostMonitorWord);
  frames_->say(encode_monitor_word(NodeHello{door_.of_nodes, node_}));
  return true;
}

void MonitorLine::go_on() {
  const auto pump = [&]() -> Result<void> {
    TRY(frames_->flush());
    for (;;) {
      TRY_ASSIGN(const auto frame, frames_->hear());
      if (!frame) break;
      TRY_ASSIGN(const MonitorWord word, decode_monitor_word(*frame));
      const auto* hello = std::get_if<MonitorHello>(&word);
      if (!heard_ && (hello == nullptr || !is_same(hello->key, door_.of_monitor)))
        return fail(ErrorKind::denied, "somebody else listens");
      heard_ = true;
      if (std::holds_alternative<Taken>(word)) taken_ = true;
    }
    if (!heard_) return {};
    for (const MonitorWord& word : std::exchange(untold_, {})) frames_->say(encode_monitor_word(word));
    return frames_->flush();
  };
  if (lost_ || !frames_) return;
  lost_ = !pump();
  if (lost_) heard_ = false;
}

void MonitorLine::tell(const MonitorWord& word) {
  if (!connect()) return;
  const bool of_progress = std::holds_alternative<ImportProgress>(word) || std::holds_alternative<ImportWaits>(word);
  // Of what lasts the newest is enough for who is slow to answer.
  if (of_progress && !untold_.empty()) untold_.pop_back();
  if (!of_progress || !heard_ || frames_->is_flushed()) untold_.push_back(word);
  go_on();
}

bool MonitorLine::is_heard() {
  go_on();
  return heard_;
}

Result<void> MonitorLine::wait_beside(int socket, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    const bool has_work = frames_ && !lost_ && (!heard_ || !frames_->is_flushed());
    std::array<pollfd, 2> wait{
        {{socket, POLLIN, 0}, {has_work ? frames_->fd() : -1, has_work ? frames_->events() : short{0}, 0}}};
    const int ready = poll(wait.data(), wait.size(), static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (wait[0].revents != 0) return {};
    if (ready < 0 && errno != EINTR) return fail_errno(errno, "wait for a packet");
    if (ready == 0) return fail(ErrorKind::failure, "wait for a packet: silence");
    if (wait[1].revents != 0) go_on();
  }
}

bool MonitorLine::wait_for(const bool& what, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  for (go_on(); !lost_ && !what; go_on()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    pollfd entry{frames_->fd(), frames_->events(), 0};
    if (left.count() <= 0 || poll(&entry, 1, static_cast<int>(left.count())) == 0) break;
  }
  return what;
}

void MonitorLine::hang_up() {
  frames_.reset();
  untold_.clear();
  heard_ = taken_ = false;
}

void MonitorLine::end_import() {
  if (!frames_) return;
  if (is_heard()) {
    tell(ImportOver{});
    (void)wait_for(taken_, kCleanLimit);
  }
  hang_up();
}

bool MonitorLine::tell_failure(const Error& error) {
  untold_.clear();
  taken_ = false;
  if (!connect() || !wait_for(heard_, kConnectLimit)) return false;
  tell(SentError::of(error));
  if (wait_for(taken_, kSaidLimit)) return true;
  tell(Withdrawn{});
  return false;
}

}  // namespace situla
