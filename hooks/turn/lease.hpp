// Who is importing this image now, and does it go on? A file that a crash cannot leave held, and that nobody waits for
// in vain. DESIGN.md section 4.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

/// What the file says of its holder.
struct LeaseRecord {
  /// finishing: its importer says that all is fetched. storing: the importer has ended, and the store program is at
  /// work.
  enum class State { queued, fetching, finishing, storing };
  std::string owner;       ///< random, at birth
  std::string node, boot;  ///< host name; /proc/sys/kernel/random/boot_id
  uid_t uid = 0;           ///< for whom
  std::string job;         ///< "123.0"
  State state = State::queued;
  uint64_t bytes = 0;  ///< fetched or written

  /// One line.
  [[nodiscard]] std::string text() const;
  static std::optional<LeaseRecord> parse(std::string_view text);
};

/// The lease lies in the private store: nobody but programs of the service user can open or lock it. On the holder's
/// node a lock (flock) tells at once whether he lives. Other nodes of a shared file system, where locks may not be
/// seen, go by a heartbeat that has not moved for `stale`, by the file system's own clock; so does the same node where
/// locks hold nobody off. One of those who find him dead takes his place: who first makes a file of the dead one's id.
///
/// Who waits looks, and writes nothing: of a thousand nodes each asks the file system's server some times in ten
/// seconds. He waits only while the holder makes progress. Then one of those who wait takes his place, and the others
/// wait for that one. For other users' imports he waits only while it is worth it; after that this user's processes
/// wait for one of their own, by a second lease that no other user ever holds: it is one more import, and not as many
/// as there are nodes. Two who import the same image at once do no harm: the first one's file gets the name.
class Lease {
 public:
  struct Options {
    std::chrono::milliseconds poll{100};     ///< between two looks at first
    std::chrono::milliseconds rarely{2500};  ///< in the end, about: an eighth of the time that it has taken
    /// A heart beats every second; what other nodes see of it may be some seconds old.
    std::chrono::milliseconds stale{12000};
    std::chrono::milliseconds say_again{30000};  ///< between two calls of `waiting` for one holder
    /// A holder who has fetched less than `least_bytes` in that time is slow. Twice that time for the next one.
    std::chrono::milliseconds patience{5000};
    uint64_t least_bytes = uint64_t{1} << 20U;
    /// For others: whatever their progress, which their importers only say. For who finishes: without any.
    std::chrono::milliseconds longest{600000};
    /// So much longer than an import of `worthwhile` bytes a second would take one waits for other users, all of them
    /// together. Time that somebody gained by being quick is not his to spend later, and bytes count only of the first.
    std::chrono::milliseconds lag{30000};
    uint64_t worthwhile = uint64_t{32} << 20U;
  };
  /// held: `lease` is ours. done: what it is for has happened, or is not wanted any more.
  enum class Outcome { held, done };
  struct Acquired;

  /// Waits until the lease is free. `waiting` is called with the holder's record before the first wait, for each new
  /// holder, and now and then; `done` before each further wait, and `stops`, if any, every `poll` of it: true ends the
  /// waiting.
  static Result<Acquired> acquire(const std::string& path, LeaseRecord self, const Options& options,
                                  const std::function<void(const LeaseRecord&)>& waiting,
                                  const std::function<bool()>& done, const std::function<bool()>& stops = nullptr);
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&&) = delete;
  /// Removes the file, if it is still this one.
  ~Lease();

  /// How far the holder is. The heart beats without it, in a thread of its own.
  void report(LeaseRecord::State state, uint64_t bytes);

 private:
  class Heart;
  Lease(std::string path, UniqueFd fd, LeaseRecord record);
  std::string path_;
  std::unique_ptr<Heart> heart_;
};

struct Lease::Acquired {
  Outcome outcome;
  std::optional<Lease> lease;
  bool overtook = false;  ///< held: somebody goes on too slowly, and did not have to die for it
};

/// Removes the lease files in a directory whose holder on this node died (kill -9), those of other nodes whose
/// heartbeat has stopped, and what take-overs left. Those of living holders stay. False: one of them works on this node
/// for the step `ended`
/// ("123.0"), which has none any more: it is on its way out.
bool sweep_dead_leases(const std::string& directory, const std::string& ended = "");

}  // namespace situla
