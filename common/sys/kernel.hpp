// How are kernel calls made that older C libraries do not wrap? By number, each with the type that its man page gives.
#pragma once

#include <cstddef>
#include <string>

#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

// <sys/mount.h> and <linux/mount.h> cannot be included together (glibc 2.36), so mount(2) itself is called by number
// too.
namespace situla::kernel {

inline int openat2(int directory, const char* path, const open_how& how) {
  return static_cast<int>(syscall(SYS_openat2, directory, path, &how, sizeof how));
}
inline int close_range(unsigned first, unsigned last, unsigned flags) {
  return static_cast<int>(syscall(SYS_close_range, first, last, flags));
}
inline int pidfd_open(pid_t pid) {
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}
inline int pidfd_send_signal(int pidfd, int number) {
  return static_cast<int>(syscall(SYS_pidfd_send_signal, pidfd, number, nullptr, 0));
}
inline int fsopen(const char* type, unsigned flags) {
  return static_cast<int>(syscall(SYS_fsopen, type, flags));
}
inline int fsconfig(int context, unsigned command, const char* key, const void* value, int extra) {
  return static_cast<int>(syscall(SYS_fsconfig, context, command, key, value, extra));
}
inline int fsmount(int context, unsigned flags, unsigned attributes) {
  return static_cast<int>(syscall(SYS_fsmount, context, flags, attributes));
}
inline int open_tree(int directory, const char* path, unsigned flags) {
  return static_cast<int>(syscall(SYS_open_tree, directory, path, flags));
}
inline int move_mount(int from, const char* from_path, int to, const char* to_path, unsigned flags) {
  return static_cast<int>(syscall(SYS_move_mount, from, from_path, to, to_path, flags));
}
inline int mount_setattr(int directory, const char* path, unsigned flags, const mount_attr* attributes, size_t size) {
  return static_cast<int>(syscall(SYS_mount_setattr, directory, path, flags, attributes, size));
}
inline int mount(const char* source, const char* target, const char* type, unsigned long flags, const void* data) {
  return static_cast<int>(syscall(SYS_mount, source, target, type, flags, data));
}
inline int umount2(const char* target, int flags) {
  return static_cast<int>(syscall(SYS_umount2, target, flags));
}
inline int pivot_root(const char* new_root, const char* put_old) {
  return static_cast<int>(syscall(SYS_pivot_root, new_root, put_old));
}

/// The magic link that names an open descriptor for calls which take only paths.
inline std::string fd_path(int fd) {
  return "/proc/self/fd/" + std::to_string(fd);
}

}  // namespace situla::kernel
