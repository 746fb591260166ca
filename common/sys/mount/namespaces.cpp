#include "common/sys/mount/namespaces.hpp"

#include <array>
#include <cstring>

#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <net/if.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/kernel.hpp"
#include "common/sys/process/process.hpp"

namespace situla {
namespace {

struct NamespaceKind {
  NamespaceBits bit;
  int flag;
  const char* name;
};
constexpr std::array<NamespaceKind, 7> kKinds = {{
    {kUserNs, CLONE_NEWUSER, "user"},
    {kMountNs, CLONE_NEWNS, "mount"},
    {kPidNs, CLONE_NEWPID, "pid"},
    {kIpcNs, CLONE_NEWIPC, "ipc"},
    {kUtsNs, CLONE_NEWUTS, "uts"},
    {kNetNs, CLONE_NEWNET, "net"},
    {kCgroupNs, CLONE_NEWCGROUP, "cgroup"},
}};

/// Value of a small file of /proc/sys, empty when it does not exist.
std::string setting(const char* name) {
  auto content = read_file(std::string("/proc/sys/") + name, 256);
  return content ? std::string(trim(*content)) : std::string();
}

bool in_chroot() {
  struct stat own {};
  struct stat first {};
  // Only root can compare; others get EACCES and no hint.
  return stat("/", &own) == 0 && stat("/proc/1/root", &first) == 0 &&
         (own.st_dev != first.st_dev || own.st_ino != first.st_ino);
}

/// What usually forbids user namespaces: the errno alone (EPERM, ENOSPC, EINVAL) says nothing.
std::string user_namespace_hint(int errnum) {
  if (setting("user/max_user_namespaces") == "0")
    return "user namespaces are switched off: sysctl -w user.max_user_namespaces=15000";
  if (setting("kernel/unprivileged_userns_clone") == "0")
    return "ordinary users may not make user namespaces: sysctl -w kernel.unprivileged_userns_clone=1";
  if (setting("kernel/apparmor_restrict_unprivileged_userns") == "1")
    return "AppArmor restricts user namespaces: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or a profile "
           "with `userns,`";
  if (errnum == ENOSPC || errnum == EUSERS)
    return "the limit of user namespaces is reached: see /proc/sys/user/max_user_namespaces and nesting (at most 32)";
  if (errnum == EINVAL) return "the process has several threads, or the kernel lacks this kind of namespace";
  if (errnum == EPERM && in_chroot()) return "user namespaces cannot be made inside a chroot";
  if (errnum == EPERM) return "a seccomp filter or security module forbids it";
  return {};
}

/// ENOSPC is about a limit of namespaces here, and not about a disk.
Error namespace_error(int errnum, const std::string& what) {
  Error error = Error::from_errno(errnum, what);
  if (errnum == ENOSPC) error = Error(error.kind(), error.message());
  return std::move(error).with_code(ErrorCode::namespaces);
}

}  // namespace

Result<void> unshare_namespaces(unsigned bits) {
  int flags = 0;
  std::vector<std::string> names;
  for (const NamespaceKind& kind : kKinds) {
    if ((bits & kind.bit) == 0) continue;
    flags |= kind.flag;
    names.emplace_back(kind.name);
  }
  if (unshare(flags) == 0) return {};
  const int errnum = errno;
  Error error = namespace_error(errnum, "unshare " + join(names, ", ") + " namespaces");
  if ((bits & kUserNs) != 0)
    error.with_code(ErrorCode::namespaces).with_hint(user_namespace_hint(errnum));
  else if (errnum == EPERM)
    error.with_code(ErrorCode::namespaces).with_hint("only root, or a process in its own user namespace, can do this");
  return fail(std::move(error));
}

Result<void> join_namespace(int fd, std::string_view name) {
  if (setns(fd, 0) == 0) return {};
  Error error = Error::from_errno(errno, "join " + std::string(name) + " namespace");
  if (error.errnum() == EINVAL)
    error.with_code(ErrorCode::namespaces)
        .with_hint("the process has several threads, or lives in this user namespace already");
  else if (error.errnum() == EPERM)
    error.with_code(ErrorCode::namespaces).with_hint("the namespace belongs to another user");
  return fail(std::move(error));
}

Result<void> change_root(int root_fd) {
  if (fchdir(root_fd) != 0 || chroot(".") != 0) return fail_errno(errno, "change the root directory");
  return {};
}

Result<UniqueFd> open_namespace(pid_t pid, const char* name) {
  const std::string who = pid == 0 ? "self" : std::to_string(pid);
  return open_file("/proc/" + who + "/ns/" + name, O_RDONLY);
}

Result<NamespaceId> namespace_id(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return fail_errno(errno, "identify namespace");
  return NamespaceId{status.st_dev, status.st_ino};
}

Result<UniqueFd> owning_user_namespace(int fd) {
  UniqueFd owner(ioctl(fd, NS_GET_USERNS));
  if (!owner) return fail_errno(errno, "find the user namespace that owns a namespace");
  return owner;
}

Result<UniqueFd> parent_user_namespace(int fd) {
  UniqueFd parent(ioctl(fd, NS_GET_PARENT));
  if (!parent) return fail_errno(errno, "find the parent of a user namespace");
  return parent;
}

Result<uid_t> user_namespace_owner(int fd) {
  uid_t uid = 0;
  if (ioctl(fd, NS_GET_OWNER_UID, &uid) != 0) return fail_errno(errno, "find the owner of a user namespace");
  return uid;
}

Result<void> bring_loopback_up() {
  const UniqueFd socket_fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket_fd) return fail_errno(errno, "create a socket for the loopback interface");
  ifreq request{};
  std::memcpy(request.ifr_name, "lo", sizeof "lo");
  if (ioctl(socket_fd.get(), SIOCGIFFLAGS, &request) != 0) return fail_errno(errno, "read flags of the interface lo");
  request.ifr_flags = static_cast<short>(static_cast<unsigned short>(request.ifr_flags) | IFF_UP);
  if (ioctl(socket_fd.get(), SIOCSIFFLAGS, &request) != 0) return fail_errno(errno, "bring the interface lo up");
  return {};
}

