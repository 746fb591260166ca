// Which descriptors does the broker wait for, and what is done when one has something to say?
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include <poll.h>

#include "common/base/result.hpp"

namespace situla {

class PollSet {
 public:
  /// A negative descriptor is none. events: 0 for the end of a connection alone.
  void add(int fd, std::function<void()> then, short events = POLLIN) {
    if (fd < 0) return;
    entries_.push_back({fd, events, 0});
    actions_.push_back(std::move(then));
  }

  /// Waits until one is ready, or until `end`, and calls what belongs to those that are, in the order of add(), until
  /// `stale`: then what was added may be gone.
  Result<void> wait(std::chrono::steady_clock::time_point end, const bool& stale) {
    const auto left = std::max(end - std::chrono::steady_clock::now(), std::chrono::steady_clock::duration::zero());
    const auto time = std::chrono::ceil<std::chrono::milliseconds>(left);
    if (poll(entries_.data(), entries_.size(), static_cast<int>(time.count())) < 0)
      return errno == EINTR ? Result<void>() : fail_errno(errno, "poll");
    for (size_t i = 0; i < entries_.size() && !stale; ++i)
      if (entries_[i].revents != 0) actions_[i]();
    return {};
  }

 private:
  std::vector<pollfd> entries_;
  std::vector<std::function<void()>> actions_;
};

}  // namespace situla
