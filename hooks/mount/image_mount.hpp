// How does a user's own squashfs file appear as a directory without root and without extraction? Served by squashfuse.
#pragma once

#include <string>

#include <sys/types.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/sys/process.hpp"

namespace situla {

/// Whether images can be served here, and if not, why: /dev/fuse opens and squashfuse is installed.
Result<void> fuse_available();

/// Mounts the image on `mountpoint`, read-only, nosuid, nodev, in the calling process's mount namespace, and starts its
/// server. The caller is single-threaded and has mounting rights in its user namespace, in which every file will belong
/// to uid/gid. The image needs to be readable through the descriptor only; its path is never used. Returns when the
/// mount answers. The mount lives as long as the Child, which dies with the calling thread.
Result<Child> serve_image(int image_fd, const std::string& mountpoint, uid_t uid, gid_t gid, LogSink& log);

}  // namespace situla
