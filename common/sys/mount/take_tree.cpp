#include "common/sys/mount/take_tree.hpp"

#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount_table.hpp"

namespace situla {
namespace {

using Clock = std::chrono::steady_clock;

constexpr mode_t kTakenMode = 0700, kAllModeBits = 07777;

/// Directories in directories are moved up first: however deep they are, two are open.
class TreeTaker {
 public:
  TreeTaker(const std::function<bool(uid_t)>& is_his, Clock::time_point end) : is_his_(is_his), end_(end) {}

  Result<void> remove(int parent, const std::string& name) {
    TRY_ASSIGN(mount_, mount_id_by_proc(parent));
    TRY_ASSIGN(top_, take(parent, name));
    do {
      moved_ = false;
      TRY(empty(top_.get(), true));
    } while (moved_);
    if (unlinkat(parent, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return {};
    const int errnum = errno;
    return stays_ ? fail_errno(errnum, "remove directory " + name) : std::move(stays_);
  }

 private:
  /// What is mounted there is not asked anything, and "." of a directory is that directory, whatever is mounted on it
  /// by now.
  [[nodiscard]] Result<UniqueFd> take(int parent, const std::string& name) const {
    TRY_ASSIGN(const UniqueFd found, open_file_at(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW));
    TRY_ASSIGN(const uint64_t mount, mount_id_by_proc(found.get()));
    if (mount != mount_) return fail_errno(EBUSY, "remove " + name + ": something is mounted on it");
    struct stat info {};
    if (fstat(found.get(), &info) != 0) return fail_errno(errno, "inspect " + name);
    // A directory that only its owner may write to cannot have been moved here by anybody else: an earlier call took
    // it.
    const bool is_taken = info.st_uid == geteuid() && (info.st_mode & kAllModeBits) == kTakenMode;
    if (!is_taken && !is_his_(info.st_uid))
      return fail(ErrorKind::denied, "remove " + name + ": it belongs to uid " + std::to_string(info.st_uid));
    TRY_ASSIGN(UniqueFd directory, open_file_at(found.get(), ".", O_RDONLY | O_DIRECTORY));
    // Whoever makes a name needs write permission at that moment, whatever he has open. An access list's entries go
    // with the group's bits.
    if (fchown(directory.get(), geteuid(), getegid()) != 0 || fchmod(directory.get(), kTakenMode) != 0)
      return fail_errno(errno, "take directory " + name);
    return directory;
  }

  Result<void> empty(int directory, bool is_top) {
    TRY_ASSIGN(UniqueFd again, open_file_at(directory, ".", O_RDONLY | O_DIRECTORY));
    const DirStream stream(fdopendir(again.get()));
    if (!stream) return fail_errno(errno, "read directory");
    (void)again.release();
    for (;;) {
      if (Clock::now() >= end_) return fail(ErrorKind::failure, "it takes too long");
      errno = 0;
      const dirent* entry = readdir(stream.get());
      if (entry == nullptr) return errno == 0 ? Result<void>() : fail_errno(errno, "read directory");
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (unlinkat(directory, name.c_str(), 0) == 0 || errno == ENOENT) continue;
      if (unlinkat(directory, name.c_str(), AT_REMOVEDIR) == 0) continue;
      TRY(is_top ? remove_directory(name) : move_up(directory, name));
    }
  }

  Result<void> remove_directory(const std::string& name) {
    const auto directory = take(top_.get(), name);
    if (!directory) return note(fail(directory.error()));
    TRY(empty(directory->get(), false));
    if (unlinkat(top_.get(), name.c_str(), AT_REMOVEDIR) == 0) return {};
    return note(fail_errno(errno, "remove directory " + name));
  }

  Result<void> move_up(int directory, const std::string& name) {
    if (renameat(directory, name.c_str(), top_.get(), random_name(".removing-").c_str()) != 0)
      return note(fail_errno(errno, "move directory " + name));
    moved_ = true;
    return {};
  }

  /// The others go all the same.
  Result<void> note(Result<void> stays) {
    if (stays_) stays_ = std::move(stays);
    return {};
  }

  const std::function<bool(uid_t)>& is_his_;
  Clock::time_point end_;
  uint64_t mount_ = 0;
  UniqueFd top_;
  bool moved_ = false;
  Result<void> stays_{};  ///< why the first that stays does
};

}  // namespace

Result<void> take_and_remove(int directory_fd, const std::string& name, const std::function<bool(uid_t)>& is_his,
                             Clock::time_point end) {
  return TreeTaker(is_his, end).remove(directory_fd, name);
}

}  // namespace situla
