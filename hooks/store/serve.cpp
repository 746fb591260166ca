#include "hooks/store/serve.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"
#include "hooks/courier/distribution.hpp"
#include "hooks/import/layer_cache.hpp"
#include "hooks/store/adoption.hpp"
#include "hooks/store/counts.hpp"
#include "hooks/store/housekeeping.hpp"
#include "hooks/store/layer_shelf.hpp"
#include "hooks/store/messages.hpp"
#include "hooks/store/resolution.hpp"
#include "hooks/store/room.hpp"
#include "hooks/turn/turn.hpp"

namespace situla {
namespace {

namespace line = store_line;

constexpr std::chrono::milliseconds kTick{500};
constexpr std::chrono::seconds kEndLimit{10};
constexpr std::chrono::seconds kPublishingLimit{20};  // then without
constexpr std::chrono::seconds kSilentSlots{30};      // slots report twice a second

/// One import, from what is known of the image to its name.
class Serving {
 public:
  Serving(const StoreJob& job, const SiteConfig& config, const StoreLines& lines, const StoreEvents& events,
          LogSink& log, const Lease::Options& patience, ImageStore store, Origin origin, Resolution resolution,
          std::string name, std::string question_name, std::string question_tag)
      : job_(job),
        config_(config),
        lines_(lines),
        events_(events),
        log_(log),
        patience_(patience),
        store_(std::move(store)),
        origin_(std::move(origin)),
        resolution_(std::move(resolution)),
        name_(std::move(name)),
        question_name_(std::move(question_name)),
        question_tag_(std::move(question_tag)),
        shelf_(store_, job.uid, origin_key({origin_.registry, ""}), origin_key(origin_)),
        room_(store_, job.uid, {config.store_reserve, config.bytes_per_user, config.store_max, config.image_age}),
        distribution_({lines.courier, job.node, job.nodes, job.job, job.uid}, lines.broker, log) {}

  /// `work`: the request, for the importer.
  Result<void> run(int work) {
    const bool waited_for = !start_without_asking();
    if (waited_for) {
      if (lacks_it()) TRY(receive());
      if (!served_) TRY(import(work));
      // Before the step begins: at its end nobody here would go on.
      image_.reset();
      turn_.reset();
      if (distribution_.leads()) distribution_.send(served_->file.get(), [this] { return vouch(); });
    }
    if (const auto moved = resolution_.moved_to()) log_.warning(name_ + has_moved(*moved, key_.digest));
    const bool looks_again = !asked_ && !served_->received && resolution_.look_again();
    const bool answers = distribution_.active() && !served_->received && (distribution_.leads() || job_.node == 0);
    TRY(events_.served(*served_, looks_again || answers));
    count();
    if (answers) distribution_.answer(served_->file.get(), [this] { return vouch(); });
    const bool is_new = !served_->stored || served_->received;
    served_.reset();
    if (is_new) tidy_up();
    return looks_again ? look_again(work) : Result<void>();
  }

  /// Other nodes of the step are not to wait for an import that has failed.
  void give_up() { distribution_.give_up(); }

  /// After an error. A step that was cancelled is none: the broker has hung up.
  void count_failure() const {
    pollfd broker{lines_.broker, POLLRDHUP, 0};
    if (refused_ || poll(&broker, 1, 0) == 0) (void)add_counts(job_.store, {.failures = 1, .waits = waited_ ? 1U : 0U});
  }

 private:
  void count() const {
    StoreCounts counts;
    const uint64_t bytes = store_.record(served_->key.name()).fetched_bytes;
    (served_->stored ? counts.hits : counts.misses) = 1;
    (served_->stored ? counts.saved_bytes : counts.fetched_bytes) = bytes;
    counts.waits = waited_ ? 1 : 0;
    counts.offline = offline_ ? 1 : 0;
    (void)add_counts(job_.store, counts);
  }

  /// After the import, when the step has its image.
  void tidy_up() {
    const int64_t now = std::time(nullptr);
    room_.drop_old(static_cast<uint64_t>(now));
    store_.sweep(file_system_time(store_.leases()).value_or(0));
    (void)sweep_dead_leases(store_.leases());
    (void)sweep_free_slots(store_.slots(), "", kSilentSlots);
  }

  /// What the registry has said before may be enough.
  bool start_without_asking() {
    if (const auto manifest = resolution_.granted(); manifest && find(*manifest)) return true;
    return resolution_.is_silent() && start_offline(resolution_.when_asked());
  }

