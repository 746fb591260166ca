// Which directories beneath a container's root are really the host's, so that nothing may be made in them? A link of
// the image may lead to one (/usr/lib64 -> /dev/shm), and so may a mount of the site.
#pragma once

#include "common/base/result.hpp"
#include "common/sys/root_dir.hpp"

namespace situla {

/// The same root, in which nothing is made in a directory whose file system is mounted outside of the root, too, unless
/// it is the one that holds the root itself: ErrorKind::denied.
Result<RootDir> spare_host_directories(const RootDir& root);

}  // namespace situla
