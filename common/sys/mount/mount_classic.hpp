// How are mounts made on kernels without the new mount calls? With mount(2) through /proc/self/fd. Used by
// mount_api.cpp only.
#pragma once

#include <string>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/sys/mount/mount_flags.hpp"

namespace situla::classic {

Result<void> mount_new(int target_fd, const std::string& type, const std::string& source,
                       const MountParameters& parameters, const MountFlags& flags);
Result<void> bind(int target_fd, int source_fd, bool recursive, const MountFlags& flags);
/// The top of what is mounted on target now. The path is only a way to get there: what is found must be `same_as` (>=
/// 0) and on another mount than the target, or somebody renamed directories meanwhile.
Result<UniqueFd> open_mounted(int target_fd, int same_as);
Result<void> add_flags(int fd, const MountFlags& flags, bool recursive);

}  // namespace situla::classic
