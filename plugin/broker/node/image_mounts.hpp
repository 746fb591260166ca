// Which images does this node have mounted, and who uses them? One mount per image for all jobs and users of the node.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/mount_api.hpp"

namespace situla {

/// Whether a descriptor from the store program is what RootOperation::accept_store_image says.
/// service: the number of the service user, whose name is for the error.
Result<void> check_store_image(int fd, uid_t service, const std::string& service_user);
/// The same of a view, which has no name.
Result<void> check_store_view(int fd, uid_t service, const std::string& service_user);

/// For whom the kernel mounts. A user who keeps a mount namespace open keeps its images, beyond every job: each costs
/// the kernel memory that no cgroup counts.
struct MountShare {
  uid_t uid;
  uint32_t most;       ///< mounts_per_user of situla.toml; 0: no limit
  std::string lock{};  ///< ImageMounts::share_lock(); not without a limit
};

/// A mounted image in use: while the lock is held the node-wide mount is not dropped.
struct ImageInUse {
  /// From now on it is idle, if nobody else uses it.
  void leave() const;

  FileLock lock;   ///< shared
  UniqueFd mount;  ///< O_PATH of the root of the node-wide mount
  std::optional<FileLock>
      image{};  ///< of a view in a file of its own: the same of the image, which the store keeps then
};

/// The node-wide mounts below <runtime>/images. All state is in the kernel and the lock files; brokers come and go.
class ImageMounts {
 public:
  /// Creates the directories (images: 0700).
  static Result<ImageMounts> open(const std::string& runtime);

  /// Finds the mount of that name or makes it. `name`: of the image in the store, and whose view of it.
  [[nodiscard]] Result<ImageInUse> acquire(const std::string& name,
                                           const std::function<Result<DetachedMount>()>& make) const;
  /// Whether the kernel has refused to id-map an image since the node was started.
  [[nodiscard]] bool refused_id_map() const;
  void note_refused_id_map() const;
  /// Several brokers may make device-mapper devices at the same time, as long as they hold this.
  [[nodiscard]] Result<FileLock> lock_dm() const;
  /// A file of root, held from counting a user's mounts until there is one more: his steps begin at the same time.
  [[nodiscard]] std::string share_lock(uid_t user) const { return directory_ + "/share-" + std::to_string(user); }
  /// Unmounts what nobody has used for `idle`. Errors are skipped: the next broker tries again.
  void drop_idle(std::chrono::seconds idle) const;

 private:
  explicit ImageMounts(std::string directory) : directory_(std::move(directory)) {}
  std::string directory_;
};

/// Mounts an image file (loop device, squashfs, ro nosuid nodev); the mount is attached nowhere and ends with its
/// descriptors. Fails when the user has his share of mounts.
Result<DetachedMount> mount_image_file(int image_fd, const MountShare& share);
/// The same of a file in which other blocks take the place of its own. blocks: sealed memory; offset: bytes.
Result<DetachedMount> mount_patched_file(int image_fd, int blocks, uint64_t offset, const MountShare& share);

}  // namespace situla
