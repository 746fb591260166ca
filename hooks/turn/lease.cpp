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

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"

namespace situla {
namespace {

using Clock = std::chrono::steady_clock;

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

/// nullopt if there is no lease (any more).
Result<std::optional<Seen>> look(const std::string& path) {
  Seen seen;
  seen.fd.reset(open(path.c_str(), kToLock));
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

struct Attempt {
  UniqueFd fd;         ///< ours; none when somebody else has it
  timespec now{};      ///< by the file system's clock
  bool locks = false;  ///< a lock that one descriptor has keeps others off: not so on every file system
};

/// Whether a lock that is held holds somebody off.
bool holds_off(const std::string& locked) {
  const UniqueFd other(open(locked.c_str(), kToLock));
  return other && flock(other.get(), LOCK_EX | LOCK_NB) != 0;
}

/// A complete lease file, locked, that gets its name in one step.
Result<Attempt> take(const std::string& path, const LeaseRecord& self) {
  const std::string temporary = path + "." + self.owner;
  Attempt attempt;
  attempt.fd.reset(open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!attempt.fd) return fail_errno(errno, "create " + temporary);
  const bool locked = flock(attempt.fd.get(), LOCK_EX | LOCK_NB) == 0;
  const bool written = write_record(attempt.fd.get(), self);
  const int write_errnum = errno;
  struct stat status {};
  if (fstat(attempt.fd.get(), &status) == 0) attempt.now = status.st_mtim;
  const int code = written ? link(temporary.c_str(), path.c_str()) : 0;
  const int errnum = errno;
  if (code != 0) attempt.locks = locked && holds_off(temporary);
  unlink(temporary.c_str());
  if (!written) return fail_errno(write_errnum, "write " + temporary);
  if (code == 0) return attempt;
  // ENOENT: before it was locked, somebody's sweep took it for a dead one's.
  if (errnum != EEXIST && errnum != ENOENT) return fail_errno(errnum, "create " + path);
  attempt.fd.reset();
  return attempt;
}

std::chrono::seconds between(const timespec& earlier, const timespec& later) {
  return std::chrono::seconds(later.tv_sec - earlier.tv_sec);
}

/// Who asks about leases, and how he can tell.
struct Observer {
  const LeaseRecord& self;
  const timespec& now;
  bool locks;
  std::chrono::milliseconds stale;
};

enum class Holder { alive, dead, succeeded };

constexpr std::string_view kSuccessor = ".next";
constexpr std::chrono::hours kSuccessorsStay{1};

/// A dead one has one successor, whatever others see of the directory, and when: ids are not used twice.
bool succeed(const std::string& path, const std::string& dead) {
  const std::string claim = path + "." + dead + std::string(kSuccessor);
  return UniqueFd(open(claim.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)).get() >= 0;
}

/// A holder on this node is dead when nobody has the lock; one elsewhere when his heart has not beaten for long. dead:
/// it is this process's, and nobody else's, to remove what he left.
Holder look_after(const std::string& path, const Seen& seen, const Observer& observer) {
  const bool here =
      !seen.record || (seen.record->node == observer.self.node && seen.record->boot == observer.self.boot);
  if (here && observer.locks) {
    if (flock(seen.fd.get(), LOCK_EX | LOCK_NB) != 0) return Holder::alive;
    // Whoever got this lock before has removed the file, and its name is another one's by now.
    struct stat status {};
    return fstat(seen.fd.get(), &status) == 0 && status.st_nlink > 0 ? Holder::dead : Holder::succeeded;
  }
  if (between(seen.beat, observer.now) <= observer.stale) return Holder::alive;
  return !seen.record || succeed(path, seen.record->owner) ? Holder::dead : Holder::succeeded;
}

/// How long has a holder not got on?
class Patience {
 public:
  Patience(const Lease::Options& options, uid_t uid) : options_(options), uid_(uid) {}

  [[nodiscard]] bool ends(const std::optional<LeaseRecord>& record) {
    const auto now = Clock::now();
    spent_ = now - began_ > options_.longest || (record && record->uid != uid_ && lags(*record, now));
    if (spent_) return true;
    looked_at_ = now;
    const std::string owner = record ? record->owner : "";
    const bool other = owner != owner_;
    const bool moved =
        record && (record->state >= LeaseRecord::State::finishing || record->bytes >= bytes_ + options_.least_bytes);
    if (other || moved) {
      owner_ = owner;
      bytes_ = record ? record->bytes : 0;
      since_ = now;
    }
    return now - since_ > options_.patience;
  }
  /// However often holders come and go, nobody waits longer than this.
  [[nodiscard]] bool is_spent() const { return spent_; }
  void begin_anew() { since_ = Clock::now(); }

 private:
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
  Clock::time_point began_ = Clock::now(), since_ = began_, looked_at_ = began_;
  bool spent_ = false;
  std::string owner_, first_;
  uint64_t bytes_ = 0, first_bytes_ = 0;
  std::chrono::duration<double> lag_{};
};

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
                                       const std::function<bool()>& done) {
  self.owner = random_name("");
  self.node = host_name();
  self.boot = own_boot();
  bool overtakes = false;
  std::optional<std::string> told, slow;  // of whom; whose place somebody else takes
  Clock::time_point told_at;
  Patience patience(options, self.uid);
  while (true) {
    TRY_ASSIGN(Attempt attempt, take(path, self));
    if (attempt.fd) return Acquired{Outcome::held, Lease(path, std::move(attempt.fd), std::move(self)), overtakes};
    TRY_ASSIGN(const auto seen, look(path));
    if (!seen) continue;
    if (look_after(path, *seen, {self, attempt.now, attempt.locks, options.stale}) == Holder::dead) {
      unlink(path.c_str());
      continue;
    }
    if (done()) return Acquired{Outcome::done, std::nullopt};
    const LeaseRecord holder = seen->record.value_or(LeaseRecord());
    if (patience.ends(seen->record)) {
      overtakes = seen->record && slow != holder.owner && succeed(path, holder.owner);
      if (overtakes) {
        unlink(path.c_str());
        continue;
      }
      if (patience.is_spent() || slow == holder.owner) return Acquired{Outcome::impatient, std::nullopt};
      slow = holder.owner;
      patience.begin_anew();
    }
    if (told != holder.owner || Clock::now() - told_at > options.say_again) {
      waiting(holder);
      told = holder.owner;
      told_at = Clock::now();
    }
    std::this_thread::sleep_for(options.poll);
  }
}

bool sweep_dead_leases(const std::string& directory, const std::string& ended) {
  const auto names = list_directory(directory);
  if (!names || names->empty()) return true;
  LeaseRecord self;
  self.node = host_name();
  self.boot = own_boot();
  // The file system's clock, which other nodes share.
  const std::string clock = directory + "/" + random_name(".clock-");
  const UniqueFd made(open(clock.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  struct stat status {};
  const bool locks = made && flock(made.get(), LOCK_EX | LOCK_NB) == 0 && holds_off(clock);
  const bool known = made && fstat(made.get(), &status) == 0;
  unlink(clock.c_str());
  if (!known) return true;
  bool all = true;
  for (const std::string& name : *names) {
    const std::string path = directory + "/" + name;
    const auto seen = look(path);
    if (!seen || !*seen) continue;
    const auto& record = (*seen)->record;
    if (name.ends_with(kSuccessor)) {
      if (between((*seen)->beat, status.st_mtim) > kSuccessorsStay) unlink(path.c_str());
      continue;
    }
    const Holder holder = look_after(path, **seen, {self, status.st_mtim, locks, Lease::Options().stale});
    if (holder == Holder::dead)
      unlink(path.c_str());
    else if (holder == Holder::alive && record && record->node == self.node && record->boot == self.boot &&
             record->job == ended)
      all = false;
  }
  return all;
}

}  // namespace situla
