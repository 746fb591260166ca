#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/log.hpp"
#include "common/base/text.hpp"
#include "common/base/thrown.hpp"
#include "common/protocol/messages.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/process/sandbox.hpp"
#include "common/sys/process/secrecy.hpp"
#include "common/sys/socket.hpp"
#include "hooks/import/session.hpp"
#include "hooks/importer/modes.hpp"
#include "hooks/importer/store_client.hpp"
#include "hooks/progress/progress.hpp"
#include "hooks/progress/progress_renderer.hpp"
#include "hooks/request/registries_conf.hpp"
#include "hooks/request/request.hpp"

namespace situla {
namespace {

constexpr std::chrono::seconds kTimeToUnwind{3};
constexpr std::chrono::seconds kProgressEvery{1};

/// What the broker hears. A lost broker is no error here: the watcher notices and ends the import.
class Reporter final : public Progress, public LogSink {
 public:
  Reporter(int socket, const StoreClient& store) : socket_(socket), store_(store) {}

  /// Before the import begins.
  void tell_as(const ProgressView& view) noexcept { bars_ = StepBars(view); }

  void send(const Message& message) noexcept {
    if (std::holds_alternative<Failure>(message)) end_bars();
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
    const auto now = StepBars::Clock::now();
    draw(bars_.bytes(done, total, now));
    tell_line(now);
    const bool finishing = done == total;
    if (now - told_ < kProgressEvery && finishing == finishing_) return;
    told_ = now;
    finishing_ = finishing;
    (void)send_packet(socket_, encode(ImportProgress{done, total}));
    // Others who wait for the image go by it.
    (void)store_.tell(store_line::Progressed{done, finishing});
  }
  void waiting(std::string_view why) noexcept override {
    const std::scoped_lock lock(mutex_);
    const auto now = StepBars::Clock::now();
    draw(bars_.waiting(why, now));
    if (!why.empty()) tell_line(now);
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
    const auto now = StepBars::Clock::now();
    tell(bars_.last_line(now));
    draw(bars_.finish(now));
  }
  void tell_line(StepBars::Clock::time_point now) noexcept { tell(bars_.line(now)); }
  void tell(const std::string& line) noexcept {
    if (!line.empty()) (void)send_packet(socket_, encode(Note{LogLevel::info, line, true}));
  }
  void draw(const std::string& bytes) noexcept {
    if (!bytes.empty()) (void)send_packet(socket_, encode(Draw{bytes}));
  }

