// How does a user's own squashfs file appear as a directory without root and without extraction? By FUSE, served by a
// process of ours: one for a container's root, and one for all images that are mounted in it.
#pragma once

#include <string>

#include <sys/types.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/sys/mount/mount_flags.hpp"

namespace situla {

/// Whether images can be served here, and if not, why: /dev/fuse opens.
Result<void> fuse_available();

/// The process behind a mount. It ends by itself when the mount is gone, so nobody has to hold this.
struct ImageServer {
  pid_t pid = -1;
  UniqueFd pidfd;  ///< none on kernels before 5.3
  [[nodiscard]] explicit operator bool() const { return pid > 0; }
};

/// Mounts the image on `mountpoint`, read-only, nosuid, nodev, in the calling process's mount namespace, and starts its
/// server: no child of the caller, in a session and a mount namespace of its own, with no descriptor but the image, no
/// capability and every signal but SIGKILL blocked. The caller is single-threaded and has mounting rights in its user
/// namespace, in which every file will belong to uid/gid. The image needs to be readable through the descriptor only.
/// ErrorKind::corrupt for what is no image. When the server is killed, every access gives an error instead of hanging.
Result<ImageServer> serve_image(int image_fd, const std::string& mountpoint, uid_t uid, gid_t gid, LogSink& log);

/// A file, directory or link of an image, to be mounted.
struct ImagePart {
  UniqueFd image;          ///< open for reading
  uint64_t inode = 0;      ///< InodeRef: where it is in the image
  unsigned file_type = 0;  ///< S_IFDIR, S_IFREG, ...
};
/// Of the image at `image`; `inside` may be empty. Links are followed within it. The image need not be trusted.
Result<ImagePart> open_image_part(UniqueFd image, const std::string& inside);

/// Images in a container's mounts. The first starts a server as serve_image() does, which has them all until the last
/// mount is gone. What is needed of the caller, too, is as there.
class MountedImages {
 public:
  /// Mounts it on what is behind target_fd; read-only, nosuid and nodev are added to the flags. Every file belongs to
  /// the caller's ids (euid, egid). The descriptor is that of what is mounted now; `operand` names the target in
  /// errors.
  Result<UniqueFd> mount(const ImagePart& part, int target_fd, MountFlags flags, const std::string& operand);

 private:
  Result<void> start_server();
  UniqueFd server_;  ///< a socket, on which images are given to it
};

}  // namespace situla
