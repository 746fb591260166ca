// situla-monitor: `situla-monitor NODES IMAGE`, started by srun for a step of several nodes, as its user, with the
// descriptors of monitor_fd and kMonitorVariable; what it says goes to srun's standard error. It ends with srun.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/protocol/step_monitor.hpp"
#include "common/sys/file.hpp"
#include "common/sys/socket.hpp"
#include "common/sys/tcp.hpp"
#include "hooks/monitor/failures.hpp"
#include "hooks/monitor/step_progress.hpp"

namespace situla {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kGreetLimit{10};
constexpr std::chrono::milliseconds kRest{200};
constexpr unsigned kSilenceMs = 60000;  // of a node that has vanished: its kernel answers no more
constexpr size_t kMostOfNode = 512;     // connections: one of each task that fails
// Connections that have not shown the key: the oldest one goes. All nodes come at once.
constexpr uint32_t kLeastStrangers = 64, kMostStrangers = 8192;
constexpr size_t kMostWordsOfOne = 100000;  // what is more no import says

/// srun's standard error.
class Output {
 public:
  Output() : is_terminal_(isatty(STDERR_FILENO) == 1) {}

  [[nodiscard]] ProgressView view() const {
    winsize size{};
    if (!is_terminal_ || ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0) return {};
    return {size.ws_col, size.ws_row};
  }

  /// srun --pty makes its terminal raw: there a line's end does not go back to its beginning.
  void write(std::string_view text) const {
    termios mode{};
    const bool raw = is_terminal_ && tcgetattr(STDERR_FILENO, &mode) == 0 && (mode.c_oflag & OPOST) == 0;
    if (!raw) return (void)write_all(STDERR_FILENO, text);
    std::string lines;
    for (const char byte : text) {
      if (byte == '\n' && !lines.ends_with('\r')) lines += '\r';
      lines += byte;
    }
    (void)write_all(STDERR_FILENO, lines);
  }

 private:
  bool is_terminal_;
};

class Monitor {
 public:
  /// nodes: 0 of a heterogeneous step, of which nobody knows how many there are.
  Monitor(const MonitorDoor& door, uint32_t nodes, const std::string& image)
      : door_(door),
        nodes_(nodes == 0 ? UINT32_MAX : nodes),
        progress_(nodes, image, output_.view()),
        failures_(nodes_) {}

  /// Until srun has ended.
  void run() {
    for (;;) {
      std::vector<pollfd> wait = {{monitor_fd::kControl, POLLIN, 0},
                                  {has_room() ? monitor_fd::kListener : -1, POLLIN, 0}};
      for (const Guest& guest : guests_) wait.push_back({guest.frames.fd(), guest.frames.events(), 0});
      if (poll(wait.data(), wait.size(), milliseconds_left()) < 0 && errno != EINTR) break;
      const bool ended = wait[0].revents != 0;
      auto guest = guests_.begin();
      for (size_t i = 2; i < wait.size(); ++i) {
        const auto one = guest++;
        if ((ended || wait[i].revents != 0) && !serve(*one)) lose(one);
      }
      if (wait[1].revents != 0) accept();
      const auto now = Clock::now();
      std::erase_if(guests_, [&](const Guest& one) { return !one.greeted && now - one.since > kGreetLimit; });
      if (const auto due = failures_.due(); ended || (due && *due <= now)) say_failures();
      if (ended) break;
    }
    output_.write(progress_.pause(Clock::now()));
  }

 private:
  struct Guest {
    TcpFrames frames;
    Clock::time_point since;
    std::string node{};
    size_t words = 0;
    bool greeted = false;
    std::optional<SentError> failed{};  ///< it waits for Taken
  };

  [[nodiscard]] size_t strangers() const { return std::clamp(nodes_, kLeastStrangers, kMostStrangers); }

  [[nodiscard]] bool has_room() const {
    return guests_.size() < nodes_ * kMostOfNode + strangers() && Clock::now() >= rests_until_;
  }

  [[nodiscard]] int milliseconds_left() const {
    const auto now = Clock::now();
    auto next = now + std::chrono::hours(1);
    if (const auto due = failures_.due()) next = std::min(next, *due);
    if (rests_until_ > now) next = std::min(next, rests_until_);
    for (const Guest& guest : guests_)
      if (!guest.greeted) next = std::min(next, guest.since + kGreetLimit);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now);
    return static_cast<int>(std::max<int64_t>(left.count(), 0));
  }

