// How does a blob become a verified tar stream? A thread that hashes and decompresses ahead of the reader, in bounded
// memory.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/sources/image_source.hpp"
#include "hooks/squashfs/budget.hpp"
#include "hooks/squashfs/trace.hpp"

namespace situla {

/// Delivers the blobs one after the other. A layer's end is reported only when its digest and size were right, so
/// nothing that was read may be used for good before that.
class LayerStream {
 public:
  /// source is called from another thread, until this object is gone; stop_source makes a waiting call return.
  /// cancelled, if any, is asked several times a second by a waiting read(). meter: what decompressing needs and gives
  /// is taken from it; may be null.
  LayerStream(std::vector<Blob> blobs, BlobReader source, std::function<void()> stop_source,
              std::function<bool()> cancelled = nullptr, Trace* trace = nullptr, ImportMeter* meter = nullptr);
  LayerStream(const LayerStream&) = delete;
  LayerStream& operator=(const LayerStream&) = delete;
  ~LayerStream();

  /// Next bytes of the current layer's tar stream, valid until the next call; empty at its end, after which the next
  /// layer follows.
  Result<std::string_view> read();
  /// Reads and drops the rest of the current layer (what follows the end of the archive).
  Result<void> drain();

  /// Called by a read() that has to wait, a few times a second, in the reader's thread.
  void on_wait(std::function<void()> call) { on_wait_ = std::move(call); }
  /// BlobStream::waits_for.
  void explain_waits(std::function<std::string()> waits_for) { waits_for_ = std::move(waits_for); }
  [[nodiscard]] std::string waits_for() const { return waits_for_ ? waits_for_() : std::string(); }

  [[nodiscard]] uint64_t compressed_bytes() const { return compressed_; }
  /// The same for one blob, and the blob that is being decompressed, which is ahead of the reader's.
  [[nodiscard]] uint64_t compressed_bytes_of(size_t blob) const { return compressed_of_[blob]; }
  [[nodiscard]] size_t furthest_blob() const { return furthest_; }
  [[nodiscard]] uint64_t unpacked_bytes() const { return unpacked_; }

 private:
  static constexpr size_t kChunkBytes = size_t{512} << 10U;
  static constexpr size_t kChunks = 12;
  struct Chunk {
    std::unique_ptr<char[]> data;
    size_t size = 0;  ///< 0: end of a layer
  };

  void run();
  Result<void> run_layer(size_t index);
  Result<void> check(size_t index, uint64_t size, const Digest& digest) const;
  Result<Chunk> empty_chunk();
  Result<void> push(Chunk chunk);

  const std::vector<Blob> blobs_;
  BlobReader source_;
  std::function<void()> stop_source_;
  std::function<bool()> cancelled_;
  Trace* trace_;
  ImportMeter* meter_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Chunk> full_;
  std::vector<Chunk> spare_;
  size_t made_ = 0;
  std::optional<Error> error_;
  bool stopping_ = false;
  Chunk current_;
  bool at_end_ = false;
  std::function<void()> on_wait_;
  std::function<std::string()> waits_for_;
  std::atomic<uint64_t> compressed_{0};
  uint64_t decompressed_ = 0;  ///< of all blobs; the thread's
  std::vector<std::atomic<uint64_t>> compressed_of_;
  std::atomic<size_t> furthest_{0};
  uint64_t unpacked_ = 0;
  std::thread thread_;
};

}  // namespace situla
