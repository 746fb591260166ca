// Which processes would lose their files if a file system went away?
#pragma once

#include <vector>

#include <sys/types.h>

#include "common/base/unique_fd.hpp"

namespace situla {

/// Descriptors (pidfd_open(2)) of the processes of this user in whose mount namespace a file system with this device
/// number is mounted, but for the calling one. proc: an open /proc.
std::vector<UniqueFd> mount_users(int proc, dev_t device);

}  // namespace situla
