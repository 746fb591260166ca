// How does a process answer for images that are mounted? With some threads, until the mounts are gone.
#pragma once

#include <sys/types.h>

#include "common/base/result.hpp"
#include "hooks/unpack/image_access.hpp"
#include "hooks/unpack/image_owners.hpp"

namespace situla {

constexpr size_t kMostImagesInPacket = 16;
constexpr size_t kMostPacketBytes = 16384;
constexpr char kIsThere = 't';

/// How many threads may serve are reckoned by it. To be asked once before /proc and /sys are gone.
unsigned node_processors();

/// Serves the image on `device`, an open /dev/fuse with a mount on it, until that mount is gone. Owners are ids of the
/// user namespace in which the mount was made. Returns when the mount is gone; an error when the device cannot be read.
Result<void> serve_requests(const ImageAccess& image, int device, const ImageOwners& owners);

/// Serves, on such a device, a directory with the images whose descriptors come on the socket, at most
/// kMostImagesInPacket in a packet of at most kMostPacketBytes, that says what of each is shown: a path in it ("/":
/// all) and a NUL. They are called 1, 2 and so on (ServedImages), and every file belongs to uid/gid. For each packet
/// the socket says, with a letter for each of its images, which are there (kIsThere) and which cannot be served.
/// Returns when the mount is gone.
Result<void> serve_images(int socket, int device, uid_t uid, gid_t gid);

}  // namespace situla
