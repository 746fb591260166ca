#include "hooks/store/serve.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <deque>

#include <poll.h>
#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/sys/socket.hpp"
#include "hooks/import/layer_cache.hpp"
#include "hooks/store/layer_shelf.hpp"
#include "hooks/store/limits.hpp"
#include "hooks/store/messages.hpp"
#include "hooks/store/room.hpp"

namespace situla {
namespace {

namespace line = store_line;

constexpr std::chrono::milliseconds kTick{500};
constexpr std::chrono::seconds kEndLimit{10};
constexpr size_t kMostLayers = 512;  // more are not kept: each is an open file until the image has its name

std::string printed_holder(const LeaseRecord& holder) {
  return printable("job " + holder.job + " on " + holder.node);
}

/// One import, from the registry's answer to the image's name.
class Serving {
 public:
  Serving(const StoreJob& job, const SiteConfig& config, const StoreLines& lines, LogSink& log,
          const Lease::Options& patience, ImageStore store, Origin origin)
      : job_(job),
        config_(config),
        lines_(lines),
        log_(log),
        patience_(patience),
        store_(std::move(store)),
        origin_(std::move(origin)),
        shelf_(store_, job.uid, origin_key({origin_.registry, ""}), origin_key(origin_)),
        room_(store_, job.uid, {config.store_reserve, config.bytes_per_user}) {}

  Result<ServedImage> run() {
    while (!served_) {
      TRY_ASSIGN(const auto packet, next());
      if (!packet) {
        TRY(beat());
        continue;
      }
      TRY_ASSIGN(const line::Message message, line::decode(packet->bytes));
      if (!packet->fds.empty()) return fail(ErrorKind::corrupt, "the importer sent descriptors");
      TRY(std::visit([this](const auto& m) { return on(m); }, message));
    }
    return std::move(*served_);
  }

 private:
  /// A message, or nothing when the time for a heartbeat has come.
  Result<std::optional<Packet>> next() {
    std::array<pollfd, 2> wait{{{lines_.importer, POLLIN, 0}, {lines_.broker, POLLRDHUP, 0}}};
    const int count = poll(wait.data(), wait.size(), image_ ? static_cast<int>(kTick.count()) : -1);
    if (count < 0 && errno != EINTR) return fail_errno(errno, "wait for the importer");
    if (count <= 0) return std::nullopt;
    if (wait[1].revents != 0) return fail(ErrorKind::cancelled, "");
    TRY_ASSIGN(auto packet, receive_packet(lines_.importer, line::kMaxBytes));
    if (!packet) return fail(ErrorKind::cancelled, "");
    // A heart beats also while messages come without a pause.
    if (std::chrono::steady_clock::now() - last_beat_ > kTick) TRY(beat());
    return packet;
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

  /// The image as everybody gets it who is let in to its origin, or this user's own.
  bool find() {
    for (const auto& only : {std::optional<uid_t>(), std::optional<uid_t>(job_.uid)}) {
      ImageKey key = key_;
      key.only = only;
      if (auto file = store_.find(key)) {
        store_.touch(key);
        served_ = ServedImage{std::move(key), std::move(*file), true};
        return true;
      }
    }
    return false;
  }

  Result<void> on(const line::Resolved& resolved) {
    if (resolved_) return out_of_turn();
    resolved_ = true;
    key_ = {resolved.manifest, origin_key(origin_), job_.variant, std::nullopt};
    if (find()) return answer(line::Have());
    TRY(take_turn());
    if (served_) return answer(line::Have());
    TRY(make_room());
    TRY_ASSIGN(OutputFile file, store_.create());
    image_.emplace(std::move(file));
    return answer(line::WriteImage{store_.image_path(key_)}, {image_->fd()});
  }

  /// One import of an image at a time, and not too many of one user.
  Result<void> take_turn() {
    const auto wanted = [this] { return !is_cancelled() && !find(); };
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
    if (served_ || find()) return {};
    if (is_cancelled()) return fail(ErrorKind::cancelled, "");
    TRY_ASSIGN(auto slot, ImportSlot::acquire(
                              store_.slots(), job_.uid, config_.imports_per_user,
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

  Result<void> on(const line::Built& built) {
    if (!image_) return out_of_turn();
    TRY(wait_for_importer());
    if (lease_) lease_->report(LeaseRecord::State::storing, written());
    // From here on nothing that has read bytes from outside lives, or can write to the file.
    TRY(image_->seal());
    TRY(wait_for_writers(image_->fd()));
    TRY(check_size());
    TRY(check_superblock(image_->fd()));
    TRY(make_room());
    log_.debug("syncing the image");
    StoreRecord record;
    record.source = origin_.registry + "/" + origin_.repository;
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
    pollfd end{lines_.importer_process < 0 ? lines_.importer : lines_.importer_process,
               lines_.importer_process < 0 ? short{POLLRDHUP} : short{POLLIN}, 0};
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
    return room_.make(bytes, slot_ ? slot_->bytes_of_others() : 0);
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
  LogSink& log_;
  Lease::Options patience_;
  ImageStore store_;
  Origin origin_;
  LayerShelf shelf_;
  StoreRoom room_;

  bool resolved_ = false;
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

Result<ServedImage> serve_import(const StoreJob& job, const ImportRequest& request, const SiteConfig& config,
                                 const StoreLines& lines, LogSink& log, const Lease::Options& patience) {
  // This runs as the service user: it must not open a file or a socket because somebody else named it.
  if (image_kind(request.image) != ImageKind::registry)
    return fail(Error(ErrorKind::denied, "import " + printable(request.image) + ": only images of a registry go here")
                    .with_hint("images in files and engines are imported by their user: 'situla import'"));
  auto origin = origin_of(request);
  if (!origin)
    return fail(std::move(origin).error().with_context("failed to import docker image: " + printable(request.image)));
  TRY_ASSIGN(ImageStore store, ImageStore::open(job.store));
  TRY_ASSIGN(const std::string bytes, request.serialize());
  TRY_ASSIGN(const UniqueFd work, sealed_memory("situla-request", bytes));
  TRY(send_packet(lines.importer, line::encode(line::Work{job.variant}), {work.get()}));
  Serving serving(job, config, lines, log, patience, std::move(store), std::move(*origin));
  return serving.run();
}

}  // namespace situla
