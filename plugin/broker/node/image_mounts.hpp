// Which images does this node have mounted, and who uses them? One mount per image for all jobs and users of the node.
#pragma once

#include <chrono>
#include <string>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/mount_api.hpp"

namespace situla {

/// Whether a descriptor from the store program is what RootOperation::accept_store_image says.
Result<void> check_store_image(int fd, const std::string& service_user);

/// For whom the kernel mounts. A user who keeps a mount namespace open keeps its images, beyond every job: each costs
/// the kernel memory that no cgroup counts.
struct MountShare {
  uid_t uid;
  uint32_t most;  ///< mounts_per_user of situla.toml; 0: no limit
};

/// A mounted image in use: while the lock is held the node-wide mount is not dropped.
struct ImageInUse {
  FileLock lock;   ///< shared
  UniqueFd mount;  ///< O_PATH of the root of the node-wide mount
};

/// The node-wide mounts below <runtime>/images. All state is in the kernel and the lock files; brokers come and go.
class ImageMounts {
 public:
  /// Creates the directories (images: 0700).
  static Result<ImageMounts> open(const std::string& runtime);

  /// Finds the mount of this image or makes it from the file (loop device, squashfs, ro nosuid nodev). `name`: of
  /// the image in the store. Fails when the user has his share of mounts; finding one takes none.
  [[nodiscard]] Result<ImageInUse> acquire(const std::string& name, int image_fd, MountShare share) const;
  /// Unmounts what nobody has used for `idle`. Errors are skipped: the next broker tries again.
  void drop_idle(std::chrono::seconds idle) const;

 private:
  explicit ImageMounts(std::string directory) : directory_(std::move(directory)) {}
  std::string directory_;
};

/// Mounts a file that is not in the store; the mount is attached nowhere and ends with its descriptors.
Result<DetachedMount> mount_image_file(int image_fd, MountShare share);

}  // namespace situla