  /// As far as is known without the registry.
  [[nodiscard]] bool lacks_it() const {
    if (!distribution_.active()) return false;
    const auto known = resolution_.pinned() ? resolution_.pinned() : resolution_.last();
    return !known || !has(known->manifest);
  }

  /// From another node of the step, unless it is this one's turn to import.
  Result<void> receive() {
    const auto here = [this] {
      const auto manifest = resolution_.granted();
      return manifest && find(*manifest);
    };
    while (!served_ && distribution_.active()) {
      TRY_ASSIGN(auto received, distribution_.receive(here));
      if (!received) return {};
      auto adopted = adopt(*received);
      if (adopted) return {};
      if (adopted.error().kind() == ErrorKind::cancelled || adopted.error().kind() == ErrorKind::no_space)
        return adopted;
      distribution_.refuse(adopted.error());
      image_.reset();
      turn_.reset();
    }
    return {};
  }

  /// What another node's service user vouches for, as if this one had imported it.
  Result<void> adopt(const Distribution::Received& received) {
    const Voucher& voucher = received.voucher;
    const NamedManifest& image = voucher.image;
    key_ = key_of(image.manifest);
    ImageKey own = key_;
    own.only = job_.uid;
    if (voucher.question != resolution_.question() || (voucher.name != key_.name() && voucher.name != own.name()))
      return fail(ErrorKind::denied, "it is another image");
    if (!resolution_.is_recent(voucher.answered))
      return fail(ErrorKind::denied, "what the registry said of it is too old, or the nodes' clocks differ");
    // Another step of the job may have been faster, and have got another answer.
    if (resolution_.heard(image.named, image.manifest, voucher.answered) != image.manifest)
      return fail(ErrorKind::denied, "the job's other steps have another image by this name");
    if (find(image.manifest)) return {};
    TRY(take_turn());
    if (served_) return {};
    TRY(check_size(voucher.bytes));
    TRY(room_.make(voucher.bytes, turn_->report_size(voucher.bytes), voucher.bytes));
    TRY_ASSIGN(OutputFile file, store_.create());
    image_.emplace(std::move(file));
    TRY(copy_vouched(received.file.get(), *image_, voucher, [this](uint64_t bytes) {
      turn_->report(LeaseRecord::State::fetching, bytes);
      return !is_cancelled();
    }));
    key_ = voucher.name == own.name() ? own : key_;
    TRY(publish(voucher.architecture, voucher.fetched_bytes));
    served_->stored = served_->received = true;
    (void)store_.note_content(served_->key.name(), voucher.content);
    log_.info("got the image from " + received.node);
    return {};
  }

  /// For the other nodes of the step.
  [[nodiscard]] Result<Voucher> vouch() {
    Voucher voucher;
    voucher.step = job_.job;
    voucher.uid = job_.uid;
    voucher.question = resolution_.question();
    voucher.answered = resolution_.granted_at(served_->key.digest);
    if (offline_ || voucher.answered == 0) return fail(ErrorKind::denied, "the registry has not let the user have it");
    voucher.image = {served_->key.digest, served_->key.digest};
    const auto last = resolution_.last();
    if (meant_)
      voucher.image = *meant_;
    else if (last && last->manifest == served_->key.digest)
      voucher.image.named = last->named;
    return vouch_for(store_, served_->key.name(), served_->file.get(), std::move(voucher), [this] {
      distribution_.go_on();
      return !has_hung_up(lines_.broker);
    });
  }

  Result<void> import(int work) {
    TRY(ask(work));
    while (!served_) {
      TRY_ASSIGN(const auto message, next());
      if (message)
        TRY(std::visit([this](const auto& m) { return on(m); }, *message));
      else
        TRY(beat());
    }
    return {};
  }

  /// asked: as of does_not_answer().
  bool start_offline(std::string_view asked = "") {
    const auto old = resolution_.offline();
    if (!old || !find(old->manifest)) return false;
    resolution_.started_offline(*old);
    offline_ = true;
    log_.warning(
        does_not_answer(origin_.registry, name_, "started", resolution_.now() - old->time, old->manifest, asked));
    return true;
  }

  /// The name, also when the job's steps have another image by that name: that is how it is noticed. Only what the
  /// store has lost is asked for by its digest.
  Result<void> ask(int work) {
    asked_ = true;
    const auto pin = resolution_.pinned();
    if (pin && !has(pin->manifest)) wanted_ = pin->manifest;
    line::Work wanted{job_.variant, wanted_, std::nullopt, false};
    const auto last = pin ? pin : resolution_.last();
    if (last && !wanted_ && has(last->manifest)) wanted.known = NamedManifest{last->named, last->manifest};
    const auto old = resolution_.offline();
    wanted.impatient = old && has(old->manifest);
    TRY_ASSIGN(importer_, events_.start_importer());
    return answer(wanted, {work});
  }

