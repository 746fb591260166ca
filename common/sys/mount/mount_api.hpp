// How is something mounted by file descriptors? fsopen/fsmount/open_tree/move_mount/mount_setattr, or mount(2) where
// they lack.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/sys/mount/mount_flags.hpp"

namespace situla {

/// Which calls are used. automatic probes once per process; classic is mount(2) only (kernels < 5.2; tests force it).
enum class MountApi { automatic, modern, classic };
void set_mount_api(MountApi api);  ///< process-wide, for start-up and tests only
bool modern_mount_api();           ///< what automatic found, or what was forced

enum class Propagation { private_mount, slave, shared, unbindable };

/// A mount that is not attached anywhere yet; freed with its last descriptor.
class DetachedMount {
 public:
  explicit DetachedMount(UniqueFd fd) : fd_(std::move(fd)) {}
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] UniqueFd take() { return std::move(fd_); }
  /// Maps owner id 0 of the file system to uid/gid through `userns` (MOUNT_ATTR_IDMAP; kernel >= 6.2 for squashfs).
  Result<void> map_ids(int userns_fd);
  /// move_mount(2) onto the object behind an O_PATH descriptor (directory on directory, file on file).
  Result<void> attach(int target_fd) const;

 private:
  UniqueFd fd_;
};

/// A new file system instance: fs type ("squashfs", "tmpfs", "overlay", "proc", ...), its source and options.
/// Kernel messages from the fs context's log are put into the error.
Result<DetachedMount> new_mount(const std::string& type, const std::string& source, const MountParameters& parameters,
                                const MountFlags& flags);
/// A private copy of the tree at an open descriptor (open_tree(2) OPEN_TREE_CLONE); recursive = with submounts.
Result<DetachedMount> clone_tree(int fd, bool recursive);

/// One call each for code that works on either API: mount a new file system on, or bind source on, the object behind
/// target_fd. `operand` names the target in errors.
Result<void> mount_new_at(int target_fd, const std::string& type, const std::string& source,
                          const MountParameters& parameters, const MountFlags& flags, std::string_view operand);
Result<void> bind_at(int target_fd, int source_fd, bool recursive, const MountFlags& flags, std::string_view operand);
/// The same for those who have to look where it came to be: a descriptor of what is mounted now.
Result<UniqueFd> mount_new_and_open(int target_fd, const std::string& type, const std::string& source,
                                    const MountParameters& parameters, const MountFlags& flags,
                                    std::string_view operand);
Result<UniqueFd> bind_and_open(int target_fd, int source_fd, bool recursive, const MountFlags& flags,
                               std::string_view operand);
/// Propagation of the mount at `path` ("/" = whole namespace) and, recursive, everything below.
Result<void> set_propagation(const std::string& path, Propagation propagation, bool recursive);
/// Adds flags to an existing mount at the descriptor, and, recursive, to everything below.
Result<void> add_mount_flags(int fd, const MountFlags& flags, bool recursive);
/// umount2(2). detach = MNT_DETACH. UMOUNT_NOFOLLOW always.
Result<void> unmount(const std::string& path, bool detach);
/// Takes the mount away whose root the descriptor is (MNT_DETACH), wherever it has got to.
Result<void> detach_mount(int fd);
/// pivot_root(".", ".") into the directory behind root_fd, old root detached, cwd = "/".
Result<void> pivot_into(int root_fd);
/// statfs(2) type of the file system holding fd, e.g. PROC_SUPER_MAGIC.
Result<int64_t> filesystem_type(int fd);

}  // namespace situla
