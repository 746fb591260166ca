#include "hooks/registry/blob_downloader.hpp"

#include <algorithm>
#include <cstring>

#include "common/base/text.hpp"

namespace situla {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMaxErrorBody = 65536;
constexpr unsigned kMaxRefusals = 2;  // a long pull outlives many tokens; an endless 401 must end

/// "bytes 0-9/100" -> {0, 100}; total 0 when it is '*'.
std::optional<std::pair<uint64_t, uint64_t>> parse_content_range(std::string_view value) {
  if (!value.starts_with("bytes ")) return std::nullopt;
  const auto parts = cut(value.substr(6), '/');
  if (!parts) return std::nullopt;
  const auto first = cut(parts->first, '-');
  if (!first) return std::nullopt;
  const auto begin = parse_unsigned(first->first);
  if (!begin) return std::nullopt;
  return std::pair(*begin, parse_unsigned(parts->second).value_or(0));
}

/// The manifest chooses these servers: nothing but https, whatever the settings allow for the registry.
std::vector<Blob> with_usable_urls(std::vector<Blob> blobs) {
  for (Blob& blob : blobs)
    std::erase_if(blob.urls, [](const std::string& url) { return !url.starts_with("https://"); });
  return blobs;
}

}  // namespace

/// Fills one segment, over as many attempts as it takes; in streaming mode it goes on with the segments that follow.
class BlobDownloader::Transfer final : public TransferHandler {
 public:
  Transfer(BlobDownloader& owner, std::shared_ptr<Segment> first, bool ranged)
      : owner_(owner), segment_(std::move(first)), ranged_(ranged), counted_to_(segment_->begin) {}

  Result<void> begin() {
    HttpRequest request;
    place_ = owner_.places_[segment_->blob];
    if (RegistryClient* asked = registry()) {
      TRY(asked->choose_scheme());
      request = asked->blob_request(blob().digest);
    } else {
      request.url = blob().urls[place_ - owner_.registries_.size()];
    }
    url_ = request.url;
    authorization_ = request.authorization;
    skip_ = 0;
    head_ = HttpResponse();
    problem.reset();
    elsewhere = false;
    result = Result<void>();
    ended = false;
    // Also of one that has answered another request with all of it: a pull-through cache does so for what it lacks.
    if (ranged_ || position() > 0) {
      const uint64_t last = ranged_ && !streams_ ? segment_->begin + segment_->size - 1 : blob().size - 1;
      request.range = std::pair(position(), last);
    }
    asked_range_ = request.range.has_value();
    TRY_ASSIGN(id, owner_.transport_.start(request, *this));
    return {};
  }

  Flow on_head(const HttpResponse& head) override {
    head_ = head;
    if (head.status == 206) return check_range();
    if (head.status == 200) return check_whole();
    return Flow::go_on;  // the body is a message
  }

  Flow on_data(std::string_view bytes) override {
    if (head_.status != 200 && head_.status != 206) {
      head_.body += bytes.substr(0, kMaxErrorBody - head_.body.size());
      return message_full() ? Flow::stop : Flow::go_on;
    }
    const auto skipped = static_cast<size_t>(std::min<uint64_t>(skip_, bytes.size()));
    const std::string_view fresh = bytes.substr(skipped);
    if (!fits(fresh.size())) return pause();
    skip_ -= skipped;
    return store(fresh);
  }

  void on_end(Result<void> outcome) override {
    ended = true;
    id = 0;
    result = message_full() ? Result<void>() : std::move(outcome);  // the status says what is wrong
  }

