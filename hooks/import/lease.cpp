#include "hooks/import/lease.hpp"

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

using Clock = std::chrono::steady_clock;

std::string own_node() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  std::string node = name.data();
  if (const auto boot = read_file("/proc/sys/kernel/random/boot_id", 4096)) node += " " + std::string(trim(*boot));
  return node;
}

std::string owner_line() {
  return own_node() + " pid " + std::to_string(getpid()) + "\n";
}

struct Seen {
  UniqueFd fd;
  std::string line;
  timespec beat{};
  ino_t inode = 0;
};

/// nullopt if there is no lease (any more).
Result<std::optional<Seen>> look(const std::string& path) {
  Seen seen;
  seen.fd.reset(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!seen.fd) {
    if (errno == ENOENT) return std::nullopt;
    return fail_errno(errno, "open " + path);
  }
  struct stat status {};
  if (fstat(seen.fd.get(), &status) != 0) return fail_errno(errno, "stat " + path);
  if (status.st_nlink == 0) return std::nullopt;
  seen.beat = status.st_mtim;
  seen.inode = status.st_ino;
  std::array<char, 512> buffer{};
  const ssize_t size = pread(seen.fd.get(), buffer.data(), buffer.size(), 0);
  if (size > 0) seen.line = trim(std::string_view(buffer.data(), static_cast<size_t>(size)));
  return seen;
}

/// A complete lease file, locked, that gets its name in one step; nullopt if somebody else was faster.
Result<std::optional<UniqueFd>> take(const std::string& path) {
  const std::string temporary = random_name(path + ".");
  UniqueFd fd(open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd) return fail_errno(errno, "create " + temporary);
  flock(fd.get(), LOCK_EX | LOCK_NB);
  const auto written = write_all(fd.get(), owner_line());
  const int code = written ? link(temporary.c_str(), path.c_str()) : 0;
  const int errnum = errno;
  unlink(temporary.c_str());
  if (!written) return fail(written.error());
  if (code == 0) return fd;
  if (errnum == EEXIST) return std::nullopt;
  return fail_errno(errnum, "create " + path);
}

bool same_time(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

}  // namespace

/// Holds the lock and moves the modification time until it is destroyed; then the file goes.
class Lease::Heart {
 public:
  Heart(std::string path, UniqueFd fd, std::chrono::milliseconds period)
      : path_(std::move(path)), fd_(std::move(fd)), thread_([this, period] { beat(period); }) {}
  Heart(const Heart&) = delete;
  Heart& operator=(const Heart&) = delete;
  ~Heart() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
    // Only our own: after a take-over the name is somebody else's.
    struct stat own {};
    struct stat named {};
    if (fstat(fd_.get(), &own) == 0 && lstat(path_.c_str(), &named) == 0 && own.st_ino == named.st_ino)
      unlink(path_.c_str());
  }

 private:
  void beat(std::chrono::milliseconds period) {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, period, [this] { return stopping_; })) futimens(fd_.get(), nullptr);
  }

  std::string path_;
  UniqueFd fd_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

Lease::Lease(std::unique_ptr<Heart> heart) : heart_(std::move(heart)) {}
Lease::~Lease() = default;

Result<std::optional<Lease>> Lease::acquire(const std::string& path, const Options& options,
                                            const std::function<void(const std::string&)>& waiting,
                                            const std::function<bool()>& done) {
  bool told = false;
  std::optional<Seen> last;
  Clock::time_point since = Clock::now();
  while (true) {
    TRY_ASSIGN(auto taken, take(path));
    if (taken) return Lease(std::make_unique<Heart>(path, std::move(*taken), options.heartbeat));
    TRY_ASSIGN(auto seen, look(path));
    if (!seen) continue;
    const bool here = seen->line.starts_with(own_node() + " ");
    const bool owner_died = here && flock(seen->fd.get(), LOCK_EX | LOCK_NB) == 0;
    if (!last || last->inode != seen->inode || !same_time(last->beat, seen->beat)) since = Clock::now();
    // Measured by our own clock: how long the heartbeat has not moved, not how old it says it is.
    if (owner_died || (!here && Clock::now() - since > options.stale)) {
      unlink(path.c_str());
      continue;
    }
    last = std::move(seen);
    if (done()) return std::nullopt;
    if (!std::exchange(told, true)) waiting(last->line);
    std::this_thread::sleep_for(options.poll);
  }
}

void sweep_dead_leases(const std::string& directory) {
  const auto names = list_directory(directory);
  if (!names) return;
  for (const std::string& name : *names) {
    // Also "<image>.lease.<random>", the name that a lease has before it is complete.
    if (name.find(".lease") == std::string::npos) continue;
    const std::string path = directory + "/" + name;
    const auto seen = look(path);
    if (!seen || !*seen) continue;
    const bool here = (*seen)->line.empty() || (*seen)->line.starts_with(own_node() + " ");
    if (here && flock((*seen)->fd.get(), LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());
  }
}

}  // namespace situla