Result<UniqueFd> make_mapping_namespace(const IdMaps& maps) {
  TRY_ASSIGN(auto pipe, make_pipe());
  auto& [reader, writer] = pipe;
  // The bare call: other threads of this process may hold locks, and the child does nothing but wait for the end of the
  // pipe.
  int pidfd = -1;
  const auto pid =
      static_cast<pid_t>(syscall(SYS_clone, static_cast<unsigned long>(CLONE_NEWUSER | SIGCHLD) | kernel::kClonePidfd,
                                 nullptr, &pidfd, nullptr, 0UL));
  if (pid == 0) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    (void)close(writer.get());
    char byte = 0;
    (void)!read(reader.get(), &byte, 1);
    _exit(0);
  }
  if (pid < 0) {
    const int errnum = errno;
    return fail(namespace_error(errnum, "make user namespace for id mapping")
                    .with_code(ErrorCode::namespaces)
                    .with_hint(user_namespace_hint(errnum)));
  }
  Child child(pid, UniqueFd(pidfd));
  TRY_ASSIGN(const UniqueFd directory, open_file("/proc/" + std::to_string(pid), O_RDONLY | O_DIRECTORY));
  TRY(write_id_maps(directory.get(), maps));
  UniqueFd user(openat(directory.get(), "ns/user", O_RDONLY | O_CLOEXEC));
  if (!user) return fail_errno(errno, "open user namespace of child process");
  return user;
}

Result<UniqueFd> make_mapping_namespace(uid_t uid, gid_t gid) {
  return make_mapping_namespace({"0 " + std::to_string(uid) + " 1\n", map_groups(0, gid), false});
}

}  // namespace situla
