// How are mounts made on kernels without the new mount calls? With mount(2) through /proc/self/fd. Used by
// mount_api.cpp only.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <sys/statvfs.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/sys/kernel.hpp"
#include "common/sys/mount/mount_flags.hpp"

namespace situla::classic {

/// What one flag is to mount_setattr(2), to mount(2), and in the answer of statvfs(3).
struct FlagBits {
  bool MountFlags::*flag;
  uint64_t attribute;
  unsigned long mount, status;
};
constexpr std::array<FlagBits, 6> kFlagBits = {{
    {&MountFlags::read_only, kernel::kMountReadOnly, MS_RDONLY, ST_RDONLY},
    {&MountFlags::no_suid, kernel::kMountNoSuid, MS_NOSUID, ST_NOSUID},
    {&MountFlags::no_dev, kernel::kMountNoDev, MS_NODEV, ST_NODEV},
    {&MountFlags::no_exec, kernel::kMountNoExec, MS_NOEXEC, ST_NOEXEC},
    {&MountFlags::no_symfollow, kernel::kMountNoSymfollow, kernel::kMsNoSymfollow, kernel::kStNoSymfollow},
    {&MountFlags::no_atime, kernel::kMountNoAtime, MS_NOATIME, ST_NOATIME},
}};

Result<void> mount_new(int target_fd, const std::string& type, const std::string& source,
                       const MountParameters& parameters, const MountFlags& flags);
Result<void> bind(int target_fd, int source_fd, bool recursive, const MountFlags& flags);
/// The top of what is mounted on target now. The path is only a way to get there: what is found must be `same_as` (>=
/// 0) and on another mount than the target, or somebody renamed directories meanwhile.
Result<UniqueFd> open_mounted(int target_fd, int same_as);
Result<void> add_flags(int fd, const MountFlags& flags, bool recursive);

}  // namespace situla::classic
