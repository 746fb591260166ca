// How do layers arrive as fast as the network allows, in order, in bounded memory? Ranges of blobs, several at a time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/digest.hpp"
#include "hooks/registry/blob.hpp"
#include "hooks/registry/http.hpp"
#include "hooks/registry/registry_client.hpp"

namespace situla {

/// Fetches blobs in the order given, one after the other, each cut into segments that several connections fetch at
/// once, never further ahead of the reader than `window_bytes`. One big layer so gets as many connections as many small
/// ones, and nothing is ever put on disk. A broken segment is resumed at its last good byte. A registry that ignores
/// Range is read by one connection. What the first registry lacks or fails to deliver comes from the next one (they are
/// a mirror's successors), from the last good byte on; a foreign layer that none has from its URLs, without
/// credentials.
class BlobDownloader {
 public:
  struct Options {
    unsigned connections = 6;
    RetryLimits limits;  ///< per segment, without progress at stall_rate
    size_t segment_bytes = size_t{4} << 20U;
    size_t window_bytes = size_t{48} << 20U;
    uint32_t stall_rate = 0;  ///< bytes per second; 0: any byte is progress
  };

  /// transport and registries (at least one) must outlive this object and are not to be used by others until it is
  /// gone.
  BlobDownloader(HttpTransport& transport, std::vector<RegistryClient*> registries, std::vector<Blob> blobs,
                 Options options);
  BlobDownloader(const BlobDownloader&) = delete;
  BlobDownloader& operator=(const BlobDownloader&) = delete;
  ~BlobDownloader();

  /// The next bytes of the blob, which must be read to its end before the next one; empty at the end. Valid until the
  /// next call.
  Result<std::string_view> read(size_t blob);
  /// Makes a waiting read() return ErrorKind::cancelled. From any thread.
  void stop();
  /// As Progress::waiting(): "trying again in 4 s", or "answer 503, trying again in 4 s", while no connection is left
  /// that brings anything. From any thread.
  [[nodiscard]] std::string waits_for() const;

 private:
  class Transfer;
  struct Segment {
    size_t blob = 0;
    uint64_t begin = 0;  ///< offset in the blob
    size_t size = 0;
    size_t filled = 0;
    size_t consumed = 0;
    std::unique_ptr<char[]> data;
  };
  enum class Ranges { unknown, yes, no };
  enum class Retry { never, later, at_once };
  struct Verdict {
    std::optional<Error> error;  ///< counts when there are no more attempts
    Retry retry = Retry::never;
  };

  void run();
  bool start_next();
  std::shared_ptr<Segment> add_segment(size_t blob, uint64_t begin);
  [[nodiscard]] bool has_room(size_t size) const {
    return window_used_ + size <= std::max(options_.window_bytes, size);
  }
  void finish_ended();
  Verdict judge(Transfer& transfer);
  Verdict renew_authorization(Transfer& transfer);
  Verdict try_next_place(Transfer& transfer, Error error);
  void restart_due();
  void note_waiting();
  void fail_with(Error error);

  HttpTransport& transport_;
  const std::vector<RegistryClient*> registries_;
  const std::vector<Blob> blobs_;
  const Options options_;

  mutable std::mutex mutex_;  // guards what follows; the network thread also reads its own fields without it
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Segment>> window_;  ///< in order; front is being read
  std::vector<std::unique_ptr<char[]>> spare_;
  size_t window_used_ = 0;
  std::optional<Error> error_;
  bool stopping_ = false;
  /// When the first of them tries again, if all of them wait for that; and what was wrong with it.
  std::optional<std::chrono::steady_clock::time_point> waits_until_;
  std::string waits_because_;

  // Network thread only.
  std::list<std::unique_ptr<Transfer>> transfers_;
  size_t next_blob_ = 0;
  uint64_t next_offset_ = 0;
  Ranges ranges_ = Ranges::unknown;
  bool delivered_ = false;             ///< some bytes of a blob have come
  bool streaming_ = false;             ///< one transfer delivers the rest of next_blob_
  std::vector<size_t> places_;         ///< of each blob: the registries by their index, then its URLs
  std::vector<std::string> failures_;  ///< of each blob: what was wrong with the registries asked before

  std::thread thread_;
};

}  // namespace situla
