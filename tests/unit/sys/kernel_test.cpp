// Our own constants and structures are the kernel's: compared with the headers of this machine, as far as those know
// them. Compiling it is the test.
#include "common/sys/kernel.hpp"

#include <cstddef>

#include <fcntl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "common/sys/file.hpp"
#if __has_include(<linux/mount.h>)
#include <linux/mount.h>
#endif
#if __has_include(<linux/openat2.h>)
#include <linux/openat2.h>
#endif
#if __has_include(<linux/close_range.h>)
#include <linux/close_range.h>
#endif

#include <catch2/catch.hpp>

namespace situla::kernel {

#ifdef SYS_pidfd_send_signal
static_assert(kPidfdSendSignal == SYS_pidfd_send_signal);
#endif
#ifdef SYS_fsopen
static_assert(kOpenTree == SYS_open_tree && kMoveMount == SYS_move_mount && kFsopen == SYS_fsopen);
static_assert(kFsconfig == SYS_fsconfig && kFsmount == SYS_fsmount);
#endif
#ifdef SYS_openat2
static_assert(kPidfdOpen == SYS_pidfd_open && kOpenat2 == SYS_openat2);
#endif
#ifdef SYS_close_range
static_assert(kCloseRange == SYS_close_range);
#endif
#ifdef SYS_mount_setattr
static_assert(kMountSetattr == SYS_mount_setattr);
#endif
#ifdef CLONE_PIDFD
static_assert(kClonePidfd == CLONE_PIDFD);
#endif
#ifdef CLOSE_RANGE_CLOEXEC
static_assert(kCloseRangeCloexec == CLOSE_RANGE_CLOEXEC);
#endif
#ifdef MFD_NOEXEC_SEAL
static_assert(kMemfdNoExecSeal == MFD_NOEXEC_SEAL);
#endif
#ifdef SECCOMP_FILTER_FLAG_SPEC_ALLOW
static_assert(kSeccompSpecAllow == SECCOMP_FILTER_FLAG_SPEC_ALLOW);
#endif
#ifdef AT_RECURSIVE
static_assert(kAtRecursive == AT_RECURSIVE);
#endif
#ifdef FSOPEN_CLOEXEC
static_assert(kFsopenCloexec == FSOPEN_CLOEXEC && kFsmountCloexec == FSMOUNT_CLOEXEC);
static_assert(kFsconfigSetFlag == FSCONFIG_SET_FLAG && kFsconfigSetString == FSCONFIG_SET_STRING);
static_assert(kFsconfigCreate == FSCONFIG_CMD_CREATE);
static_assert(kOpenTreeClone == OPEN_TREE_CLONE && kOpenTreeCloexec == OPEN_TREE_CLOEXEC);
static_assert(kMoveMountFromEmptyPath == MOVE_MOUNT_F_EMPTY_PATH && kMoveMountToEmptyPath == MOVE_MOUNT_T_EMPTY_PATH);
static_assert(kMountReadOnly == MOUNT_ATTR_RDONLY && kMountNoSuid == MOUNT_ATTR_NOSUID);
static_assert(kMountNoDev == MOUNT_ATTR_NODEV && kMountNoExec == MOUNT_ATTR_NOEXEC);
static_assert(kMountNoAtime == MOUNT_ATTR_NOATIME && kMountAtimeModes == MOUNT_ATTR__ATIME);
#endif
#ifdef MOUNT_ATTR_SIZE_VER0
static_assert(kMountIdMap == MOUNT_ATTR_IDMAP);
static_assert(sizeof(MountAttributes) == sizeof(mount_attr));
static_assert(offsetof(MountAttributes, clear) == offsetof(mount_attr, attr_clr));
static_assert(offsetof(MountAttributes, userns_fd) == offsetof(mount_attr, userns_fd));
#endif
#ifdef MOUNT_ATTR_NOSYMFOLLOW
static_assert(kMountNoSymfollow == MOUNT_ATTR_NOSYMFOLLOW);
#endif
#ifdef MS_NOSYMFOLLOW
static_assert(kMsNoSymfollow == MS_NOSYMFOLLOW);
#endif
#ifdef ST_NOSYMFOLLOW
static_assert(kStNoSymfollow == ST_NOSYMFOLLOW);
#endif
#ifdef RESOLVE_IN_ROOT
static_assert(kResolveInRoot == RESOLVE_IN_ROOT && kResolveNoMagicLinks == RESOLVE_NO_MAGICLINKS);
static_assert(sizeof(OpenHow) == sizeof(open_how) && offsetof(OpenHow, resolve) == offsetof(open_how, resolve));
#endif
#ifdef LOOP_CONFIGURE
static_assert(kLoopConfigure == LOOP_CONFIGURE && sizeof(LoopConfig) == sizeof(loop_config));
static_assert(offsetof(LoopConfig, info) == offsetof(loop_config, info));
#endif
static_assert(kStatxDontSync == AT_STATX_DONT_SYNC && sizeof(FileStatus) == sizeof(struct statx));
#ifdef STATX_MNT_ID
static_assert(kStatxMountId == STATX_MNT_ID);
static_assert(offsetof(FileStatus, mount_id) == offsetof(struct statx, stx_mnt_id));
#endif

TEST_CASE("statx: the kernel writes a mount's id where the structure has it") {
  FileStatus status{};
  const int fd = open("/proc", O_PATH | O_CLOEXEC);
  REQUIRE(statx(fd, kStatxDontSync, kStatxMountId, status) == 0);
  const auto info = read_file("/proc/self/fdinfo/" + std::to_string(fd), 4096);
  (void)close(fd);
  REQUIRE(info);
  if ((status.mask & kStatxMountId) != 0)
    CHECK(info->find("mnt_id:\t" + std::to_string(status.mount_id) + "\n") != std::string::npos);
}

}  // namespace situla::kernel
