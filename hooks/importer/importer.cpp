#include "hooks/importer/importer.hpp"

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/log.hpp"
#include "common/base/text.hpp"
#include "common/protocol/messages.hpp"
#include "common/sys/file.hpp"
#include "common/sys/secrecy.hpp"
#include "common/sys/socket.hpp"
#include "hooks/import/lease.hpp"
#include "hooks/import/progress.hpp"
#include "hooks/import/registries_conf.hpp"
#include "hooks/import/request.hpp"
#include "hooks/import/step_bars.hpp"
#include "hooks/import/store.hpp"

namespace situla {
namespace {

constexpr std::chrono::seconds kTimeToUnwind{3};

/// What the broker hears. A lost broker is no error here: the watcher notices and ends the import.
class Reporter final : public Progress, public LogSink {
 public:
  explicit Reporter(int socket) : socket_(socket) {}

  /// Before the import begins.
  void draw_in(ProgressScreen::Window window) noexcept { bars_ = StepBars(window); }

  /// Whatever is said is said below what is drawn, so that goes first.
  void send(const Message& message) noexcept {
    const std::scoped_lock lock(mutex_);
    draw(bars_.erase());
    (void)send_packet(socket_, encode(message));
  }

  void phase(std::string_view text) noexcept override {
    end_bars();
    send(Note{LogLevel::debug, std::string(text)});
    const std::scoped_lock lock(mutex_);
    bars_.phase(text, StepBars::Clock::now());
  }
  void bytes(uint64_t done, uint64_t total) noexcept override {
    const std::scoped_lock lock(mutex_);
    draw(bars_.bytes(done, total, StepBars::Clock::now()));
  }
  void layer(const LayerProgress& layer) noexcept override {
    const std::scoped_lock lock(mutex_);
    bars_.layer(layer);
  }
  void note(std::string_view text) noexcept override { send(Note{LogLevel::info, std::string(text)}); }
  void finish(std::string_view text) noexcept override {
    end_bars();
    if (!text.empty()) send(Note{LogLevel::debug, std::string(text)});
  }
  void write(LogLevel level, std::string_view text) noexcept override { send(Note{level, std::string(text)}); }

  [[nodiscard]] bool cancelled() const noexcept override { return cancelled_; }
  void cancel() noexcept { cancelled_ = true; }

 private:
  void end_bars() noexcept {
    const std::scoped_lock lock(mutex_);
    draw(bars_.finish(StepBars::Clock::now()));
  }
  void draw(const std::string& bytes) noexcept {
    if (!bytes.empty()) (void)send_packet(socket_, encode(Draw{bytes}));
  }

  int socket_;
  std::mutex mutex_;
  StepBars bars_{{0, 0}};
  std::atomic<bool> cancelled_{false};
};

/// Cancels when the broker closes its end or a signal asks for the end.
class Watcher {
 public:
  /// Before any other thread exists, so that all of them inherit the signal mask.
  Watcher(int socket, Reporter& reporter) : socket_(socket), reporter_(reporter) {
    sigset_t ending;
    sigemptyset(&ending);
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&ending, number);
    pthread_sigmask(SIG_BLOCK, &ending, nullptr);
    signals_.reset(signalfd(-1, &ending, SFD_CLOEXEC));
    end_.reset(eventfd(0, EFD_CLOEXEC));
    thread_ = std::thread([this] { watch(); });
  }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  ~Watcher() {
    {
      const std::scoped_lock lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    eventfd_write(end_.get(), 1);
    thread_.join();
  }

 private:
  void watch() {
    std::array<pollfd, 3> wait{{{socket_, POLLRDHUP, 0}, {signals_.get(), POLLIN, 0}, {end_.get(), POLLIN, 0}}};
    while (poll(wait.data(), wait.size(), -1) < 0 && errno == EINTR) {
    }
    if (wait[2].revents != 0) return;
    reporter_.cancel();
    // The import unwinds by itself; a call that hangs (a disk, say) must not keep the job waiting. Nothing needs
    // cleaning then: the image has no name yet, and the lease's lock goes with the process.
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kTimeToUnwind, [this] { return over_; })) _exit(1);
  }

  int socket_;
  Reporter& reporter_;
  UniqueFd signals_, end_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

struct Arguments {
  std::string store, variant;
  bool sweep = false;
};

Result<Arguments> parse_arguments(const std::vector<std::string>& words) {
  Arguments arguments;
  for (size_t i = 1; i < words.size(); i += words[i] == "--sweep" ? 1 : 2) {
    if (words[i] == "--sweep") {
      arguments.sweep = true;
      continue;
    }
    if (i + 1 == words.size()) return fail(ErrorKind::usage, "importer: " + printable(words[i]) + " needs a value");
    if (words[i] == "--store")
      arguments.store = words[i + 1];
    else if (words[i] == "--variant")
      arguments.variant = words[i + 1];
    else
      return fail(ErrorKind::usage, "importer: unknown option " + printable(words[i]));
  }
  if (!arguments.store.starts_with('/')) return fail(ErrorKind::usage, "importer: --store needs an absolute path");
  return arguments;
}

Result<ImportedImage> import(const std::vector<std::string>& words, int input, Reporter& reporter) {
  TRY_ASSIGN(const Arguments arguments, parse_arguments(words));
  TRY_ASSIGN(const std::string bytes, read_all(input, ImportRequest::kMaxBytes));
  TRY_ASSIGN(ImportRequest request, ImportRequest::deserialize(bytes));
  // The administrator's and nobody else's: what a mirror answers is put into everybody's store (mirrors.hpp).
  TRY_ASSIGN(request.rules, load_registry_rules(RuleFiles::of_node()));
  TRY_ASSIGN(ImageStore store, ImageStore::open(arguments.store));
  reporter.draw_in({request.terminal_columns, request.terminal_rows});
  return store.import(request, arguments.variant, reporter, reporter);
}

}  // namespace

int run_importer(const std::vector<std::string>& words, int input, int socket) {
  const KeepSecrets secrets;
  signal(SIGPIPE, SIG_IGN);  // NOLINT: a closed connection is an error of the write, not the end of the process
  if (const auto arguments = parse_arguments(words); arguments && arguments->sweep) {
    sweep_dead_leases(arguments->store + "/images/sha256");
    return 0;
  }
  Reporter reporter(socket);
  const Watcher watcher(socket, reporter);
  auto image = import(words, input, reporter);
  if (image) {
    reporter.send(ImportDone{image->digest, image->variant, image->reused});
    return 0;
  }
  reporter.send(Failure{image.error().kind(), image.error().message(), image.error().hint()});
  return 1;
}

}  // namespace situla
