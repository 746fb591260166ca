#include "hooks/import/layer_stream.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "hooks/import/decompressor.hpp"
#include "hooks/registry/sha256.hpp"

namespace situla {
namespace {

constexpr std::chrono::milliseconds kAskEvery{200};

/// What a decompressor needs, until the end of its layer.
class TakenMemory {
 public:
  explicit TakenMemory(ImportMeter* meter) : meter_(meter) {}
  TakenMemory(const TakenMemory&) = delete;
  TakenMemory& operator=(const TakenMemory&) = delete;
  ~TakenMemory() {
    if (meter_ != nullptr) meter_->give_back(bytes_);
  }
  Result<void> grow_to(uint64_t bytes) {
    if (bytes <= bytes_) return {};
    return meter_->take_memory(bytes - std::exchange(bytes_, bytes));
  }

 private:
  ImportMeter* meter_;
  uint64_t bytes_ = 0;
};

}  // namespace

LayerStream::LayerStream(std::vector<Blob> blobs, BlobReader source, std::function<void()> stop_source,
                         std::function<bool()> cancelled, Trace* trace, ImportMeter* meter)
    : blobs_(std::move(blobs)),
      source_(std::move(source)),
      stop_source_(std::move(stop_source)),
      cancelled_(std::move(cancelled)),
      trace_(trace),
      meter_(meter),
      compressed_of_(blobs_.size()),
      thread_([this] { run(); }) {}

LayerStream::~LayerStream() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  stop_source_();
  thread_.join();
}

void LayerStream::run() {
  if (trace_ != nullptr) trace_->name_thread("hash and inflate");
  for (size_t i = 0; i < blobs_.size(); ++i) {
    auto done = run_layer(i);
    if (done) done = push(Chunk{});
    if (done) continue;
    const std::scoped_lock lock(mutex_);
    error_ = std::move(done).error();
    changed_.notify_all();
    return;
  }
}

Result<LayerStream::Chunk> LayerStream::empty_chunk() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopping_ || !spare_.empty() || made_ < kChunks; });
  if (stopping_) return fail(ErrorKind::cancelled, "stopped");
  Chunk chunk;
  if (spare_.empty()) {
    ++made_;
    chunk.data.reset(new char[kChunkBytes]);  // NOLINT: not make_unique, which would touch every page
  } else {
    chunk = std::move(spare_.back());
    spare_.pop_back();
  }
  chunk.size = 0;
  return chunk;
}

Result<void> LayerStream::push(Chunk chunk) {
  const std::scoped_lock lock(mutex_);
  if (stopping_) return fail(ErrorKind::cancelled, "stopped");
  full_.push_back(std::move(chunk));
  changed_.notify_all();
  return {};
}

Result<void> LayerStream::check(size_t index, uint64_t size, const Digest& digest) const {
  const Blob& blob = blobs_[index];
  if (size != blob.size)
    return fail(Error(ErrorKind::corrupt,
                      blob.name + ": has " + std::to_string(size) + " bytes instead of " + std::to_string(blob.size))
                    .with_code(ErrorCode::image_damaged)
                    .with_hint("the stored blob is damaged: push or save the image again"));
  if (digest != blob.digest)
    return fail(
        Error(ErrorKind::corrupt, blob.name + ": its content has the digest " + digest.text())
            .with_code(ErrorCode::image_damaged)
            .with_hint(
                "the data was damaged where it is stored, or by a proxy on the way: push or save the image again"));
  return {};
}

Result<void> LayerStream::run_layer(size_t index) {
  const std::string& name = blobs_[index].name;
  furthest_ = index;
  const bool of_content = blobs_[index].of_content;
  Sha256 hash;
  uint64_t size = 0;
  std::unique_ptr<Decompressor> decompressor;
  std::string first;  // until it is known what this is
  TRY_ASSIGN(Chunk chunk, empty_chunk());
  TakenMemory taken(meter_);
  std::optional<Error> broken;  // told only if the digest is right: otherwise the digest is the cause
  const auto decompress = [&](std::string_view bytes) -> Result<void> {
    while (true) {
      auto produced = [&] {
        const TraceSpan span(trace_, "inflate", name);
        return decompressor->run(bytes, chunk.data.get() + chunk.size, kChunkBytes - chunk.size);
      }();
      if (!produced) {
        broken = std::move(produced).error();
        return {};
      }
      decompressed_ += *produced;
      if (meter_ != nullptr) {
        TRY_CONTEXT(name, meter_->check_expansion(decompressed_, compressed_));
        TRY_CONTEXT(name, taken.grow_to(decompressor->memory()));
      }
      if (of_content) hash.update({chunk.data.get() + chunk.size, *produced});
      chunk.size += *produced;
      if (chunk.size < kChunkBytes && bytes.empty()) return {};
      TRY(push(std::move(chunk)));
      const TraceSpan span(trace_, "wait for tar", name);
      TRY_ASSIGN(chunk, empty_chunk());
    }
  };
  while (true) {
    auto received = [&] {
      const TraceSpan span(trace_, "download wait", name);
      return source_(index);
    }();
    TRY_ASSIGN(const std::string_view bytes, std::move(received));
    if (bytes.empty()) break;
    if (!of_content) {
      const TraceSpan span(trace_, "hash", name);
      hash.update(bytes);
    }
    size += bytes.size();
    compressed_ += bytes.size();
    compressed_of_[index] += bytes.size();
    if (broken) continue;
    if (decompressor) {
      TRY(decompress(bytes));
      continue;
    }
    first += bytes;
    if (first.size() < 4) continue;
    TRY_ASSIGN(decompressor, make_decompressor(first));
    TRY(decompress(first));
  }
  if (!of_content) TRY(check(index, size, hash.finish()));
  if (!decompressor && !first.empty()) {
    TRY_ASSIGN(decompressor, make_decompressor(first));
    TRY(decompress(first));
  }
  if (decompressor && !broken) TRY_CONTEXT(name, decompressor->finish());
  if (broken) return fail(std::move(*broken).with_context(name));
  if (of_content) TRY(check(index, size, hash.finish()));
  if (chunk.size > 0) return push(std::move(chunk));
  const std::scoped_lock lock(mutex_);
  spare_.push_back(std::move(chunk));
  return {};
}

Result<std::string_view> LayerStream::read() {
  std::unique_lock lock(mutex_);
  if (at_end_) return std::string_view();
  if (current_.data) {
    spare_.push_back(std::move(current_));
    current_ = Chunk{};
    changed_.notify_all();
  }
  while (true) {
    if (cancelled_ && cancelled_()) return fail(ErrorKind::cancelled, "cancelled");
    if (changed_.wait_for(lock, kAskEvery, [this] { return !full_.empty() || error_; })) break;
    if (!on_wait_) continue;
    lock.unlock();
    on_wait_();
    lock.lock();
  }
  if (full_.empty()) return fail(*error_);
  current_ = std::move(full_.front());
  full_.pop_front();
  at_end_ = current_.size == 0;
  unpacked_ += current_.size;
  if (!current_.data) return std::string_view();
  return std::string_view(current_.data.get(), current_.size);
}

Result<void> LayerStream::drain() {
  while (!at_end_) TRY(read());
  at_end_ = false;
  return {};
}

}  // namespace situla