  /// While the step runs already: it has its image, whatever comes of this.
  Result<void> look_again(int work) {
    TRY_ASSIGN(importer_, events_.start_importer());
    TRY(answer(line::Work{job_.variant, std::nullopt, std::nullopt, true}, {work}));
    std::optional<line::Message> message;
    while (!message) {  // the time for a heartbeat is no answer
      TRY_ASSIGN(message, next());
    }
    if (const auto* resolved = std::get_if<line::Resolved>(&*message))
      resolution_.looked_again(resolved->image.named, resolved->image.manifest);
    else if (const auto* unresolved = std::get_if<line::Unresolved>(&*message))
      resolution_.refused(unresolved->why, false);
    else
      return out_of_turn();
    return answer(line::Have());
  }

  /// A message, or nothing when the time for a heartbeat has come.
  Result<std::optional<line::Message>> next() {
    std::array<pollfd, 2> wait{{{lines_.importer, POLLIN, 0}, {lines_.broker, POLLRDHUP, 0}}};
    const bool beats = image_ || distribution_.leads();
    const int count = poll(wait.data(), wait.size(), beats ? static_cast<int>(kTick.count()) : -1);
    if (count < 0 && errno != EINTR) return fail_errno(errno, "wait for the importer");
    if (count <= 0) return std::nullopt;
    if (wait[1].revents != 0) return fail(ErrorKind::cancelled, "");
    TRY_ASSIGN(auto packet, receive_packet(lines_.importer, line::kMaxBytes));
    if (!packet) return fail(ErrorKind::cancelled, "");
    if (!packet->fds.empty()) return fail(ErrorKind::corrupt, "the importer sent descriptors");
    TRY_ASSIGN(line::Message message, line::decode(packet->bytes));
    // A heart beats also while messages come without a pause.
    if (std::chrono::steady_clock::now() - last_beat_ > kTick) TRY(beat());
    return message;
  }

  [[nodiscard]] bool is_cancelled() const {
    std::array<pollfd, 2> wait{{{lines_.importer, POLLRDHUP, 0}, {lines_.broker, POLLRDHUP, 0}}};
    return poll(wait.data(), wait.size(), 0) > 0;
  }

  Result<void> answer(const line::Message& message, const std::vector<int>& fds = {}) const {
    return send_packet(lines_.importer, line::encode(message), fds);
  }

  template <typename Unexpected>
  Result<void> on(const Unexpected&) {
    return out_of_turn();
  }
  static Result<void> out_of_turn() { return fail(ErrorKind::corrupt, "the importer sent a message out of turn"); }

  [[nodiscard]] ImageKey key_of(const Digest& manifest) const {
    return {manifest, origin_key(origin_), job_.variant, std::nullopt};
  }
  [[nodiscard]] bool has(const Digest& manifest) const {
    return store_.find_for(job_.uid, key_of(manifest)).has_value();
  }

  bool find(const Digest& manifest) {
    key_ = key_of(manifest);
    auto found = store_.find_for(job_.uid, key_);
    if (!found) return false;
    store_.touch(found->first.name());
    served_ = ServedImage{std::move(found->first), std::move(found->second), true, false};
    return true;
  }

  Result<void> on(const line::Resolved& resolved) {
    if (resolved_) return out_of_turn();
    resolved_ = true;
    const Digest& manifest = resolved.image.manifest;
    meant_ = resolved.image;
    if (wanted_ && manifest != *wanted_)
      return fail(ErrorKind::corrupt, "the importer resolved another manifest than it was asked for");
    // Another step of the job may have been faster, and have got another answer.
    if (find(resolution_.answered(resolved.image.named, manifest)) || find(manifest)) return answer(line::Have());
    TRY(take_turn());
    if (served_) return answer(line::Have());
    events_.importing();
    TRY(make_room());
    TRY_ASSIGN(OutputFile file, store_.create());
    image_.emplace(std::move(file));
    return answer(line::WriteImage{store_.image_path(key_)}, {image_->fd()});
  }

