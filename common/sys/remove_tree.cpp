// remove_tree(): by descriptors only, so that a link swapped in under us is never followed.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/result.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/kernel.hpp"
#include "common/sys/mount_table.hpp"

namespace situla {
namespace {

/// Deeper directories are first moved up into the one that is removed, so that neither descriptors nor stack run out on
/// a hostile tree.
constexpr int kMaxDepth = 64;

/// Which mount a thing is on: bind mounts of the same file system differ only in the mount's id.
struct MountIdentity {
  uint64_t id = 0;
  uint64_t device = 0;
  friend bool operator==(const MountIdentity&, const MountIdentity&) = default;
};

Result<MountIdentity> mount_identity(int fd, const std::string& name) {
  if (const auto id = mount_id(fd)) return MountIdentity{*id, 0};
  // Before Linux 5.8 and without /proc. The device alone is the weaker answer: subvolumes of one mount differ in it.
  struct stat status {};
  if (fstat(fd, &status) != 0) return fail_errno(errno, "inspect " + name);
  return MountIdentity{0, status.st_dev};
}

/// In a user namespace no capability reaches into a directory whose group the namespace lacks, though it has the owner:
/// as its owner we give it a group of ours. False: nothing has changed.
bool take_group(int directory) {
  struct stat status {};
  if (fstat(directory, &status) != 0 || status.st_uid == geteuid() || !is_neighbour(status.st_uid)) return false;
  const FileUser owner(status.st_uid);
  return fchownat(directory, "", static_cast<uid_t>(-1), getegid(), AT_EMPTY_PATH) == 0;
}

/// action: says whether it worked, else errno why not.
template <typename Action>
bool reach_into(int directory, const Action& action) {
  if (action()) return true;
  const int errnum = errno;
  if (errnum == EACCES && take_group(directory)) return action();
  errno = errnum;
  return false;
}

class Remover {
 public:
  Result<void> remove(int parent, const std::string& name, int depth) {
    if (unlinkat(parent, name.c_str(), 0) == 0 || errno == ENOENT) return {};
    // EISDIR on Linux, EPERM by POSIX and some file systems: perhaps a directory.
    const int errnum = errno;
    UniqueFd found(openat(parent, name.c_str(), O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC));
    if (!found) return fail_errno(errno == ENOTDIR || errno == ELOOP ? errnum : errno, "remove " + name);
    if (depth == 0) {
      TRY_ASSIGN(mount_, mount_identity(parent, name));
    }
    TRY_ASSIGN(const MountIdentity mount, mount_identity(found.get(), name));
    if (mount != mount_) return fail_errno(EBUSY, "remove " + name + ": something is mounted on it");
    if (unlinkat(parent, name.c_str(), AT_REMOVEDIR) == 0) return {};
    if (depth >= kMaxDepth) return move_up(parent, name, found.get());
    if (depth == 0) top_ = found.get();
    TRY_CONTEXT(name, empty(found.get(), depth));
    if (depth == 0) TRY(remove_moved());
    if (unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT)
      return fail_errno(errno, "remove directory " + name);
    return {};
  }

 private:
  /// Directories that were too deep: should this process be killed, they go with the one that is removed.
  Result<void> remove_moved() {
    while (!moved_.empty()) {
      const std::string name = std::move(moved_.back());
      moved_.pop_back();
      TRY(remove(top_, name, 1));
    }
    return {};
  }

  Result<void> empty(int directory, int depth) {
    // An owner may have taken its own rights away (mode 0000); chmod by descriptor cannot be led elsewhere.
    (void)chmod(fd_path(directory).c_str(), 0700);
    UniqueFd readable;
    const auto open = [&] {
      readable.reset(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      return static_cast<bool>(readable);
    };
    if (!reach_into(directory, open)) return fail_errno(errno, "open directory");
    const DirStream stream(fdopendir(readable.get()));
    if (!stream) return fail_errno(errno, "read directory");
    (void)readable.release();
    for (;;) {
      errno = 0;
      const dirent* entry = readdir(stream.get());
      if (entry == nullptr) {
        if (errno != 0) return fail_errno(errno, "read directory");
        return {};
      }
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      TRY(remove(dirfd(stream.get()), name, depth + 1));
    }
  }

  Result<void> move_up(int parent, const std::string& name, int directory) {
    (void)chmod(fd_path(directory).c_str(), 0700);
    std::string target = random_name(".removing-");
    const auto move = [&] { return renameat(parent, name.c_str(), top_, target.c_str()) == 0; };
    if (!reach_into(directory, move)) return fail_errno(errno, "move deep directory " + name);
    moved_.push_back(std::move(target));
    return {};
  }

  int top_ = -1;  ///< the directory that is removed
  MountIdentity mount_;
  std::vector<std::string> moved_;
};

}  // namespace

Result<void> remove_tree_at(int directory_fd, const std::string& name) {
  Remover remover;
  return remover.remove(directory_fd, name, 0);
}

Result<void> remove_tree(const std::string& path) {
  std::string_view trimmed = path;
  while (trimmed.size() > 1 && trimmed.ends_with('/')) trimmed.remove_suffix(1);
  const size_t slash = trimmed.rfind('/');
  const std::string name(slash == std::string_view::npos ? trimmed : trimmed.substr(slash + 1));
  if (name.empty() || name == "." || name == "..") return fail(ErrorKind::usage, "remove " + path + ": not a name");
  const std::string parent(slash == std::string_view::npos ? "." : slash == 0 ? "/" : trimmed.substr(0, slash));
  auto directory = open_file(parent, O_RDONLY | O_DIRECTORY);
  if (!directory && directory.error().kind() == ErrorKind::not_found) return {};
  if (!directory) return fail(std::move(directory).error().with_context("remove " + path));
  TRY_CONTEXT("remove tree " + path, remove_tree_at(directory->get(), name));
  return {};
}

}  // namespace situla
