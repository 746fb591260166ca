// How does a process answer the kernel's questions about an image? It speaks FUSE, and nothing else.
#pragma once

#include <sys/types.h>

#include "common/base/result.hpp"
#include "hooks/unpack/image_access.hpp"

namespace situla {

/// Serves the image on `device`, an open /dev/fuse with a mount on it, until that mount is gone. Every file belongs to
/// uid/gid, ids of the user namespace in which the mount was made. Answers are complete and never change, so the kernel
/// is told to keep them: each name, inode and page is asked for once, as long as its memory lasts. Returns when the
/// mount is gone; an error when the device cannot be read.
Result<void> serve_requests(const ImageAccess& image, int device, uid_t uid, gid_t gid);

}  // namespace situla