  Result<void> on(const line::Unresolved& unresolved) {
    if (resolved_) return out_of_turn();
    resolved_ = true;
    resolution_.refused(unresolved.why, wanted_.has_value());
    refused_ = unresolved.why != ErrorKind::network && unresolved.why != ErrorKind::unreachable;
    if (refused_) return answer(line::NoImage{image_alike(store_, job_.uid, origin_, question_name_)});
    resolution_.unanswered();
    refused_ = !start_offline();
    return refused_ ? answer(line::NoImage{}) : answer(line::Have());
  }

  Result<void> take_turn() {
    const Digest manifest = key_.digest;
    const auto stops = [&] {
      distribution_.beat(0);
      return served_ || is_cancelled();
    };
    const auto done = [&] { return stops() || find(manifest); };
    TRY_ASSIGN(ImportTurn turn, situla::take_turn(store_.lease_path(key_), store_.slots(),
                                                  {job_.uid, job_.job, config_.imports_per_user}, patience_, log_,
                                                  {events_.waiting, done, stops}));
    waited_ = waited_ || turn.waited;
    turn_.emplace(std::move(turn));
    return served_ || turn_->slot ? Result<void>() : fail(ErrorKind::cancelled, "");
  }

  Result<void> on(const line::FindLayer& wanted) {
    if (!image_) return out_of_turn();
    auto found = shelf_.find(wanted.layer, wanted.kind);
    if (!found) return answer(line::NoLayer());
    // What an importer was fed by one origin must not be given to those who trust another one.
    if (found->other_origin) key_.only = job_.uid;
    return answer(line::Layer{found->image}, {found->index.get(), found->donor.get()});
  }

  Result<void> on(const line::PutLayer& layer) {
    if (!image_) return out_of_turn();
    const int file = indexes_.begin(layer.layer, layer.kind);
    return file < 0 ? answer(line::NoLayer()) : answer(line::WriteIndex(), {file});
  }

  Result<void> on(const line::Progressed& progress) {
    fetched_ = std::max(fetched_, progress.bytes);
    if (progress.finishing) state_ = LeaseRecord::State::finishing;
    return {};
  }

  Result<void> on(const line::MakeRoom&) {
    if (!image_) return out_of_turn();
    TRY(room_.make_some());
    return answer(line::RoomMade());
  }

  Result<void> on(const line::Built& built) {
    if (!image_) return out_of_turn();
    TRY(wait_for_importer());
    turn_->report(LeaseRecord::State::storing, written());
    // From here on nothing that has read bytes from outside lives, or can write to the file.
    TRY(image_->seal());
    TRY(wait_for_writers(image_->fd()));
    TRY(check_size(image_bytes()));
    TRY(check_superblock(image_->fd()));
    return publish(printable(std::string_view(built.architecture).substr(0, 64)), built.fetched_bytes);
  }

  /// The file gets its name.
  Result<void> publish(const std::string& architecture, uint64_t fetched_bytes) {
    distribution_.has_it();  // what follows may take long
    log_.debug("syncing the image");
    if (fsync(image_->fd()) != 0) return fail_errno(errno, "sync the new image in " + store_.images());
    // One after the other: what is counted here has its name before the next one counts. Nobody writes out an image
    // meanwhile.
    TRY_ASSIGN(UniqueFd images, open_file(store_.images(), O_RDONLY | O_DIRECTORY));
    const auto alone =
        FileLock::acquire(std::move(images), FileLock::Kind::exclusive, kPublishingLimit, store_.images());
    TRY(make_room());
    StoreRecord record;
    record.source = origin_.registry + "/" + origin_.repository;
    record.name = question_name_;
    record.tag = question_tag_;
    record.architecture = architecture;
    record.uid = job_.uid;
    record.fetched_bytes = fetched_bytes;
    record.imported = std::time(nullptr);
    // From here on it is among the images that others count.
    if (turn_->slot) turn_->slot->report(0);
    TRY_ASSIGN(const bool first, store_.publish(*image_, key_, record));
    if (first) {
      indexes_.keep(key_.name());
      trim_indexes(store_.layers(job_.uid));
    }
    auto file = store_.find(key_);
    if (!file) return fail(ErrorKind::failure, "the image disappeared from the store as soon as it was there");
    served_ = ServedImage{key_, std::move(*file), false, false};
    return {};
  }

  /// Its end is the end of every right to the file that it had. Until then it can write.
  Result<void> wait_for_importer() {
    pollfd end{importer_ ? importer_.get() : lines_.importer, importer_ ? short{POLLIN} : short{POLLRDHUP}, 0};
    const auto limit = std::chrono::steady_clock::now() + kEndLimit;
    while (poll(&end, 1, static_cast<int>(kTick.count())) <= 0) {
      if (std::chrono::steady_clock::now() > limit)
        return fail(Error(ErrorKind::failure, "the importer has written the image, but does not end")
                        .with_code(ErrorCode::helper));
      TRY(beat());
    }
    return {};
  }

