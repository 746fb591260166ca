// How does a user's own squashfs file appear as a directory without root and without extraction? By FUSE, served by a
// process of ours.
#pragma once

#include <string>

#include <sys/types.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

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

}  // namespace situla
