// How does a process answer for images that are mounted? With some threads, until the mounts are gone.
#pragma once

#include <string>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "hooks/unpack/image_access.hpp"

namespace situla {

/// Serves the image on `device`, an open /dev/fuse with a mount on it, until that mount is gone. Every file belongs to
/// uid/gid, ids of the user namespace in which the mount was made. Returns when the mount is gone; an error when the
/// device cannot be read.
Result<void> serve_requests(const ImageAccess& image, int device, uid_t uid, gid_t gid);

/// What is said of an image that is given to serve_images(), with two descriptors: the image, and its mount's
/// /dev/fuse.
std::string served_image_text(InodeRef root, uid_t uid, gid_t gid);
/// Serves the images whose descriptors come on the socket, each until its mount is gone, with the same few threads for
/// all. Returns when the other end of the socket is closed and the last mount is gone. Then the process has to end: its
/// threads still wait. One that cannot be served is let go of, and every access to it is an error.
Result<void> serve_images(int socket);

}  // namespace situla
