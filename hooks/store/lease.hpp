// Who is importing this image now, and does it go on? A file that a crash cannot leave held, and that nobody waits for
// in vain. DESIGN.md section 4.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
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
/// node a lock (flock) tells at once whether he lives; other nodes of a shared file system, where locks may not be
/// seen, go by a heartbeat that has not moved for `stale`, by the file system's own clock.
///
/// Who waits does so only while the holder makes progress; for another user's import only while it is worth it. Two who
/// import the same image at once do no harm: the first one's file gets the name.
class Lease {
 public:
  struct Options {
    std::chrono::milliseconds poll{100};
    std::chrono::milliseconds stale{60000};
    /// A holder who has fetched less than `least_bytes` in that time is not waited for any more.
    std::chrono::milliseconds patience{5000};
    uint64_t least_bytes = uint64_t{1} << 20U;
    std::chrono::milliseconds longest{600000};  ///< whatever his progress
    /// So much longer than an import of `worthwhile` bytes a second would take one waits for other users, all of them
    /// together. Time that somebody gained by being quick is not his to spend later, and bytes count only of the first.
    std::chrono::milliseconds lag{30000};
    uint64_t worthwhile = uint64_t{32} << 20U;
  };
  /// held: `lease` is ours. done: what it is for has happened, or is not wanted any more. impatient: its holder goes on
  /// too slowly; go on without it.
  enum class Outcome { held, done, impatient };
  struct Acquired;

  /// Waits until the lease is free. `waiting` is called once, with the holder's record, before the first wait; `done`
  /// before each further one: true ends the waiting.
  static Result<Acquired> acquire(const std::string& path, LeaseRecord self, const Options& options,
                                  const std::function<void(const LeaseRecord&)>& waiting,
                                  const std::function<bool()>& done);
  Lease(Lease&& other) noexcept = default;
  Lease& operator=(Lease&&) = delete;
  /// Removes the file, if it is still this one.
  ~Lease();

  /// The heartbeat: to be called every second or so.
  void report(LeaseRecord::State state, uint64_t bytes);

 private:
  Lease(std::string path, UniqueFd fd, LeaseRecord record)
      : path_(std::move(path)), fd_(std::move(fd)), record_(std::move(record)) {}
  std::string path_;
  UniqueFd fd_;
  LeaseRecord record_;
};

struct Lease::Acquired {
  Outcome outcome;
  std::optional<Lease> lease;
};

/// This host's name.
std::string own_node();

/// Removes the lease files in a directory whose holder on this node died (kill -9), and those of other nodes whose
/// heartbeat has stopped. Those of living holders stay. False: one of them works on this node for the step `ended`
/// ("123.0"), which has none any more: it is on its way out.
bool sweep_dead_leases(const std::string& directory, const std::string& ended = "");

}  // namespace situla
