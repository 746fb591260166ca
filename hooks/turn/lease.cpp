#include "hooks/turn/lease.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/chance.hpp"
#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"

namespace situla {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kToRead = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
constexpr int kToLock = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;  // NFS locks only what can be written
constexpr size_t kRecordBytes = 512;  // padded, so that a shorter line leaves nothing of a longer one
constexpr std::array<std::string_view, 4> kStates = {"queued", "fetching", "finishing", "storing"};

std::string own_boot() {
  const auto boot = read_file("/proc/sys/kernel/random/boot_id", 4096);
  return boot ? std::string(trim(*boot)) : "-";
}

struct Seen {
  UniqueFd fd;
  std::optional<LeaseRecord> record;
  timespec beat{};
};

/// nullopt if there is no lease (any more). Opened anew each time: that is when NFS asks the server.
Result<std::optional<Seen>> look(const std::string& path, int flags) {
  Seen seen;
  seen.fd.reset(open(path.c_str(), flags));
  if (!seen.fd) {
    if (errno == ENOENT || errno == ESTALE) return std::nullopt;
    return fail_errno(errno, "open " + path);
  }
  struct stat status {};
  if (fstat(seen.fd.get(), &status) != 0) {
    if (errno == ESTALE) return std::nullopt;
    return fail_errno(errno, "stat " + path);
  }
  if (status.st_nlink == 0) return std::nullopt;
  seen.beat = status.st_mtim;
  std::array<char, kRecordBytes> buffer{};
  const ssize_t size = pread(seen.fd.get(), buffer.data(), buffer.size(), 0);
  if (size > 0) seen.record = LeaseRecord::parse(trim(std::string_view(buffer.data(), static_cast<size_t>(size))));
  return seen;
}

bool write_record(int fd, const LeaseRecord& record) {
  const std::string line = flush_left(record.text(), kRecordBytes - 1) + "\n";
  return pwrite(fd, line.data(), line.size(), 0) == static_cast<ssize_t>(line.size());
}

/// What decides whether a holder is dead.
struct FileSystem {
  timespec now{};      ///< by its clock, which other nodes share
  bool locks = false;  ///< a lock that one descriptor has keeps others off: not so everywhere
};

/// Whether a lock that is held holds somebody off.
bool holds_off(int locked) {
  const UniqueFd other(open(fd_path(locked).c_str(), O_RDWR | O_CLOEXEC));
  return other && flock(other.get(), LOCK_EX | LOCK_NB) != 0;
}

/// Costs a file: not for each look.
std::optional<FileSystem> ask_file_system(const std::string& directory) {
  const auto made = make_nameless_file(directory);
  struct stat status {};
  if (!made || fstat(made->get(), &status) != 0) return std::nullopt;
  return FileSystem{status.st_mtim, flock(made->get(), LOCK_EX | LOCK_NB) == 0 && holds_off(made->get())};
}

/// A complete lease file, locked, that gets its name in one step. None: somebody else has it.
Result<UniqueFd> take(const std::string& path, const LeaseRecord& self) {
  const std::string temporary = path + "." + self.owner;
  UniqueFd fd(open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno(errno, "create " + temporary);
  (void)flock(fd.get(), LOCK_EX | LOCK_NB);
  const bool written = write_record(fd.get(), self);
  const int write_errnum = errno;
  const int code = written ? link(temporary.c_str(), path.c_str()) : 0;
  const int errnum = errno;
  unlink(temporary.c_str());
  if (!written) return fail_errno(write_errnum, "write " + temporary);
  if (code == 0) return fd;
  // ENOENT: before it was locked, somebody's sweep took it for a dead one's.
  if (errnum != EEXIST && errnum != ENOENT) return fail_errno(errnum, "create " + path);
  return UniqueFd();
}

std::chrono::seconds between(const timespec& earlier, const timespec& later) {
  return std::chrono::seconds(later.tv_sec - earlier.tv_sec);
}

enum class Holder { alive, dead, succeeded };

constexpr std::string_view kSuccessor = ".next";
constexpr std::chrono::hours kSuccessorsStay{1};

/// One process at a time takes a holder's place, whatever others see of the directory, and when: ids are not used
/// twice. round: how many have taken it already, by what this process has seen.
bool succeed(const std::string& path, const std::string& holder, unsigned round = 0) {
  const std::string which = round == 0 ? "" : "." + std::to_string(round);
  const std::string claim = path + "." + holder + which + std::string(kSuccessor);
  return UniqueFd(open(claim.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)).get() >= 0;
}

/// Whether its holder's locks can be seen here. So it is asked of whoever is not known, too.
bool is_here(const Seen& seen, const LeaseRecord& self) {
  return !seen.record || (seen.record->node == self.node && seen.record->boot == self.boot);
}

/// By the lock of a holder on this node: `seen` is open to lock.
Holder look_after_lock(const Seen& seen) {
  if (flock(seen.fd.get(), LOCK_EX | LOCK_NB) != 0) return Holder::alive;
  // Whoever got this lock before has removed the file, and its name is another one's by now.
  struct stat status {};
  return fstat(seen.fd.get(), &status) == 0 && status.st_nlink > 0 ? Holder::dead : Holder::succeeded;
}

/// By the heart. dead: it is this process's, and nobody else's, to remove what he left.
Holder look_after_heart(const std::string& path, const Seen& seen, const timespec& now,
                        std::chrono::milliseconds stale) {
  if (between(seen.beat, now) <= stale) return Holder::alive;
  return !seen.record || succeed(path, seen.record->owner) ? Holder::dead : Holder::succeeded;
}

/// Looks at one lease again and again, and asks for as little as it can: a thousand nodes may do so at once.
class Watch {
 public:
  Watch(std::string path, const LeaseRecord& self, std::chrono::milliseconds stale)
      : path_(std::move(path)), directory_(path_.substr(0, path_.rfind('/'))), self_(self), stale_(stale) {}

  Result<std::optional<Seen>> look() {
    const bool to_lock = here_;
    TRY_ASSIGN(auto seen, situla::look(path_, to_lock ? kToLock : kToRead));
    here_ = seen && is_here(*seen, self_);
    return here_ && !to_lock ? look() : std::move(seen);
  }
  [[nodiscard]] bool is_dead(const Seen& seen) {
    if (here_ && !locks_) {
      const auto found = ask_file_system(directory_);
      if (!found) return false;
      locks_ = found->locks;
    }
    if (here_ && *locks_) return look_after_lock(seen) == Holder::dead;
    if (beats(seen.beat)) return false;
    const auto found = ask_file_system(directory_);
    return found && look_after_heart(path_, seen, found->now, stale_) == Holder::dead;
  }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Whether the holder was on this node at the last look.
  [[nodiscard]] bool here() const { return here_; }

 private:
  /// Whether the heart has beaten lately, as far as that is known without the file system's clock. The first look has
  /// nothing but this node's to go by.
  [[nodiscard]] bool beats(const timespec& beat) {
    const auto now = Clock::now();
    if (beat.tv_sec != beat_.tv_sec || beat.tv_nsec != beat_.tv_nsec) {
      timespec here{};
      clock_gettime(CLOCK_REALTIME, &here);
      const bool doubtful = beat_.tv_sec == 0 && between(beat, here) > stale_;
      beat_ = beat;
      beaten_ = doubtful ? now - stale_ : now;
    }
    return now - beaten_ < stale_ / 4;
  }

  std::string path_, directory_;
  const LeaseRecord& self_;
  std::chrono::milliseconds stale_;
  bool here_ = false;
  std::optional<bool> locks_;
  timespec beat_{};
  Clock::time_point beaten_{};
};

/// How long has a holder not got on?
class Patience {
 public:
  Patience(const Lease::Options& options, uid_t uid) : options_(options), uid_(uid), patience_(options.patience) {}

  /// slow: one of those who wait is to take his place. spent: this user has waited enough for others.
  enum class Verdict { wait, slow, spent };

  [[nodiscard]] Verdict judge(const std::optional<LeaseRecord>& record) {
    const auto now = Clock::now();
    if (record && record->uid != uid_ && is_spent(*record, now)) return Verdict::spent;
    looked_at_ = now;
    const auto state = record ? record->state : LeaseRecord::State::queued;
    const uint64_t bytes = record ? record->bytes : 0;
    // Who finishes need not write for long; but not for ever.
    const bool finishes = state >= LeaseRecord::State::finishing;
    const std::string owner = record ? record->owner : "";
    if (owner != owner_) rounds_ = 0;
    if (owner != owner_ || state != state_ || bytes >= bytes_ + (finishes ? 1 : options_.least_bytes)) {
      owner_ = owner;
      state_ = state;
      bytes_ = bytes;
      since_ = now;
    }
    if (now - since_ <= (finishes ? options_.longest : patience_)) return Verdict::wait;
    // Where one after the other is slow the registry is, or the store, and more of them make it no faster.
    patience_ = std::min(2 * patience_, kMostTimes * options_.patience);
    since_ = now;
    ++rounds_;
    return Verdict::slow;
  }
  /// How often this holder was found slow before this time.
  [[nodiscard]] unsigned rounds() const { return rounds_ - 1; }

 private:
  static constexpr int kMostTimes = 16;

  [[nodiscard]] bool is_spent(const LeaseRecord& record, Clock::time_point now) {
    for_others_ += now - looked_at_;
    return for_others_ > options_.longest || lags(record, now);
  }
  /// Whether the time since the last looks was more than what came in it is worth.
  [[nodiscard]] bool lags(const LeaseRecord& record, Clock::time_point now) {
    // The store program works for everybody: a user cannot hold it up.
    if (record.state == LeaseRecord::State::storing) return false;
    if (first_.empty()) {
      first_ = record.owner;
      first_bytes_ = record.bytes;
    }
    std::chrono::duration<double> change = now - looked_at_;
    if (record.owner == first_ && record.bytes > first_bytes_) {
      change -= std::chrono::duration<double>(static_cast<double>(record.bytes - first_bytes_) /
                                              static_cast<double>(options_.worthwhile));
      first_bytes_ = record.bytes;
    }
    lag_ = std::max(lag_ + change, std::chrono::duration<double>::zero());
    return lag_ > options_.lag;
  }

  const Lease::Options& options_;
  uid_t uid_;
  std::chrono::milliseconds patience_;
  Clock::time_point since_ = Clock::now(), looked_at_ = since_;
  std::string owner_, first_;
  LeaseRecord::State state_ = LeaseRecord::State::queued;
  uint64_t bytes_ = 0, first_bytes_ = 0;
  unsigned rounds_ = 0;
  Clock::duration for_others_{};
  std::chrono::duration<double> lag_{};
};

/// When to look again: the longer it has taken, the less a moment more matters.
std::chrono::milliseconds time_to_look(Clock::duration waited, bool here, const Lease::Options& options) {
  constexpr int kPart = 8;
  // Of the nodes that wait one is the holder's: there it costs no server much, and an import is soon seen to be done.
  const auto most = std::max(options.poll, here ? options.rarely / 5 : options.rarely);
  const auto pause = std::chrono::duration_cast<std::chrono::milliseconds>(waited / kPart);
  return by_chance(std::clamp(pause, options.poll, most), 0.75, 1.25);
}

/// In pieces: false as soon as nobody wants it any more.
bool sleep_for(std::chrono::milliseconds time, const Lease::Options& options, const std::function<bool()>& stops) {
  for (const auto end = Clock::now() + time;;) {
    if (stops && stops()) return false;
    const auto left = end - Clock::now();
    if (left <= Clock::duration::zero()) return true;
    std::this_thread::sleep_for(std::min<Clock::duration>(left, options.poll));
  }
}

}  // namespace

std::string LeaseRecord::text() const {
  return "1 " + owner + " " + (node.empty() ? "-" : node) + " " + (boot.empty() ? "-" : boot) + " " +
         std::to_string(uid) + " " + (job.empty() ? "-" : job) + " " +
         std::string(kStates.at(static_cast<size_t>(state))) + " " + std::to_string(bytes);
}

std::optional<LeaseRecord> LeaseRecord::parse(std::string_view text) {
  const auto words = split_words(text);
  if (words.size() != 8 || words[0] != "1") return std::nullopt;
  LeaseRecord record;
  record.owner = words[1];
  record.node = words[2];
  record.boot = words[3];
  const auto uid = parse_unsigned(words[4]);
  record.job = words[5];
  const auto bytes = parse_unsigned(words[7]);
  if (!uid || *uid > UINT32_MAX || !bytes) return std::nullopt;
  record.uid = static_cast<uid_t>(*uid);
  record.bytes = *bytes;
  for (size_t i = 0; i < kStates.size(); ++i)
    if (kStates.at(i) == words[6]) {
      record.state = static_cast<State>(i);
      return record;
    }
  return std::nullopt;
}

/// Writes the record when it changes, and every second: also while its owner waits for a disk.
class Lease::Heart {
 public:
  Heart(UniqueFd fd, LeaseRecord record)
      : fd_(std::move(fd)), record_(std::move(record)), thread_([this] { beat(); }) {}
  Heart(const Heart&) = delete;
  Heart& operator=(const Heart&) = delete;
  ~Heart() {
    {
      const std::scoped_lock lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void set(LeaseRecord::State state, uint64_t bytes) {
    {
      const std::scoped_lock lock(mutex_);
      has_changed_ = has_changed_ || state != record_.state || bytes != record_.bytes;
      record_.state = state;
      record_.bytes = bytes;
    }
    changed_.notify_all();
  }
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  static constexpr std::chrono::seconds kBeat{1};

  void beat() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kBeat, [this] { return stops_ || has_changed_; }) || !stops_) {
      has_changed_ = false;
      const LeaseRecord record = record_;
      lock.unlock();
      (void)write_record(fd_.get(), record);
      (void)futimens(fd_.get(), nullptr);  // NFS keeps what was written to itself for half a minute, but not this
      lock.lock();
    }
  }