  [[nodiscard]] uint64_t image_bytes() const {
    struct stat status {};
    return image_ && fstat(image_->fd(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
  }
  /// By the importer: to the image, and to the indexes of its layers.
  [[nodiscard]] uint64_t written() const { return image_bytes() + indexes_.bytes(); }
  /// A new image has no bytes yet, and needs some.
  Result<void> make_room() {
    const uint64_t bytes = std::max<uint64_t>(written(), 1);
    return room_.make(bytes, turn_->report_size(bytes));
  }

  [[nodiscard]] Result<void> check_size(uint64_t bytes) const {
    if (config_.largest_image == 0 || bytes <= config_.largest_image) return {};
    return fail(Error(ErrorKind::no_space, "the image's file has " + format_size(bytes) + ", and may have " +
                                               format_size(config_.largest_image))
                    .with_code(ErrorCode::image_too_large)
                    .with_hint("see largest_image in /etc/situla/situla.toml"));
  }

  Result<void> beat() {
    last_beat_ = std::chrono::steady_clock::now();
    distribution_.beat(fetched_);
    if (!image_) return {};
    turn_->report(state_, std::max(fetched_, written()));
    TRY(check_size(image_bytes()));
    return make_room();
  }

  const StoreJob& job_;
  const SiteConfig& config_;
  StoreLines lines_;
  const StoreEvents& events_;
  LogSink& log_;
  Lease::Options patience_;
  ImageStore store_;
  Origin origin_;
  Resolution resolution_;
  std::string name_;                          ///< the image as typed, for messages
  std::string question_name_, question_tag_;  ///< of the ImageQuestion
  LayerShelf shelf_;
  NewIndexes indexes_{shelf_};
  StoreRoom room_;
  Distribution distribution_;

  bool asked_ = false, resolved_ = false, waited_ = false, offline_ = false, refused_ = false;
  UniqueFd importer_;                   ///< pidfd, or none
  std::optional<NamedManifest> meant_;  ///< what the registry said
  std::optional<Digest> wanted_;        ///< the importer was asked for this manifest, not for the name
  ImageKey key_;
  std::optional<ImportTurn> turn_;  ///< since there is something to import
  std::optional<OutputFile> image_;
  LeaseRecord::State state_ = LeaseRecord::State::fetching;
  uint64_t fetched_ = 0;
  std::chrono::steady_clock::time_point last_beat_{};
  std::optional<ServedImage> served_;
};

}  // namespace

Result<void> serve_import(const StoreJob& job, const ImportRequest& request, const SiteConfig& config,
                          const StoreLines& lines, const StoreEvents& events, LogSink& log,
                          const Lease::Options& patience) {
  // This runs as the service user: it must not open a file or a socket because somebody else named it.
  if (image_kind(request.image) != ImageKind::registry)
    return fail(Error(ErrorKind::denied, "import " + printable(request.image) + ": only images of a registry go here")
                    .with_code(ErrorCode::image_name)
                    .with_hint("images in files and engines are imported by their user: 'situla import'"));
  const auto explained = [&](Error error) {
    return std::move(error).with_context("failed to import docker image: " + request.image_in_words());
  };
  auto origin = origin_of(request);
  if (!origin) return fail(explained(std::move(origin).error()));
  auto settings = Resolution::settings_of(config, request.resolve);
  if (!settings) return fail(explained(std::move(settings).error()));
  auto question = ImageQuestion::of(request, job.uid, *origin);
  if (!question) return fail(explained(std::move(question).error()));
  TRY_ASSIGN(ImageStore store, ImageStore::open(job.store));
  TRY_ASSIGN(const std::string bytes, request.serialize());
  TRY_ASSIGN(const UniqueFd work, sealed_memory("situla-request", bytes));
  const std::string asked_for = question->name, beside = question->tag;
  Resolution resolution(job.store, std::move(*question), job.job, *settings, static_cast<uint64_t>(std::time(nullptr)));
  Serving serving(job, config, lines, events, log, patience, std::move(store), std::move(*origin),
                  std::move(resolution), printable(request.image), asked_for, beside);
  auto served = serving.run(work.get());
  if (!served) serving.give_up();
  if (!served) serving.count_failure();
  return served;
}

}  // namespace situla