  [[nodiscard]] bool complete() const { return segment_->filled == segment_->size && (!streams_ || at_blob_end()); }
  [[nodiscard]] bool streams() const { return streams_; }
  [[nodiscard]] const Blob& blob() const { return owner_.blobs_[segment_->blob]; }
  [[nodiscard]] uint64_t position() const { return segment_->begin + segment_->filled; }
  [[nodiscard]] const HttpResponse& head() const { return head_; }
  [[nodiscard]] size_t blob_index() const { return segment_->blob; }
  [[nodiscard]] size_t place() const { return place_; }
  /// Whom this attempt asks; null: the URL of a foreign layer.
  [[nodiscard]] RegistryClient* registry() const {
    return place_ < owner_.registries_.size() ? owner_.registries_[place_] : nullptr;
  }
  [[nodiscard]] const std::string& url() const { return url_; }
  /// Forgets the attempts that failed if the bytes since it last did so came at the rate that is asked for. A server
  /// that gives some bytes before each failure would be asked for ever.
  void count_progress() {
    const std::chrono::duration<double> time = Clock::now() - counted_since_;
    const uint64_t bytes = position() - counted_to_;
    if (bytes == 0 || static_cast<double>(bytes) < time.count() * owner_.options_.stall_rate) return;
    attempts = refusals = 0;
    counted_to_ = position();
    counted_since_ = Clock::now();
  }
  /// What this attempt said about who asks.
  [[nodiscard]] const std::string& authorization() const { return authorization_; }
  /// One more attempt has failed. Whether there are to be no more of them at this place.
  [[nodiscard]] bool has_failed() {
    if (attempts++ == 0) failing_since_ = Clock::now();
    const auto failing = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - failing_since_);
    RetryLimits limits = owner_.options_.limits;
    if (!at_last_place()) limits.patience = {};  // there is another one
    const Error* error = result ? nullptr : &result.error();
    // Who has delivered already comes back.
    if (error != nullptr && error->kind() == ErrorKind::unreachable && owner_.delivered_) error = nullptr;
    return limits.reached(attempts, failing, error);
  }
  [[nodiscard]] bool at_last_place() const { return place_ + 1 == owner_.registries_.size() + blob().urls.size(); }

  TransferId id = 0;
  bool ended = false, paused = false;
  unsigned attempts = 0;  ///< without progress
  unsigned refusals = 0;  ///< 401s without progress
  std::optional<Clock::time_point> restart_at;
  std::optional<Error> problem;  ///< what on_head or on_data found; final
  bool elsewhere = false;        ///< but for another place: nothing of this one's has been taken
  Result<void> result;

 private:
  /// Enough of an error's body: it may have no end.
  [[nodiscard]] bool message_full() const { return head_.body.size() >= kMaxErrorBody; }
  [[nodiscard]] bool at_blob_end() const { return segment_->begin + segment_->size == blob().size; }

  Flow give_up(Error error) {
    problem = std::move(error);
    return Flow::stop;
  }
  Flow wrong_size(uint64_t size) {
    elsewhere = true;
    return give_up(Error(ErrorKind::corrupt, "the registry has " + std::to_string(size) + " bytes of it instead of " +
                                                 std::to_string(blob().size))
                       .with_code(ErrorCode::image_damaged)
                       .with_hint("the blob in the registry is damaged: push the image again"));
  }
  Flow check_range() {
    const auto range = parse_content_range(head_.header("content-range").value_or(""));
    if (!asked_range_ || !range || range->first != position()) {
      elsewhere = true;
      return give_up(Error(ErrorKind::corrupt, "the registry answered with another range than was asked for")
                         .with_code(ErrorCode::registry_answer));
    }
    if (range->second != 0 && range->second != blob().size) return wrong_size(range->second);
    owner_.ranges_ = Ranges::yes;
    return Flow::go_on;
  }
  Flow check_whole() {
    const auto length = parse_unsigned(head_.header("content-length").value_or(""));
    if (length && *length != blob().size) return wrong_size(*length);
    if (!ranged_ && !asked_range_) return Flow::go_on;
    // Range was ignored. Whoever has the last segment of the blob so far goes on to its end; the others stop at their
    // own.
    owner_.ranges_ = Ranges::no;
    skip_ = position();
    if (owner_.next_blob_ == segment_->blob && owner_.next_offset_ == segment_->begin + segment_->size &&
        !owner_.streaming_) {
      streams_ = true;
      owner_.streaming_ = true;
    }
    return Flow::go_on;
  }
  /// Bytes that find no place in the window now must wait as a whole: libcurl gives a paused piece again.
  bool fits(size_t size) {
    const std::scoped_lock lock(owner_.mutex_);
    const size_t here = segment_->size - segment_->filled;
    if (!streams_ || size <= here || at_blob_end()) return true;
    return owner_.has_room(owner_.options_.segment_bytes);
  }
  Flow pause() {
    paused = true;
    return Flow::pause;
  }
  Flow store(std::string_view bytes) {
    owner_.delivered_ = true;
    while (!bytes.empty()) {
      if (segment_->filled == segment_->size) {
        if (!streams_) return ranged_ && head_.status == 200 ? Flow::stop : too_long();
        if (at_blob_end()) return too_long();
        segment_ = owner_.add_segment(segment_->blob, segment_->begin + segment_->size);
      }
      const std::scoped_lock lock(owner_.mutex_);
      const size_t size = std::min(bytes.size(), segment_->size - segment_->filled);
      std::memcpy(segment_->data.get() + segment_->filled, bytes.data(), size);
      segment_->filled += size;
      bytes.remove_prefix(size);
      owner_.changed_.notify_one();
    }
    return Flow::go_on;
  }
  Flow too_long() {
    return give_up(
        Error(ErrorKind::corrupt, "the registry sends more than its " + std::to_string(blob().size) + " bytes")
            .with_code(ErrorCode::image_damaged)
            .with_hint("the blob in the registry is damaged: push the image again"));
  }

  BlobDownloader& owner_;
  std::shared_ptr<Segment> segment_;  ///< shared: the reader drops it as soon as it is full
  bool ranged_, asked_range_ = false, streams_ = false;
  uint64_t skip_ = 0;
  uint64_t counted_to_ = 0;  ///< position() up to which progress is counted
  Clock::time_point counted_since_ = Clock::now(), failing_since_;
  size_t place_ = 0;  ///< as in BlobDownloader::places_
  std::string url_, authorization_;
  HttpResponse head_;
};

