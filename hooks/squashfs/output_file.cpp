#include "hooks/squashfs/output_file.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/directory.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

constexpr std::string_view kPartPrefix = ".situla-";
constexpr std::string_view kPartSuffix = ".part";
constexpr size_t kPartDigits = 16;  // of random_name()
constexpr int kToLock = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;

bool is_part(std::string_view name) {
  if (name.size() != kPartPrefix.size() + kPartDigits + kPartSuffix.size()) return false;
  return name.starts_with(kPartPrefix) && name.ends_with(kPartSuffix) &&
         name.substr(kPartPrefix.size(), kPartDigits).find_first_not_of("0123456789abcdef") == name.npos;
}

std::string part_name() {
  return random_name(kPartPrefix) + std::string(kPartSuffix);
}

/// A part that a signal would leave.
struct Pending {
  static constexpr int kNone = -1, kTaken = -2;
  std::atomic<int> directory{kNone};
  std::array<char, 64> name{};
};
std::array<Pending, 8> pending_parts;
std::atomic<pid_t> who_writes{-1};

void remember_part(int directory, const std::string& name) {
  for (Pending& part : pending_parts) {
    int none = Pending::kNone;
    if (name.size() >= part.name.size() || !part.directory.compare_exchange_strong(none, Pending::kTaken)) continue;
    part.name[name.copy(part.name.data(), part.name.size() - 1)] = '\0';
    part.directory = directory;
    return;
  }
}

/// Async-signal-safe. Then the signal does what it does: its disposition is the usual one again.
void remove_pending_parts(int number) {
  for (const Pending& part : pending_parts)
    if (const int directory = part.directory; directory >= 0 && who_writes == getpid())
      (void)unlinkat(directory, part.name.data(), 0);
  (void)raise(number);
}

/// A living writer holds a lock. written_before: none: whenever somebody wrote to it.
void remove_if_dead(int directory, const char* name, std::optional<time_t> written_before) {
  struct stat status {};
  if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid()) return;
  if (written_before && status.st_mtim.tv_sec >= *written_before) return;
  UniqueFd part(openat(directory, name, O_RDONLY | kToLock));
  int locked = part ? flock(part.get(), LOCK_EX | LOCK_NB) : -1;
  if (part && locked != 0 && errno == EBADF) {  // NFS wants that the file can be written
    part = UniqueFd(openat(directory, name, O_RDWR | kToLock));
    locked = part ? flock(part.get(), LOCK_EX | LOCK_NB) : -1;
  }
  if (locked == 0) unlinkat(directory, name, 0);
}

void for_each_part(int directory, const std::function<void(const char*)>& part) {
  UniqueFd again(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!again) return;
  const DirStream stream(fdopendir(again.get()));
  if (!stream) return;
  (void)again.release();
  while (const dirent* entry = readdir(stream.get()))
    if (is_part(entry->d_name)) part(entry->d_name);
}

void remove_dead_parts(int directory, std::optional<time_t> written_before) {
  for_each_part(directory, [&](const char* name) { remove_if_dead(directory, name, written_before); });
}

/// Whether the file has its lock and its name: another's remove_dead_parts() may have come between the two.
bool keeps_name(int fd) {
  struct stat status {};
  (void)flock(fd, LOCK_EX);  // without one (some FUSE), others cannot have it either
  return fstat(fd, &status) == 0 && status.st_nlink > 0;
}

/// ENOSPC and its like get their hint at the place that knows the size; here only the name is known.
Result<UniqueFd> open_part(int directory, const std::string& where, std::string& part) {
  const int nameless = openat(directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (nameless >= 0) return UniqueFd(nameless);
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT) return fail_errno(errno, "create a file in " + where);
  constexpr int kAttempts = 16;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    part = part_name();
    UniqueFd named(openat(directory, part.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!named) {
      const int reason = errno;
      part.clear();
      return fail_errno(reason, "create a file in " + where);
    }
    if (keeps_name(named.get())) {
      remember_part(directory, part);
      return named;
    }
  }
  part.clear();
  return fail(ErrorKind::failure, "create a file in " + where + ": others remove it");
}

/// Whatever fs.protected_symlinks says, as it has it: in a directory like /tmp others can make links.
bool may_follow(const std::filesystem::path& link) {
  const std::string parent = link.has_parent_path() ? link.parent_path().string() : ".";
  struct stat status {
  }, directory{};
  if (lstat(link.c_str(), &status) != 0 || stat(parent.c_str(), &directory) != 0) return false;
  constexpr mode_t kShared = S_ISVTX | S_IWOTH;
  return (directory.st_mode & kShared) != kShared || status.st_uid == geteuid() || status.st_uid == directory.st_uid;
}

}  // namespace

std::string followed(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the kernel follows
  std::filesystem::path at = path;
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code error;
    const std::filesystem::path text = std::filesystem::read_symlink(at, error);
    if (error) return at.string();
    if (!may_follow(at)) return path;
    at = at.parent_path() / text;
  }
  return path;
}

void remove_parts_when_interrupted() {
  who_writes = getpid();
  struct sigaction action {};
  action.sa_handler = remove_pending_parts;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    if (sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_DFL)
      (void)sigaction(number, &action, nullptr);
  }
}

unsigned less_umask(unsigned mode) {
  const mode_t mask = umask(0);
  umask(mask);
  return mode & ~mask;
}

