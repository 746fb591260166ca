// How are kernel calls made that older C libraries do not wrap, and what do they take where the kernel's headers are
// older than the kernel? By number; constants and structures are our own, each with the Linux that brought it.
//
// The ABI never changes, so nothing here depends on what is installed where Situla is compiled: a package built on an
// old system uses what a newer kernel has. tests/unit/sys/kernel_test.cpp compares all of it with the headers where
// there are any.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

namespace situla::kernel {

// Numbers of calls: since Linux 5.1 the same on all architectures but alpha.
constexpr long kPidfdSendSignal = 424, kOpenTree = 428, kMoveMount = 429, kFsopen = 430, kFsconfig = 431,
               kFsmount = 432;                                                            // 5.1, 5.2
constexpr long kPidfdOpen = 434, kCloseRange = 436, kOpenat2 = 437, kMountSetattr = 442;  // 5.3, 5.9, 5.6, 5.12

constexpr unsigned long kClonePidfd = 0x1000;  // 5.2; older kernels ignore the bit and leave the descriptor as it was
constexpr unsigned kCloseRangeCloexec = 1U << 2U;       // 5.11
constexpr unsigned kMemfdNoExecSeal = 0x0008;           // 6.3, EINVAL before
constexpr unsigned long kSeccompSpecAllow = 1UL << 2U;  // 4.17, EINVAL before
constexpr unsigned kAtRecursive = 0x8000;               // 5.2

constexpr unsigned kFsopenCloexec = 1, kFsmountCloexec = 1;                            // 5.2
constexpr unsigned kFsconfigSetFlag = 0, kFsconfigSetString = 1, kFsconfigCreate = 6;  // 5.2
constexpr unsigned kOpenTreeClone = 1, kOpenTreeCloexec = O_CLOEXEC;                   // 5.2
constexpr unsigned kMoveMountFromEmptyPath = 0x04, kMoveMountToEmptyPath = 0x40;       // 5.2
constexpr uint64_t kMountReadOnly = 0x01, kMountNoSuid = 0x02, kMountNoDev = 0x04, kMountNoExec = 0x08,
                   kMountNoAtime = 0x10, kMountAtimeModes = 0x70;  // 5.2
constexpr uint64_t kMountIdMap = 0x100000;                         // 5.12
constexpr uint64_t kMountNoSymfollow = 0x200000;                   // 5.14
constexpr unsigned long kMsNoSymfollow = 256;                      // of mount(2), 5.10; ignored before
constexpr unsigned long kStNoSymfollow = 0x2000;                   // f_flag bit of statfs(2), 5.10

/// struct mount_attr (5.12).
struct MountAttributes {
  uint64_t set, clear, propagation, userns_fd;
};
static_assert(sizeof(MountAttributes) == 32);

/// struct open_how (5.6).
struct OpenHow {
  uint64_t flags, mode, resolve;
};
static_assert(sizeof(OpenHow) == 24);
constexpr uint64_t kResolveNoMagicLinks = 0x02, kResolveInRoot = 0x10;

/// struct loop_config (5.8).
struct LoopConfig {
  uint32_t fd, block_size;
  loop_info64 info;
  std::array<uint64_t, 8> reserved;
};
constexpr unsigned long kLoopConfigure = 0x4C0A;

/// struct statx (4.11), of which only this is asked for here.
struct FileStatus {
  uint32_t mask;
  std::array<uint32_t, 35> others;
  uint64_t mount_id;  ///< 5.8: look at mask
  std::array<uint64_t, 13> more;
};
static_assert(sizeof(FileStatus) == 256);
constexpr unsigned kStatxMountId = 0x1000;
constexpr unsigned kStatxDontSync = 0x4000;  // AT_STATX_DONT_SYNC

/// Again, as long as a signal comes in between.
template <typename Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

inline int statx(int fd, unsigned flags, unsigned mask, FileStatus& status) {
  return static_cast<int>(syscall(SYS_statx, fd, "", flags | AT_EMPTY_PATH, mask, &status));
}
inline int openat2(int directory, const char* path, const OpenHow& how) {
  return static_cast<int>(syscall(kOpenat2, directory, path, &how, sizeof how));
}
inline int close_range(unsigned first, unsigned last, unsigned flags) {
  return static_cast<int>(syscall(kCloseRange, first, last, flags));
}
/// Only async-signal-safe calls. A script is read by its interpreter, by the descriptor's name: there it stays open.
inline int execveat(int program, char* const* arguments, char* const* environment) {
  (void)syscall(SYS_execveat, program, "", arguments, environment, AT_EMPTY_PATH);
  if (errno != ENOENT || fcntl(program, F_SETFD, 0) != 0) return -1;
  return static_cast<int>(syscall(SYS_execveat, program, "", arguments, environment, AT_EMPTY_PATH));
}
inline int pidfd_open(pid_t pid) {
  return static_cast<int>(syscall(kPidfdOpen, pid, 0));
}
inline int pidfd_send_signal(int pidfd, int number) {
  return static_cast<int>(syscall(kPidfdSendSignal, pidfd, number, nullptr, 0));
}
inline int fsopen(const char* type, unsigned flags) {
  return static_cast<int>(syscall(kFsopen, type, flags));
}
inline int fsconfig(int context, unsigned command, const char* key, const void* value, int extra) {
  return static_cast<int>(syscall(kFsconfig, context, command, key, value, extra));
}
inline int fsmount(int context, unsigned flags, unsigned attributes) {
  return static_cast<int>(syscall(kFsmount, context, flags, attributes));
}
inline int open_tree(int directory, const char* path, unsigned flags) {
  return static_cast<int>(syscall(kOpenTree, directory, path, flags));
}
inline int move_mount(int from, const char* from_path, int to, const char* to_path, unsigned flags) {
  return static_cast<int>(syscall(kMoveMount, from, from_path, to, to_path, flags));
}
inline int mount_setattr(int directory, const char* path, unsigned flags, const MountAttributes* attributes,
                         size_t size) {
  return static_cast<int>(syscall(kMountSetattr, directory, path, flags, attributes, size));
}
inline int pivot_root(const char* new_root, const char* put_old) {
  return static_cast<int>(syscall(SYS_pivot_root, new_root, put_old));
}

}  // namespace situla::kernel
