// Who is importing this image now? A file that a crash cannot leave held: owner, heartbeat, take-over. DESIGN.md
// section 4.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

/// The lease file holds a line that names the owner, and its modification time is the heartbeat. On the owner's node a
/// lock on the file (flock) tells at once whether the owner lives; other nodes of a shared file system, where locks may
/// not be seen, go by a heartbeat that has not moved for `stale`. Two owners at once, possible when a clock or node
/// stalls, do no harm: images appear under their name atomically, and the second one finds it there.
class Lease {
 public:
  struct Options {
    std::chrono::milliseconds heartbeat{5000};
    std::chrono::milliseconds stale{60000};
    std::chrono::milliseconds poll{100};
  };

  /// Waits until the lease is free. `waiting` is called once, with the owner's line, before the first wait; `done`
  /// before each further one: true ends the waiting with nullopt (what the lease is for has happened).
  static Result<std::optional<Lease>> acquire(const std::string& path, const Options& options,
                                              const std::function<void(const std::string&)>& waiting,
                                              const std::function<bool()>& done);
  Lease(Lease&&) noexcept = default;
  Lease& operator=(Lease&&) = delete;
  ~Lease();

 private:
  class Heart;
  explicit Lease(std::unique_ptr<Heart> heart);
  std::unique_ptr<Heart> heart_;
};

/// Removes the lease files in a directory whose owner on this node died (kill -9). Those of other nodes and of living
/// owners stay.
void sweep_dead_leases(const std::string& directory);

}  // namespace situla
