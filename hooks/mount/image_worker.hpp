// What is the answer to one of the kernel's questions about an image? FUSE, as far as files that never change need it.
#pragma once

#include <atomic>
#include <memory>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "hooks/unpack/image_access.hpp"

namespace situla {

/// An image that is mounted, and its mount's /dev/fuse. Every file belongs to uid/gid, ids of the user namespace in
/// which the mount was made. Its workers share it.
struct ServedImage {
  ServedImage(ImageAccess access, InodeRef top, int fuse, uid_t owner, gid_t group)
      : image(std::move(access)), root(top), device(fuse), uid(owner), gid(group) {}

  const ImageAccess image;
  const InodeRef root;  ///< what is at the mount point: the image's root, or anything else of it
  const int device;     ///< not owned
  const uid_t uid;
  const gid_t gid;
  std::atomic<bool> no_opendir = false;  ///< what the kernel said at the beginning
};

enum class Taken { request, nothing, gone /**< the mount */ };

/// One thread's part of it. Requests are independent of each other. Answers are complete and never change, so the
/// kernel is told to keep them: each name, inode and page is asked for once, as long as its memory lasts.
class ImageWorker {
 public:
  static Result<ImageWorker> of(ServedImage& served);
  ImageWorker(ImageWorker&&) noexcept;
  ImageWorker& operator=(ImageWorker&&) noexcept;
  ~ImageWorker();

  /// Reads a request; waits for it unless the device is non-blocking. An error when the device cannot be read.
  Result<Taken> take();
  /// Answers the one that was taken last.
  void answer();

 private:
  class Requests;
  explicit ImageWorker(std::unique_ptr<Requests> requests);
  std::unique_ptr<Requests> requests_;
};

}  // namespace situla