  void accept() {
    auto socket = accept_from(monitor_fd::kListener);
    // With no descriptor left: later.
    if (!socket) rests_until_ = Clock::now() + kRest;
    if (!socket || !set_limits(socket->get(), kSilenceMs)) return;
    const auto is_stranger = [](const Guest& one) { return !one.greeted; };
    if (static_cast<size_t>(std::count_if(guests_.begin(), guests_.end(), is_stranger)) >= strangers())
      guests_.erase(std::find_if(guests_.begin(), guests_.end(), is_stranger));
    guests_.push_back({TcpFrames(std::move(*socket), kMostMonitorWord), Clock::now()});
  }

  static void say(Guest& guest, const MonitorWord& word) {
    guest.frames.say(encode_monitor_word(word));
    (void)guest.frames.flush();
  }

  /// What there is of its words. False: it is gone, or says what it must not.
  bool serve(Guest& guest) {
    if (!guest.frames.flush()) return false;
    for (;;) {
      const auto frame = guest.frames.hear();
      if (!frame) return false;
      if (!*frame) return true;
      const auto word = decode_monitor_word(**frame);
      if (!word || ++guest.words > kMostWordsOfOne || !hear(guest, *word)) return false;
    }
  }

  bool greet(Guest& guest, const MonitorWord& word) {
    const auto* hello = std::get_if<NodeHello>(&word);
    if (hello == nullptr || !is_same(hello->key, door_.of_nodes)) return false;
    guest.greeted = true;
    guest.node = printable(hello->node);
    say(guest, MonitorHello{door_.of_monitor});
    return true;
  }

  bool hear(Guest& guest, const MonitorWord& word) {
    if (!guest.greeted) return greet(guest, word);
    const auto now = Clock::now();
    if (const auto* progress = std::get_if<ImportProgress>(&word))
      output_.write(progress_.heard(guest.node, *progress, now));
    else if (const auto* waits = std::get_if<ImportWaits>(&word))
      output_.write(progress_.heard(guest.node, *waits, now));
    else if (std::holds_alternative<ImportOver>(word)) {
      output_.write(progress_.over(guest.node, now));
      say(guest, Taken{});
    } else if (const auto* failure = std::get_if<Failure>(&word)) {
      // What is not kept the node says itself.
      if (guest.failed || !failures_.add(guest.node, *failure, now)) return false;
      guest.failed = *failure;
    } else if (std::holds_alternative<Withdrawn>(word)) {
      if (guest.failed) failures_.withdraw(guest.node, *guest.failed);
      guest.failed.reset();
    } else {
      return false;
    }
    return true;
  }

  void lose(std::list<Guest>::iterator guest) {
    output_.write(progress_.lost(guest->node, Clock::now()));
    guests_.erase(guest);
  }

  /// First said, then taken: a node whose words are lost with this process says them itself.
  void say_failures() {
    std::string text;
    for (const std::string& line : failures_.take()) text += line + "\n";
    if (!text.empty()) output_.write(progress_.pause(Clock::now()) + text);
    for (Guest& guest : guests_)
      if (std::exchange(guest.failed, std::nullopt)) say(guest, Taken{});
  }

  MonitorDoor door_;
  uint32_t nodes_;
  Output output_;
  StepProgress progress_;
  Failures failures_;
  std::list<Guest> guests_;
  Clock::time_point rests_until_{};
};

int run_monitor(const std::vector<std::string>& words) {
  // srun's user means srun by Ctrl-C and Ctrl-Z; in the background this one writes as srun does.
  for (const int number : {SIGINT, SIGQUIT, SIGHUP, SIGPIPE, SIGTSTP, SIGTTOU}) (void)std::signal(number, SIG_IGN);
  const char* const variable = std::getenv(kMonitorVariable);
  const auto door = MonitorDoor::parse(variable == nullptr ? "" : variable);
  const auto nodes = words.size() == 3 ? parse_unsigned(words[1]) : std::nullopt;
  if (!door || !nodes || *nodes > UINT32_MAX) {
    (void)write_all(STDERR_FILENO, "situla-monitor: it is started by srun\n");
    return 2;
  }
  allow_many_descriptors();
  Monitor(*door, static_cast<uint32_t>(*nodes), printable(words[2])).run();
  return 0;
}

}  // namespace
}  // namespace situla

int main(int argc, char** argv) {
  return situla::run_monitor({argv, argv + argc});
}
