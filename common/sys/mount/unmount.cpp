#include "common/sys/mount/unmount.hpp"

#include <cerrno>

#include <sys/mount.h>

#include "common/sys/fd_path.hpp"
#include "common/sys/kernel.hpp"

namespace situla {

Result<void> unmount(const std::string& path, bool detach) {
  if (umount2(path.c_str(), UMOUNT_NOFOLLOW | (detach ? MNT_DETACH : 0)) != 0)
    return fail_errno(errno, "unmount " + path);
  return {};
}

Result<void> detach_mount(int fd) {
  if (umount2(fd_path(fd).c_str(), MNT_DETACH) != 0) return fail_errno(errno, "take a mount away");
  return {};
}

}  // namespace situla