  const UniqueFd fd_;
  std::mutex mutex_;
  std::condition_variable changed_;
  LeaseRecord record_;
  bool stops_ = false, has_changed_ = false;
  std::thread thread_;
};

Lease::Lease(std::string path, UniqueFd fd, LeaseRecord record)
    : path_(std::move(path)), heart_(std::make_unique<Heart>(std::move(fd), std::move(record))) {}
Lease::Lease(Lease&& other) noexcept = default;

Lease::~Lease() {
  if (!heart_) return;
  // Only our own: after a take-over the name is somebody else's.
  struct stat own {};
  struct stat named {};
  if (fstat(heart_->fd(), &own) == 0 && lstat(path_.c_str(), &named) == 0 && own.st_ino == named.st_ino &&
      own.st_dev == named.st_dev)
    unlink(path_.c_str());
}

void Lease::report(LeaseRecord::State state, uint64_t bytes) {
  heart_->set(state, bytes);
}

Result<Lease::Acquired> Lease::acquire(const std::string& path, LeaseRecord self, const Options& options,
                                       const std::function<void(const LeaseRecord&)>& waiting,
                                       const std::function<bool()>& done, const std::function<bool()>& stops) {
  self.owner = random_name("");
  self.node = host_name();
  self.boot = own_boot();
  bool overtakes = false, waited = false;
  std::optional<std::string> told;  // of whom
  const auto began = Clock::now();
  auto told_at = began;
  Patience patience(options, self.uid);
  std::optional<Watch> watch(std::in_place, path, self, options.stale);
  while (true) {
    TRY_ASSIGN(const auto seen, watch->look());
    if (seen && watch->is_dead(*seen)) {
      unlink(watch->path().c_str());
      continue;
    }
    if ((seen || waited) && done()) return Acquired{Outcome::done, std::nullopt};
    if (!seen) {
      TRY_ASSIGN(UniqueFd taken, take(watch->path(), self));
      if (taken) return Acquired{Outcome::held, Lease(watch->path(), std::move(taken), std::move(self)), overtakes};
    } else {
      const LeaseRecord holder = seen->record.value_or(LeaseRecord());
      const auto verdict = patience.judge(seen->record);
      if (verdict == Patience::Verdict::spent) {
        overtakes = true;
        watch.emplace(path + ".by-" + std::to_string(self.uid), self, options.stale);
        continue;
      }
      if (verdict == Patience::Verdict::slow && succeed(watch->path(), holder.owner, patience.rounds())) {
        overtakes = true;
        unlink(watch->path().c_str());
        continue;
      }
      if (told != holder.owner || Clock::now() - told_at > options.say_again) {
        waiting(holder);
        told = holder.owner;
        told_at = Clock::now();
      }
    }
    waited = true;
    if (!sleep_for(time_to_look(Clock::now() - began, watch->here(), options), options, stops))
      return Acquired{Outcome::done, std::nullopt};
  }
}

bool sweep_dead_leases(const std::string& directory, const std::string& ended) {
  const auto names = list_directory(directory);
  if (!names || names->empty()) return true;
  LeaseRecord self;
  self.node = host_name();
  self.boot = own_boot();
  const auto found = ask_file_system(directory);
  if (!found) return true;
  bool all = true;
  for (const std::string& name : *names) {
    const std::string path = directory + "/" + name;
    const auto seen = look(path, kToLock);
    if (!seen || !*seen) continue;
    const auto& record = (*seen)->record;
    if (name.ends_with(kSuccessor)) {
      if (between((*seen)->beat, found->now) > kSuccessorsStay) unlink(path.c_str());
      continue;
    }
    const Holder holder = found->locks && is_here(**seen, self)
                              ? look_after_lock(**seen)
                              : look_after_heart(path, **seen, found->now, Lease::Options().stale);
    if (holder == Holder::dead)
      unlink(path.c_str());
    else if (holder == Holder::alive && record && record->node == self.node && record->boot == self.boot &&
             record->job == ended)
      all = false;
  }
  return all;
}

}  // namespace situla
