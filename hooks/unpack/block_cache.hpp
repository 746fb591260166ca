// Which blocks of an image have been decompressed already? A bounded number of bytes, shared by all threads.
#pragma once

#include <cstdint>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "common/base/result.hpp"

namespace situla {

/// Values by a 64-bit key, the least recently used of which are forgotten. Each is made once: threads that want the
/// same one wait for the first.
template <typename Value>
class BlockCache {
 public:
  using Shared = std::shared_ptr<const Value>;

  /// limit: of all weights together, bytes.
  explicit BlockCache(size_t limit) : limit_(limit) {}

  /// load: a function that gives a Result<std::pair<Shared, size_t weight>>. Errors are not remembered.
  template <typename Load>
  Result<Shared> get(uint64_t key, const Load& load) {
    std::optional<std::promise<Result<Shared>>> promise;
    {
      std::unique_lock lock(mutex_);
      if (const auto found = index_.find(key); found != index_.end()) {
        entries_.splice(entries_.begin(), entries_, found->second);
        const auto value = found->second->value;
        lock.unlock();
        return value.get();
      }
      entries_.push_front({key, 0, promise.emplace().get_future().share()});
      index_[key] = entries_.begin();
    }
    Result<std::pair<Shared, size_t>> loaded = load();
    settle(key, loaded ? loaded->second : 0, loaded.has_value());
    Result<Shared> value = loaded ? Result<Shared>(std::move(loaded->first)) : Result<Shared>(fail(loaded.error()));
    promise->set_value(value);
    return value;
  }

 private:
  struct Entry {
    uint64_t key = 0;
    size_t weight = 0;
    std::shared_future<Result<Shared>> value;
  };

  void settle(uint64_t key, size_t weight, bool good) {
    const std::lock_guard lock(mutex_);
    const auto found = index_.find(key);
    if (found == index_.end()) return;
    if (!good) {
      entries_.erase(found->second);
      index_.erase(found);
      return;
    }
    used_ += weight - std::exchange(found->second->weight, weight);
    // What is still being loaded weighs nothing and is never last for long: it was put in front.
    while (used_ > limit_ && entries_.size() > 1) {
      used_ -= entries_.back().weight;
      index_.erase(entries_.back().key);
      entries_.pop_back();
    }
  }

  const size_t limit_;
  std::mutex mutex_;
  size_t used_ = 0;
  std::list<Entry> entries_;  ///< most recently used first
  std::unordered_map<uint64_t, typename std::list<Entry>::iterator> index_;
};

}  // namespace situla
