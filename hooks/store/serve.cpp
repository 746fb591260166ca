#include "hooks/store/serve.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <deque>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"
#include "hooks/import/layer_cache.hpp"
#include "hooks/store/layer_shelf.hpp"
#include "hooks/store/limits.hpp"
#include "hooks/store/messages.hpp"
#include "hooks/store/resolution.hpp"
#include "hooks/store/room.hpp"

namespace situla {
namespace {

namespace line = store_line;

constexpr std::chrono::milliseconds kTick{500};
constexpr std::chrono::seconds kEndLimit{10};
constexpr std::chrono::seconds kPublishingLimit{20};  // then without
constexpr size_t kMostLayers = 512;  // more are not kept: each is an open file until the image has its name

std::string printed_holder(const LeaseRecord& holder) {
  return printable("job " + holder.job + " on " + holder.node);
}

/// One import, from what is known of the image to its name.
class Serving {
 public:
  Serving(const StoreJob& job, const SiteConfig& config, const StoreLines& lines, const StoreEvents& events,
          LogSink& log, const Lease::Options& patience, ImageStore store, Origin origin, Resolution resolution,
          std::string name, std::string question_name)
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
        shelf_(store_, job.uid, origin_key({origin_.registry, ""}), origin_key(origin_)),
        room_(store_, job.uid, {config.store_reserve, config.bytes_per_user, config.store_max, config.image_age}) {}

  /// `work`: the request, for the importer.
  Result<void> run(int work) {
    if (!start_without_asking()) {
      TRY(ask(work));
      while (!served_) {
        TRY_ASSIGN(const auto message, next());
        if (message)
          TRY(std::visit([this](const auto& m) { return on(m); }, *message));
        else
          TRY(beat());
      }
    }
    if (const auto moved = resolution_.moved_to()) log_.warning(name_ + has_moved(*moved, key_.digest));
    const bool looks_again = !asked_ && resolution_.look_again();
    const bool imported = !served_->stored;
    TRY(events_.served(*served_, looks_again));
    served_.reset();
    if (imported) tidy_up();
    return looks_again ? look_again(work) : Result<void>();
  }

 private:
  /// After the import, when the step has its image.
  void tidy_up() {
    const int64_t now = std::time(nullptr);
    room_.drop_old(static_cast<uint64_t>(now));
    store_.sweep(now);
  }

  /// What the registry has said before may be enough.
  bool start_without_asking() {
    if (const auto manifest = resolution_.granted(); manifest && find(*manifest)) return true;
    return resolution_.is_silent() && start_offline();
  }

  bool start_offline() {
    const auto old = resolution_.offline();
    if (!old || !find(old->manifest)) return false;
    resolution_.started_offline(*old);
    log_.warning(does_not_answer(origin_.registry, name_, "started", resolution_.now() - old->time, old->manifest));
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
    TRY_ASSIGN(const auto message, next());
    if (!message) return out_of_turn();
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
    const int count = poll(wait.data(), wait.size(), image_ ? static_cast<int>(kTick.count()) : -1);
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
    served_ = ServedImage{std::move(found->first), std::move(found->second), true};
    return true;
  }

  Result<void> on(const line::Resolved& resolved) {
    if (resolved_) return out_of_turn();
    resolved_ = true;
    const Digest& manifest = resolved.image.manifest;
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
    if (unresolved.why != ErrorKind::network && unresolved.why != ErrorKind::unreachable)
      return answer(line::NoImage());
    resolution_.unanswered();
    return start_offline() ? answer(line::Have()) : answer(line::NoImage());
  }

  /// One import of an image at a time, and not too many of one user.
  Result<void> take_turn() {
    const Digest manifest = key_.digest;
    const auto wanted = [&] { return !is_cancelled() && !find(manifest); };
    LeaseRecord self;
    self.uid = job_.uid;
    self.job = job_.job;
    TRY_ASSIGN(auto acquired,
               Lease::acquire(
                   store_.lease_path(key_), self, patience_,
                   [this](const LeaseRecord& holder) {
                     log_.info("waiting for another import of the same image (" + printed_holder(holder) + ")");
                   },
                   [&] { return !wanted(); }));
    if (acquired.outcome == Lease::Outcome::impatient)
      log_.info("the other import of the same image is slow: importing it here as well");
    if (acquired.lease) lease_.emplace(std::move(*acquired.lease));
    // Its last holder may have finished between our look and his leaving.
    if (served_ || find(manifest)) return {};
    if (is_cancelled()) return fail(ErrorKind::cancelled, "");
    TRY_ASSIGN(auto slot, ImportSlot::acquire(
                              store_.slots(), job_.uid, job_.job, config_.imports_per_user,
                              [this] {
                                log_.info("waiting: this user has " + std::to_string(config_.imports_per_user) +
                                          " imports on this node already, and may have " +
                                          std::to_string(config_.imports_per_user) + " (imports_per_user)");
                              },
                              [&] { return !wanted(); }));
    if (slot) slot_.emplace(std::move(*slot));
    if (!served_ && !slot_) return fail(ErrorKind::cancelled, "");
    return {};
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
    if (layers_.size() >= kMostLayers || !is_layer_kind(layer.kind)) return answer(line::NoLayer());
    auto file = shelf_.create();
    if (!file) return answer(line::NoLayer());
    layers_.push_back({layer.layer, layer.kind, std::move(*file)});
    return answer(line::WriteIndex(), {layers_.back().file.fd()});
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
    if (lease_) lease_->report(LeaseRecord::State::storing, written());
    // From here on nothing that has read bytes from outside lives, or can write to the file.
    TRY(image_->seal());
    TRY(wait_for_writers(image_->fd()));
    TRY(check_size());
    TRY(check_superblock(image_->fd()));
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
    record.architecture = printable(std::string_view(built.architecture).substr(0, 64));
    record.uid = job_.uid;
    record.fetched_bytes = built.fetched_bytes;
    record.imported = std::time(nullptr);
    TRY_ASSIGN(const bool first, store_.publish(*image_, key_, record));
    if (first) keep_layers();
    auto file = store_.find(key_);
    if (!file) return fail(ErrorKind::failure, "the image disappeared from the store as soon as it was there");
    served_ = ServedImage{key_, std::move(*file), false};
    return {};
  }