  int socket_;
  const StoreClient& store_;
  std::mutex mutex_;
  StepBars bars_;
  StepBars::Clock::time_point told_{};
  bool finishing_ = false;
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
    // cleaning then: the image has no name yet.
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

Result<SquashOptions> options_of(const std::string& variant) {
  SquashOptions options;  // zstd level 1: measured as the fastest from a cold pull to a running task on two cores
  if (variant == "lz4")
    options.compressor = SquashOptions::Compressor::lz4;
  else if (!variant.empty())
    return fail(ErrorKind::usage, "unknown image variant '" + printable(variant) + "'");
  return options;
}

/// The sandbox's limit for the size of a file is the administrator's for an image.
Error name_size_limit(const Error& error) {
  rlimit limit{};
  const bool too_large = error.message().ends_with(std::strerror(EFBIG));
  if (!too_large || getrlimit(RLIMIT_FSIZE, &limit) != 0) return error;
  return Error(error.kind(), error.message() + ": the image's file may have " + format_size(limit.rlim_cur))
      .with_code(ErrorCode::image_too_large)
      .with_hint("see largest_image in " SITULA_SYSCONF_DIR "/situla.toml");
}

/// After what the store asked for was written. The layers come first: the store takes Built for the end.
Result<void> write_image(ImportSession& session, const StoreClient& store, const StoreClient::Answer& place,
                         const std::string& variant, Reporter& reporter) {
  const auto* wanted = std::get_if<store_line::WriteImage>(&place.message);
  if (wanted == nullptr || place.fds.size() != 1)
    return fail(ErrorKind::corrupt, "the store program sent a message out of turn");
  TRY_ASSIGN(SquashOptions options, options_of(variant));
  bool store_ended = false;
  options.make_room = [&] {
    const auto answer = store.ask(store_line::MakeRoom());
    store_ended = !answer;
    return answer && std::holds_alternative<store_line::RoomMade>(answer->message);
  };
  StoreLayerCache cache(store, options);
  const int file = place.fds[0].get();
  const auto written = session.write(file, wanted->where, options, reporter, &cache);
  if (store_ended) return fail(ErrorKind::cancelled, "");  // it has said that there is no room, with numbers
  if (!written) return fail(name_size_limit(written.error()));
  const BuiltImage& built = *written;
  session.remember(cache, file, wanted->where, reporter);
  reporter.finish("imported " + session.uri() + ", " + format_size(built.image_bytes));
  return store.tell(store_line::Built{session.layer_bytes() - built.reused_bytes, session.architecture()});
}

/// What the registry says goes to the store, which answers. nullptr: it has another image to start.
Result<std::unique_ptr<ImportSession>> resolve(const ImportRequest& request, const StoreClient& store,
                                               StoreClient::Answer& answer, Reporter& reporter) {
  auto session = ImportSession::open(request, reporter);
  if (!session) {
    TRY_ASSIGN(answer, store.ask(store_line::Unresolved{session.error().kind()}));
    if (std::holds_alternative<store_line::Have>(answer.message)) return std::unique_ptr<ImportSession>();
    const auto* none = std::get_if<store_line::NoImage>(&answer.message);
    if (none == nullptr || none->alike.empty()) return session;
    SentError better = SentError::of(session.error());
    better.hint = "did you mean " + printable(none->alike) + ", which this node has? " + better.hint;
    return fail(better.error());
  }
  const ResolvedImage& image = (*session)->resolved();
  TRY_ASSIGN(answer, store.ask(store_line::Resolved{{image.named.value_or(image.digest), image.digest}}));
  if (reporter.cancelled()) return fail((*session)->explain({ErrorKind::cancelled, "cancelled"}));
  return session;
}

Result<ImportRequest> request_for_node(int work) {
  TRY_ASSIGN(const std::string bytes, read_sealed_memory(work, ImportRequest::kMaxBytes));
  TRY_ASSIGN(ImportRequest request, ImportRequest::deserialize(bytes));
  // The administrator's and nobody else's: what a mirror answers is put into everybody's store (mirrors.hpp).
  TRY_ASSIGN(request.rules, load_registry_rules(RuleFiles::of_node()));
  TRY_ASSIGN(request.budget, load_import_budget(RuleFiles::of_node()));
  return request;
}

Result<void> import(const StoreClient& store, Reporter& reporter, const OwnImport* own) {
  TRY_ASSIGN(const auto work, store.receive());
  const auto* wanted = std::get_if<store_line::Work>(&work.message);
  if (wanted == nullptr || work.fds.size() != 1)
    return fail(ErrorKind::corrupt, "the store program sent a message out of turn");
  ImportRequest request;
  if (own != nullptr) {
    request = own->request;
  } else {
    TRY_ASSIGN(request, request_for_node(work.fds[0].get()));
  }
  request.known = wanted->known;
  request.impatient = wanted->impatient;
  if (wanted->digest) TRY(request.pin(*wanted->digest));
  reporter.tell_as(request.progress);
  StoreClient::Answer answer;
  TRY_ASSIGN(auto session, resolve(request, store, answer, reporter));
  if (session == nullptr || std::holds_alternative<store_line::Have>(answer.message)) {
    reporter.finish("");
    return {};
  }
  if (request.known || request.impatient) {
    // It was asked in a hurry, or not for everything.
    request.known.reset();
    request.impatient = false;
    TRY(request.pin(session->digest()));
    TRY_ASSIGN(session, ImportSession::open(request, reporter));
  }
  return write_image(*session, store, answer, wanted->variant, reporter);
}

/// Before any other thread exists, and before a byte of anybody's is read.
Result<void> give_up_rights() {
  TRY_ASSIGN(const SiteConfig config, SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml"));
  TRY(enter_sandbox({readable_for_network(), config.largest_image}));
  return {};
}

}  // namespace

int run_importer(int socket, int store_socket, const OwnImport* own) {
  const KeepSecrets secrets;
  signal(SIGPIPE, SIG_IGN);  // NOLINT: a closed connection is an error of the write, not the end of the process
  const StoreClient store(store_socket);
  Reporter reporter(socket, store);
  auto imported = give_up_rights();
  if (imported)
    imported = with_thrown_errors([&] {
      const Watcher watcher(socket, reporter);
      return import(store, reporter, own);
    });
  if (!imported && own != nullptr) imported = fail(own->store.shown(imported.error()));
  if (imported) return 0;
  // Without a text: the store program has ended, and told the broker why.
  if (!imported.error().message().empty()) reporter.send(Failure::of(imported.error()));
  return 1;
}

}  // namespace situla