BlobDownloader::BlobDownloader(HttpTransport& transport, std::vector<RegistryClient*> registries,
                               std::vector<Blob> blobs, Options options)
    : transport_(transport),
      registries_(std::move(registries)),
      blobs_(with_usable_urls(std::move(blobs))),
      options_(options),
      places_(blobs_.size(), 0),
      failures_(blobs_.size()),
      thread_([this] { run(); }) {}

BlobDownloader::~BlobDownloader() {
  stop();
  thread_.join();
}

void BlobDownloader::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  transport_.wake();
}

void BlobDownloader::fail_with(Error error) {
  const std::scoped_lock lock(mutex_);
  if (!error_) error_ = std::move(error);
  changed_.notify_all();
}

Result<std::string_view> BlobDownloader::read(size_t blob) {
  bool freed = false;
  std::unique_lock lock(mutex_);
  while (true) {
    // The bytes given out last are done with now.
    while (!window_.empty() && window_.front()->consumed == window_.front()->size) {
      window_used_ -= options_.segment_bytes;
      spare_.push_back(std::move(window_.front()->data));
      window_.pop_front();
      freed = true;
    }
    if (freed) transport_.wake();
    freed = false;
    if (stopping_) return fail(ErrorKind::cancelled, "stopped");
    Segment* const front = window_.empty() ? nullptr : window_.front().get();
    if (front != nullptr && front->blob != blob) return std::string_view();
    if (front != nullptr && front->filled > front->consumed) {
      const std::string_view bytes(front->data.get() + front->consumed, front->filled - front->consumed);
      front->consumed = front->filled;
      return bytes;
    }
    if (front == nullptr && (next_blob_ > blob || blob >= blobs_.size())) return std::string_view();
    if (error_) return fail(*error_);
    changed_.wait(lock);
  }
}

std::shared_ptr<BlobDownloader::Segment> BlobDownloader::add_segment(size_t blob, uint64_t begin) {
  auto segment = std::make_shared<Segment>();
  segment->blob = blob;
  segment->begin = begin;
  segment->size = static_cast<size_t>(std::min<uint64_t>(options_.segment_bytes, blobs_[blob].size - begin));
  const std::scoped_lock lock(mutex_);
  if (spare_.empty()) {
    segment->data.reset(new char[options_.segment_bytes]);  // NOLINT: not make_unique, which would touch every page
  } else {
    segment->data = std::move(spare_.back());
    spare_.pop_back();
  }
  window_used_ += options_.segment_bytes;
  next_offset_ = begin + segment->size;
  window_.push_back(segment);
  if (next_offset_ == blobs_[blob].size) {
    ++next_blob_;
    next_offset_ = 0;
    streaming_ = false;
  }
  return segment;
}