  /// Its end is the end of every right to the file that it had. Until then it can write.
  Result<void> wait_for_importer() {
    pollfd end{importer_ ? importer_.get() : lines_.importer, importer_ ? short{POLLIN} : short{POLLRDHUP}, 0};
    const auto limit = std::chrono::steady_clock::now() + kEndLimit;
    while (poll(&end, 1, static_cast<int>(kTick.count())) <= 0) {
      if (std::chrono::steady_clock::now() > limit)
        return fail(ErrorKind::failure, "the importer has written the image, but does not end");
      TRY(beat());
    }
    return {};
  }

  void keep_layers() {
    uint64_t bytes = 0;
    for (Kept& layer : layers_) {
      struct stat status {};
      if (!layer.file.seal() || !wait_for_writers(layer.file.fd()) || fstat(layer.file.fd(), &status) != 0) break;
      bytes += static_cast<uint64_t>(status.st_size);
      if (bytes > kMostIndexBytes) break;
      shelf_.put(layer.file, layer.layer, layer.kind, key_.name());
    }
    trim_indexes(store_.layers(job_.uid));
  }

  [[nodiscard]] uint64_t written() const {
    struct stat status {};
    return image_ && fstat(image_->fd(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
  }
  /// A new image has no bytes yet, and needs some.
  Result<void> make_room() {
    const uint64_t bytes = std::max<uint64_t>(written(), 1);
    if (slot_) slot_->report(bytes);
    return room_.make(bytes, slot_ ? slot_->others() : ImportSlot::InFlight());
  }

  [[nodiscard]] Result<void> check_size() const {
    if (config_.largest_image == 0 || written() <= config_.largest_image) return {};
    return fail(Error(ErrorKind::no_space, "the image's file has " + format_size(written()) + ", and may have " +
                                               format_size(config_.largest_image))
                    .with_hint("see largest_image in /etc/situla/situla.toml"));
  }

  Result<void> beat() {
    last_beat_ = std::chrono::steady_clock::now();
    if (!image_) return {};
    if (lease_) lease_->report(state_, std::max(fetched_, written()));
    TRY(check_size());
    return make_room();
  }

  struct Kept {
    Digest layer;
    std::string kind;
    OutputFile file;
  };

  const StoreJob& job_;
  const SiteConfig& config_;
  StoreLines lines_;
  const StoreEvents& events_;
  LogSink& log_;
  Lease::Options patience_;
  ImageStore store_;
  Origin origin_;
  Resolution resolution_;
  std::string name_, question_name_;  ///< the image as typed, for messages; ImageQuestion::name
  LayerShelf shelf_;
  StoreRoom room_;

  bool asked_ = false, resolved_ = false;
  UniqueFd importer_;             ///< pidfd, or none
  std::optional<Digest> wanted_;  ///< the importer was asked for this manifest, not for the name
  ImageKey key_;
  std::optional<Lease> lease_;
  std::optional<ImportSlot> slot_;
  std::optional<OutputFile> image_;
  std::deque<Kept> layers_;
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
                    .with_hint("images in files and engines are imported by their user: 'situla import'"));
  const auto explained = [&](Error error) {
    return std::move(error).with_context("failed to import docker image: " + printable(request.image));
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
  const std::string asked_for = question->name;
  Resolution resolution(job.store, std::move(*question), job.job, *settings, static_cast<uint64_t>(std::time(nullptr)));
  Serving serving(job, config, lines, events, log, patience, std::move(store), std::move(*origin),
                  std::move(resolution), printable(request.image), asked_for);
  return serving.run(work.get());
}

Result<void> note_content(const std::string& store, const std::string& name, int broker) {
  TRY(run_when_idle());
  TRY_ASSIGN(const ImageStore images, ImageStore::open(store));
  const auto file = images.find_named(name);
  if (!file) return {};
  TRY_ASSIGN(const auto content, hash_content(file->get(), [broker] { return !has_hung_up(broker); }));
  return content ? images.note_content(name, *content) : Result<void>();
}

}  // namespace situla
