#include "hooks/import/output_file.hpp"

#include <cerrno>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/file.hpp"

namespace situla {
namespace {

constexpr std::string_view kPartPrefix = ".situla-";
constexpr std::string_view kPartSuffix = ".part";

/// Removes the parts of writers that are dead: a living one holds a lock.
void sweep(int directory) {
  const UniqueFd again(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!again) return;
  DIR* stream = fdopendir(dup(again.get()));
  if (stream == nullptr) return;
  while (const dirent* entry = readdir(stream)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(kPartPrefix) || !name.ends_with(kPartSuffix)) continue;
    const UniqueFd part(openat(directory, entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (part && flock(part.get(), LOCK_EX | LOCK_NB) == 0) unlinkat(directory, entry->d_name, 0);
  }
  closedir(stream);
}

/// ENOSPC and its like get their hint at the place that knows the size; here only the name is known.
Result<UniqueFd> open_part(int directory, const std::string& where, std::string& part) {
  const int nameless = openat(directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (nameless >= 0) return UniqueFd(nameless);
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT) return fail_errno(errno, "create a file in " + where);
  sweep(directory);
  part = random_name(kPartPrefix) + std::string(kPartSuffix);
  UniqueFd named(openat(directory, part.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!named) {
    part.clear();
    return fail_errno(errno, "create a file in " + where);
  }
  flock(named.get(), LOCK_EX | LOCK_NB);
  return named;
}

}  // namespace

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
  return OutputFile(path, std::move(directory), std::move(fd), std::move(part));
}

OutputFile::~OutputFile() {
  if (directory_ && !part_.empty()) unlinkat(directory_.get(), part_.c_str(), 0);
}

/// A name that exists makes it fail.
int OutputFile::link(const std::string& name) const {
  if (!part_.empty()) return linkat(directory_.get(), part_.c_str(), directory_.get(), name.c_str(), 0);
  // Through /proc, because linkat(AT_EMPTY_PATH) needs CAP_DAC_READ_SEARCH.
  const std::string self = "/proc/self/fd/" + std::to_string(fd_.get());
  return linkat(AT_FDCWD, self.c_str(), directory_.get(), name.c_str(), AT_SYMLINK_FOLLOW);
}

Result<void> OutputFile::seal() {
  const std::string self = "/proc/self/fd/" + std::to_string(fd_.get());
  UniqueFd reader(open(self.c_str(), O_RDONLY | O_CLOEXEC));
  if (!reader) return fail_errno(errno, "open " + path_ + " for reading");
  // A lock is the open file's, and sweep() must never find a part without one.
  flock(fd_.get(), LOCK_SH | LOCK_NB);
  flock(reader.get(), LOCK_SH | LOCK_NB);
  fd_ = std::move(reader);
  return {};
}

Result<void> OutputFile::publish_as(const std::string& path, unsigned mode) {
  path_ = path;
  return publish(mode);
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

Result<void> OutputFile::publish(unsigned mode) {
  if (fchmod(fd_.get(), mode) != 0) return fail_errno(errno, "set the mode of " + path_);
  if (fsync(fd_.get()) != 0) return fail_errno(errno, "sync " + path_);
  if (link(split_path(path_).second) != 0) {
    const int errnum = errno;
    if (errnum == EEXIST) return fail(ErrorKind::exists, "File already exists: " + path_);
    return fail_errno(errnum, "name the finished file " + path_);
  }
  if (fsync(directory_.get()) != 0) return fail_errno(errno, "sync the directory of " + path_);
  return {};
}

Result<void> OutputFile::publish_over(unsigned mode) {
  if (fchmod(fd_.get(), mode) != 0) return fail_errno(errno, "set the mode of " + path_);
  if (fsync(fd_.get()) != 0) return fail_errno(errno, "sync " + path_);
  if (part_.empty()) {
    sweep(directory_.get());
    flock(fd_.get(), LOCK_EX | LOCK_NB);  // or another writer's sweep() would take it for a dead one's
    const std::string part = random_name(kPartPrefix) + std::string(kPartSuffix);
    if (link(part) != 0) return fail_errno(errno, "name the finished file " + path_);
    part_ = part;
  }
  if (renameat(directory_.get(), part_.c_str(), directory_.get(), split_path(path_).second.c_str()) != 0)
    return fail_errno(errno, "name the finished file " + path_);
  part_.clear();
  if (fsync(directory_.get()) != 0) return fail_errno(errno, "sync the directory of " + path_);
  return {};
}

}  // namespace situla
