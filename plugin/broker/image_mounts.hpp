// Which images does this node have mounted, and who uses them? One mount per image for all jobs and users of the node.
#pragma once

#include <chrono>
#include <string>

#include "common/base/result.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount_api.hpp"

namespace situla {

/// Whether a descriptor from the store program is what RootOperation::accept_store_image says.
Result<void> check_store_image(int fd, const std::string& service_user);

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
  /// the image in the store.
  [[nodiscard]] Result<ImageInUse> acquire(const std::string& name, int image_fd) const;
  /// Unmounts what nobody has used for `idle`. Errors are skipped: the next broker tries again.
  void drop_idle(std::chrono::seconds idle) const;

 private:
  explicit ImageMounts(std::string directory) : directory_(std::move(directory)) {}
  std::string directory_;
};

/// Mounts a file that is not in the store; the mount is attached nowhere and ends with its descriptors.
Result<DetachedMount> mount_image_file(int image_fd);

}  // namespace situla