/// Starts one more transfer if there is something to fetch, room for it, and a connection.
bool BlobDownloader::start_next() {
  {
    const std::scoped_lock lock(mutex_);
    while (next_blob_ < blobs_.size() && blobs_[next_blob_].size == 0) {
      ++next_blob_;
      changed_.notify_one();
    }
    if (next_blob_ >= blobs_.size() || !has_room(options_.segment_bytes)) return false;
  }
  if (transfers_.size() >= options_.connections || streaming_) return false;
  // Whether Range works is learned from the first segment of a large blob. With nothing on the way nobody is left who
  // could go on to its end.
  if (next_offset_ > 0 && ranges_ != Ranges::yes && !transfers_.empty()) return false;
  const Blob& blob = blobs_[next_blob_];
  const bool ranged = blob.size > options_.segment_bytes;
  transfers_.push_back(std::make_unique<Transfer>(*this, add_segment(next_blob_, next_offset_), ranged));
  if (auto started = transfers_.back()->begin(); !started)
    fail_with(std::move(started).error().with_context(blob.name));
  return true;
}

/// A 401 in the middle is a token that expired: a new one, unless another transfer has got it already.
BlobDownloader::Verdict BlobDownloader::renew_authorization(Transfer& transfer) {
  ++transfer.refusals;
  RegistryClient& registry = *transfer.registry();
  if (transfer.authorization() == registry.authorization())
    if (auto authorized = registry.authorize(transfer.head()); !authorized)
      return try_next_place(transfer, std::move(authorized).error());
  return {std::nullopt, Retry::at_once};
}

/// Another registry may have what a mirror lacks; a foreign layer is at one of its URLs.
BlobDownloader::Verdict BlobDownloader::try_next_place(Transfer& transfer, Error error) {
  transfer.attempts = transfer.refusals = 0;
  size_t& place = places_[transfer.blob_index()];
  std::string& before = failures_[transfer.blob_index()];
  if (place == transfer.place()) {
    if (place + 1 == registries_.size() + transfer.blob().urls.size()) {
      if (before.empty()) return {std::move(error)};
      return {error.in_words(error.message() + "; before that" + before)};
    }
    ++place;
    if (place < registries_.size()) {
      before += (before.empty() ? " " : "; ") + authority_of(transfer.url()) + ": " + error.message();
      // A place that does not work, other than one that lacks this blob, is not asked for the next ones.
      const bool broken = error.kind() != ErrorKind::not_found && error.kind() != ErrorKind::denied;
      for (size_t later = transfer.blob_index() + 1; broken && later < places_.size(); ++later)
        places_[later] = std::max(places_[later], place);
    }
  }  // else another transfer of this blob has moved on already
  return {std::nullopt, Retry::at_once};
}

/// What is to be done about a transfer that ended too early.
BlobDownloader::Verdict BlobDownloader::judge(Transfer& transfer) {
  if (transfer.problem && transfer.elsewhere) return try_next_place(transfer, *transfer.problem);
  if (transfer.problem) return {*transfer.problem};
  const HttpResponse& head = transfer.head();
  const bool foreign = transfer.registry() == nullptr;
  if (!transfer.result) {
    // A pull that has come this far outlives a resolver's or a server's bad moment.
    const ErrorKind kind = transfer.result.error().kind();
    const bool again = kind == ErrorKind::network || (kind == ErrorKind::unreachable && transfer.at_last_place());
    if (!again) return try_next_place(transfer, transfer.result.error());
    return {transfer.result.error(), Retry::later};
  }
  if (head.status == 401 && !foreign && transfer.refusals < kMaxRefusals) return renew_authorization(transfer);
  if (head.status == 416)
    return try_next_place(transfer, Error(ErrorKind::corrupt, "the registry has less than its " +
                                                                  std::to_string(transfer.blob().size) + " bytes")
                                        .with_code(ErrorCode::image_damaged)
                                        .with_hint("the blob in the registry is damaged: push the image again"));
  const Retry again = is_transient_status(head.status) ? Retry::later : Retry::never;
  if (foreign && head.status != 200 && head.status != 206) {
    Error error(ErrorKind::not_found, "the registry does not have this foreign layer, and " +
                                          authority_of(transfer.url()) + " answers " + std::to_string(head.status));
    error.with_code(ErrorCode::image_damaged)
        .with_hint(
            "push the layer to the registry (docker: --allow-nondistributable-artifacts), or ask the image's maker");
    if (again == Retry::never) return try_next_place(transfer, std::move(error));
    return {std::move(error), again};
  }
  if (head.status != 200 && head.status != 206) {
    Error error = transfer.registry()->status_error(head, "fetch");
    if (again == Retry::never) return try_next_place(transfer, std::move(error));
    return {std::move(error), again};
  }
  return {Error(ErrorKind::network, "the connection ended after " + std::to_string(transfer.position()) + " of " +
                                        std::to_string(transfer.blob().size) + " bytes")
              .with_code(ErrorCode::registry_unreachable),
          Retry::later};
}

