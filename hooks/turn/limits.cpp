#include "hooks/turn/limits.hpp"

#include <cerrno>
#include <chrono>
#include <thread>
#include <tuple>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "hooks/turn/lease.hpp"

namespace situla {
namespace {

constexpr std::chrono::milliseconds kPoll{100};
constexpr size_t kDigits = 20;  // of any uint64_t, padded; the job follows
constexpr size_t kTextBytes = 256;
constexpr time_t kSlotSilence = 30;           // seconds without a report, of which there are two a second
constexpr time_t kSlotStays = 24L * 60 * 60;  // seconds; whatever the clocks of two nodes say

/// Of flock(2): this file system has no locks (Lustre with noflock), or nobody who keeps them (NFS).
bool has_no_locks(int errnum) {
  return errnum == ENOSYS || errnum == EOPNOTSUPP || errnum == ENOLCK;
}

/// nullopt: somebody else has it. ErrorKind::unsupported: has_no_locks().
Result<std::optional<UniqueFd>> try_lock(const std::string& path) {
  for (;;) {
    TRY_ASSIGN(UniqueFd fd, open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK || errno == EINTR) return std::nullopt;
      const int reason = errno;
      if (has_no_locks(reason)) return fail(ErrorKind::unsupported, "lock " + path);
      return fail_errno(reason, "lock " + path);
    }
    struct stat status {};
    // Removed between open() and flock(): the lock of a file without a name holds nobody off.
    if (fstat(fd.get(), &status) == 0 && status.st_nlink > 0) return fd;
  }
}

}  // namespace

/// What cannot be counted is not limited.
Result<ImportSlot> ImportSlot::without_lock(const std::string& directory, const std::string& prefix, uid_t uid,
                                            const std::string& job) {
  const std::string name = random_name(prefix);
  TRY_ASSIGN(UniqueFd fd, open_file(directory + "/" + name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
  ImportSlot slot(directory, name, uid, job, std::move(fd));
  slot.report(0);
  return slot;
}

Result<std::optional<ImportSlot>> ImportSlot::acquire(const std::string& directory, uid_t uid, const std::string& job,
                                                      uint32_t count, const std::function<void()>& waiting,
                                                      const std::function<bool()>& done) {
  const std::string prefix = host_name() + "." + std::to_string(uid) + ".";
  for (bool told = false;; std::this_thread::sleep_for(kPoll)) {
    for (uint32_t i = 0; count == 0 || i < count; ++i) {
      const std::string name = prefix + std::to_string(i);
      auto locked = try_lock(directory + "/" + name);
      if (!locked && locked.error().kind() == ErrorKind::unsupported) {
        unlink((directory + "/" + name).c_str());
        return without_lock(directory, prefix, uid, job);
      }
      if (!locked) return fail(std::move(locked).error());
      if (!*locked) continue;
      ImportSlot slot(directory, name, uid, job, std::move(**locked));
      slot.report(0);  // the file may be of one that was killed
      return slot;
    }
    if (done()) return std::nullopt;
    if (!std::exchange(told, true)) waiting();
  }
}

ImportSlot::~ImportSlot() {
  if (fd_) unlink((directory_ + "/" + name_).c_str());
}

void ImportSlot::report(uint64_t bytes) const {
  const std::string text = flush_left(std::to_string(bytes), kDigits) + job_ + "\n";
  std::ignore = pwrite(fd_.get(), text.data(), text.size(), 0);
}

ImportSlot::InFlight ImportSlot::others() const {
  InFlight sum;
  struct stat own {};
  if (fstat(fd_.get(), &own) != 0) return sum;
  for (const std::string& name : list_directory(directory_).value_or(std::vector<std::string>())) {
    const auto words = split_nonempty(name, '.');  // the node's name may have dots, too
    if (name == name_ || words.size() < 3) continue;
    const auto fd = open_file(directory_ + "/" + name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (!fd) continue;
    // Nobody has it: it was killed. Of another node's, on a shared file system, the lock may not be seen here.
    struct stat status {};
    const bool here = name.starts_with(host_name() + ".");
    if (here && flock(fd->get(), LOCK_SH | LOCK_NB) == 0) continue;
    const bool by_silence = !here || has_no_locks(errno);
    if (by_silence && (fstat(fd->get(), &status) != 0 || status.st_mtim.tv_sec + kSlotSilence <= own.st_mtim.tv_sec))
      continue;
    const auto text = read_all(fd->get(), kTextBytes);
    const auto bytes = text ? parse_unsigned(trim(std::string_view(*text).substr(0, kDigits))) : std::nullopt;
    if (!bytes) continue;
    sum.of_all += *bytes;
    if (words[words.size() - 2] == std::to_string(uid_)) sum.of_user += *bytes;
  }
  return sum;
}

bool sweep_free_slots(const std::string& directory, const std::string& ended, std::chrono::seconds silent) {
  const auto names = list_directory(directory);
  if (!names) return true;
  const std::string prefix = host_name() + ".";
  const auto now = file_system_time(directory);
  bool all = true;
  for (const std::string& name : *names) {
    const std::string path = directory + "/" + name;
    const auto fd = open_file(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK);
    struct stat status {};
    if (!fd || fstat(fd->get(), &status) != 0) continue;
    if (silent.count() > 0 && now && status.st_mtim.tv_sec + silent.count() > *now) continue;
    // Another node's lock may not be seen here.
    const bool old = now && status.st_mtim.tv_sec + kSlotStays <= *now;
    if (!name.starts_with(prefix) && !old) continue;
    const bool free = flock(fd->get(), LOCK_EX | LOCK_NB) == 0;
    if (free || (old && has_no_locks(errno))) {
      unlink(path.c_str());
      continue;
    }
    const auto text = read_all(fd->get(), kTextBytes);
    if (!ended.empty() && text && text->size() > kDigits && name.starts_with(prefix) &&
        split(std::string_view(*text).substr(kDigits), '\n').front() == ended)
      all = false;
  }
  return all;
}

}  // namespace situla