std::pair<std::string, std::string> split_path(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

Result<OutputFile> OutputFile::create(const std::string& path) {
  const auto [parent, name] = split_path(path);
  if (name.empty() || name == "." || name == "..") return fail(ErrorKind::usage, "'" + path + "' is not a file name");
  TRY_ASSIGN(UniqueFd directory, open_file(parent, O_RDONLY | O_DIRECTORY));
  std::string part;
  TRY_ASSIGN(UniqueFd fd, open_part(directory.get(), parent, part));
  // A file system that has no files without names may be one of several nodes, whose locks this one does not see, and
  // whose clocks differ: this file's time is the file system's.
  constexpr time_t kLongWithoutAWrite = 3600;
  struct stat made {};
  if (part.empty())
    remove_dead_parts(directory.get(), std::nullopt);
  else if (fstat(fd.get(), &made) == 0)
    remove_dead_parts(directory.get(), made.st_mtim.tv_sec - kLongWithoutAWrite);
  return OutputFile(path, std::move(directory), std::move(fd), std::move(part));
}

OutputFile::~OutputFile() {
  if (!directory_ || part_.empty()) return;
  unlinkat(directory_.get(), part_.c_str(), 0);
  forget_part();
}

/// It is gone, or has its name.
void OutputFile::forget_part() {
  for (Pending& part : pending_parts)
    if (part.directory == directory_.get() && part_ == part.name.data()) part.directory = Pending::kNone;
  part_.clear();
}

/// A name that exists makes it fail.
int OutputFile::link(const std::string& name, bool only_one) {
  if (!part_.empty()) {
    const auto rename_part = [&](unsigned flags) {
      return renameat2(directory_.get(), part_.c_str(), directory_.get(), name.c_str(), flags);
    };
    int code = rename_part(RENAME_NOREPLACE);
    if (code != 0 && (errno == EINVAL || errno == ENOSYS) && only_one) {
      // NFS takes no name away from a file that is open: it would have two until the last descriptor is closed.
      const bool taken = faccessat(directory_.get(), name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
      errno = taken ? EEXIST : 0;
      code = taken ? -1 : renameat(directory_.get(), part_.c_str(), directory_.get(), name.c_str());
    } else if (code != 0 && (errno == EINVAL || errno == ENOSYS)) {
      code = linkat(directory_.get(), part_.c_str(), directory_.get(), name.c_str(), 0);
      if (code == 0) unlinkat(directory_.get(), part_.c_str(), 0);
    }
    if (code == 0) forget_part();
    return code;
  }
  // Through /proc, because linkat(AT_EMPTY_PATH) needs CAP_DAC_READ_SEARCH.
  const std::string self = fd_path(fd_.get());
  return linkat(AT_FDCWD, self.c_str(), directory_.get(), name.c_str(), AT_SYMLINK_FOLLOW);
}

Result<void> OutputFile::seal() {
  const std::string self = fd_path(fd_.get());
  UniqueFd reader(open(self.c_str(), O_RDONLY | O_CLOEXEC));
  if (!reader) return fail_errno(errno, "open " + path_ + " for reading");
  // A lock is the open file's, and remove_dead_parts() must never find a part without one.
  flock(fd_.get(), LOCK_SH | LOCK_NB);
  flock(reader.get(), LOCK_SH | LOCK_NB);
  fd_ = std::move(reader);
  return {};
}

Result<void> OutputFile::publish_as(const std::string& path, unsigned mode) {
  path_ = path;
  return publish(mode, true);
}

Result<void> OutputFile::replace_as(const std::string& path, unsigned mode) {
  path_ = path;
  return replace(mode);
}

Result<void> OutputFile::replace(unsigned mode) {
  constexpr int kAttempts = 3;
  if (fchmod(fd_.get(), mode) != 0) return fail_errno(errno, "set the mode of " + path_);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (link(split_path(path_).second) == 0) return {};
    if (errno != EEXIST) break;
    unlinkat(directory_.get(), split_path(path_).second.c_str(), 0);
  }
  return fail_errno(errno, "name the finished file " + path_);
}

Result<void> OutputFile::publish(unsigned mode, bool only_one_name) {
  if (fchmod(fd_.get(), mode) != 0) return fail_errno(errno, "set the mode of " + path_);
  if (fsync(fd_.get()) != 0) return fail_errno(errno, "sync " + path_);
  if (link(split_path(path_).second, only_one_name) != 0) {
    const int errnum = errno;
    if (errnum == EEXIST)
      return fail(Error(ErrorKind::exists, "File already exists: " + path_).with_code(ErrorCode::file_exists));
    return fail_errno(errnum, "name the finished file " + path_);
  }
  return sync_name();
}

Result<void> OutputFile::publish_over(unsigned mode) {
  if (fchmod(fd_.get(), mode) != 0) return fail_errno(errno, "set the mode of " + path_);
  if (fsync(fd_.get()) != 0) return fail_errno(errno, "sync " + path_);
  if (part_.empty()) {
    flock(fd_.get(), LOCK_EX | LOCK_NB);  // before it has a name by which others would take it for a dead one's
    const std::string part = part_name();
    remember_part(directory_.get(), part);
    if (link(part) != 0) return fail_errno(errno, "name the finished file " + path_);
    part_ = part;
  }
  if (renameat(directory_.get(), part_.c_str(), directory_.get(), split_path(path_).second.c_str()) != 0)
    return fail_errno(errno, "name the finished file " + path_);
  forget_part();
  return sync_name();
}

/// Some network file systems have directories that cannot be synced.
Result<void> OutputFile::sync_name() const {
  if (fsync(directory_.get()) == 0 || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS) return {};
  return fail_errno(errno, "sync the directory of " + path_);
}

}  // namespace situla