/// Looks at every transfer that ended since: done, to be tried again, or fatal.
void BlobDownloader::finish_ended() {
  for (auto it = transfers_.begin(); it != transfers_.end();) {
    Transfer& transfer = **it;
    if (!transfer.ended || transfer.restart_at) {
      ++it;
      continue;
    }
    const bool good_status = transfer.head().status == 200 || transfer.head().status == 206;
    if (!transfer.problem && transfer.complete() && good_status) {
      it = transfers_.erase(it);
      continue;
    }
    transfer.count_progress();
    Verdict verdict = judge(transfer);
    if (verdict.retry == Retry::later && transfer.has_failed())
      verdict = try_next_place(transfer, std::move(*verdict.error));
    if (verdict.retry == Retry::never) {
      fail_with(std::move(*verdict.error).with_context(transfer.blob().name));
      return;
    }
    const auto delay = verdict.retry == Retry::at_once ? std::chrono::milliseconds(0)
                                                       : retry_delay(transfer.attempts, &transfer.head());
    transfer.restart_at = Clock::now() + delay;
    ++it;
  }
}

void BlobDownloader::restart_due() {
  for (const auto& transfer : transfers_) {
    if (transfer->paused) {
      transfer->paused = false;
      transport_.resume(transfer->id);
    }
    if (!transfer->restart_at || *transfer->restart_at > Clock::now()) continue;
    transfer->restart_at.reset();
    if (auto begun = transfer->begin(); !begun) fail_with(std::move(begun).error().with_context(transfer->blob().name));
  }
}

void BlobDownloader::note_waiting() {
  const Transfer* first = nullptr;
  for (const auto& transfer : transfers_) {
    if (!transfer->restart_at) {
      first = nullptr;
      break;
    }
    if (first == nullptr || *transfer->restart_at < *first->restart_at) first = transfer.get();
  }
  const std::scoped_lock lock(mutex_);
  waits_until_ = first == nullptr ? std::nullopt : first->restart_at;
  // A connection that broke is no news: it stalls.
  const bool answered = first != nullptr && first->result && is_transient_status(first->head().status);
  waits_because_ = answered ? problem_in_words(first->head().status, nullptr) + ", " : "";
}

std::string BlobDownloader::waits_for() const {
  const std::scoped_lock lock(mutex_);
  if (!waits_until_) return {};
  return waits_because_ + trying_again_in(std::chrono::ceil<std::chrono::milliseconds>(*waits_until_ - Clock::now()));
}

void BlobDownloader::run() {
  while (true) {
    {
      const std::scoped_lock lock(mutex_);
      if (stopping_ || error_) break;
      if (next_blob_ >= blobs_.size() && transfers_.empty()) break;
    }
    restart_due();
    while (start_next()) {
    }
    note_waiting();
    const bool waiting =
        std::any_of(transfers_.begin(), transfers_.end(), [](const auto& t) { return t->restart_at.has_value(); });
    if (auto polled = transport_.poll(std::chrono::milliseconds(waiting ? 50 : 1000)); !polled)
      fail_with(std::move(polled).error());
    finish_ended();
  }
  for (const auto& transfer : transfers_)
    if (transfer->id != 0) transport_.cancel(transfer->id);
  transfers_.clear();
}

}  // namespace situla
