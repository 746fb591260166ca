#include "common/sys/process/sandbox.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <csignal>
#include <cstddef>
#include <initializer_list>
#include <string_view>

#include <fcntl.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/unique_fd.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/process/bpf.hpp"

namespace situla {
namespace {

using bpf::Filter;
using bpf::refuse;

constexpr rlim_t kMostDescriptors = 1024;

/// From here on all architectures have the same numbers, and what is not listed as harmless does not exist: a C library
/// goes back to older calls.
constexpr uint32_t kFirstNew = 424;
constexpr uint32_t kHarmlessNew[] = {
    436,                 // close_range
    439,                 // faccessat2
    441,                 // epoll_pwait2
    444, 445, 446,       // landlock_*: can only take away more
    449, 454, 455, 456,  // futex_waitv, futex_wake, futex_wait, futex_requeue
    453,                 // map_shadow_stack
    462,                 // mseal
};

/// Older calls that are refused. Architectures lack some of them.
std::vector<uint32_t> refused_calls() {
  std::vector<uint32_t> calls;
  const auto add = [&calls](std::initializer_list<uint32_t> group) { calls.insert(calls.end(), group); };
  // programs and processes
  add({SYS_execve, SYS_execveat, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp});
  add({SYS_unshare, SYS_setns, SYS_tkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_setpgid, SYS_setsid});
  add({SYS_personality, SYS_ioprio_set, SYS_sched_setparam, SYS_sched_setscheduler, SYS_sched_setattr,
       SYS_migrate_pages, SYS_move_pages});
  // Room that no size of a file says, and that no limit on sizes knows of.
  add({SYS_fallocate});
#ifdef SYS_fork
  add({SYS_fork, SYS_vfork});
#endif
  // identity and privilege
  add({SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setgroups, SYS_setfsuid,
       SYS_setfsgid, SYS_capset});
  // mounts and roots
  add({SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_swapon, SYS_swapoff, SYS_quotactl, SYS_acct});
  // names, modes and owners of files
  add({SYS_fchmod,      SYS_fchmodat,     SYS_fchown,       SYS_fchownat,          SYS_mkdirat,
       SYS_mknodat,     SYS_unlinkat,     SYS_linkat,       SYS_symlinkat,         SYS_renameat2,
       SYS_truncate,    SYS_utimensat,    SYS_setxattr,     SYS_lsetxattr,         SYS_fsetxattr,
       SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, SYS_name_to_handle_at, SYS_open_by_handle_at});
#ifdef SYS_chmod
  add({SYS_chmod, SYS_chown, SYS_lchown, SYS_mkdir, SYS_rmdir, SYS_mknod, SYS_unlink, SYS_link, SYS_symlink, SYS_rename,
       SYS_creat, SYS_utime, SYS_utimes, SYS_futimesat});
#endif
#ifdef SYS_renameat
  add({SYS_renameat});
#endif
  // other ways into the kernel, and to other processes
  add({SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_add_key, SYS_request_key, SYS_keyctl, SYS_io_setup,
       SYS_io_submit, SYS_seccomp, SYS_syslog, SYS_fanotify_init, SYS_fanotify_mark, SYS_lookup_dcookie,
       SYS_nfsservctl});
  add({SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_reboot, SYS_vhangup, SYS_sethostname,
       SYS_setdomainname, SYS_settimeofday, SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex});
  add({SYS_shmget, SYS_shmat, SYS_shmctl, SYS_msgget, SYS_msgsnd, SYS_msgrcv, SYS_msgctl, SYS_semget, SYS_semop,
       SYS_semctl, SYS_semtimedop, SYS_mq_open, SYS_mq_unlink, SYS_listen, SYS_accept, SYS_accept4});
#ifdef SYS_kexec_file_load
  add({SYS_kexec_file_load});
#endif
#ifdef SYS_iopl
  add({SYS_iopl, SYS_ioperm, SYS_modify_ldt});
#endif
#ifdef SYS_uselib
  add({SYS_uselib, SYS_ustat, SYS_sysfs});
#endif
  return calls;
}

Filter sandbox_filter() {
  constexpr uint32_t kForWriting = O_ACCMODE | O_CREAT | O_TRUNC;
  const auto self = static_cast<uint32_t>(getpid());
  Filter filter;
  filter.load_architecture();
  filter.unless_equal(bpf::kArchitecture, SECCOMP_RET_KILL_PROCESS);
  filter.load_number();
  filter.if_at_least(kFirstNew, [](Filter& is) {
    for (const uint32_t number : kHarmlessNew) is.if_equal(number, SECCOMP_RET_ALLOW);
  });
  for (const uint32_t number : refused_calls()) filter.if_equal(number, refuse(EPERM));
  // Threads only.
  filter.on(SYS_clone, [](Filter& is) {
    is.load_argument(0);
    is.unless_any_bit(CLONE_THREAD, refuse(EPERM));
  });
  filter.on(SYS_openat, [](Filter& is) {
    is.load_argument(2);
    is.if_any_bit(kForWriting, refuse(EACCES));
  });
#ifdef SYS_open
  filter.on(SYS_open, [](Filter& is) {
    is.load_argument(1);
    is.if_any_bit(kForWriting, refuse(EACCES));
  });
#endif
  for (const uint32_t number : {uint32_t{SYS_kill}, uint32_t{SYS_tgkill}})
    filter.on(number, [self](Filter& is) {
      is.load_argument(0);
      is.unless_equal(self, refuse(EPERM));
    });
  filter.on(SYS_prlimit64, [self](Filter& is) {
    is.load_argument(0);
    is.if_equal(0, SECCOMP_RET_ALLOW);
    is.unless_equal(self, refuse(EPERM));
  });
  // A thread may lower its own priority, and no other's.
  filter.on(SYS_setpriority, [](Filter& is) {
    is.load_argument(0);
    is.unless_equal(PRIO_PROCESS, refuse(EPERM));
    is.load_argument(1);
    is.unless_equal(0, refuse(EPERM));
  });
  filter.on(SYS_sched_setaffinity, [](Filter& is) {
    is.load_argument(0);
    is.unless_equal(0, refuse(EPERM));
  });
  // Descriptors whose events the kernel tells by a signal, of any number, to any process of the same account.
  filter.on(SYS_fcntl, [](Filter& is) {
    is.load_argument(1);
    for (const int command : {F_SETOWN, F_SETOWN_EX, F_SETSIG})
      is.if_equal(static_cast<uint32_t>(command), refuse(EPERM));
  });
  filter.on(SYS_ioctl, [](Filter& is) {
    is.load_argument(1);
    for (const unsigned command : {unsigned{FIOSETOWN}, unsigned{SIOCSPGRP}}) is.if_equal(command, refuse(EPERM));
  });
  // Names are resolved with the help of the kernel's routing tables. libcurl wakes itself with a socketpair(2), which
  // is left: it reaches nobody.
  filter.on(SYS_socket, [](Filter& is) {
    is.load_argument(0);
    is.if_equal(AF_INET, SECCOMP_RET_ALLOW);
    is.if_equal(AF_INET6, SECCOMP_RET_ALLOW);
    is.unless_equal(AF_NETLINK, refuse(EAFNOSUPPORT));
    is.load_argument(2);
    is.unless_equal(0, refuse(EPROTONOSUPPORT));
  });
  filter.on(SYS_prctl, [](Filter& is) {
    is.load_argument(0);
    is.if_equal(PR_SET_DUMPABLE, refuse(EPERM));
  });
  filter.answer(SECCOMP_RET_ALLOW);
  return filter;
}

// --- Landlock (Linux 5.13): landlock(7)

constexpr long kCreateRuleset = 444, kAddRule = 445, kRestrictSelf = 446;
constexpr unsigned kAskVersion = 1, kRulePathBeneath = 1;
constexpr uint64_t kReadFile = 1U << 2U, kReadDirectory = 1U << 3U;
constexpr uint64_t kFirstRights = (1U << 13U) - 1;                                       // of version 1
constexpr uint64_t kRefer = 1U << 13U, kTruncate = 1U << 14U, kIoctlDevice = 1U << 15U;  // of versions 2, 3 and 5
constexpr uint64_t kScopeAbstractSocket = 1, kScopeSignal = 2;                           // of version 6

struct RulesetAttributes {
  uint64_t fs = 0, net = 0, scoped = 0;
};
struct [[gnu::packed]] PathBeneath {
  uint64_t allowed = 0;
  int32_t parent = -1;
};

/// False where the kernel has none, or it is switched off.
Result<bool> restrict_files(const std::vector<std::string>& readable) {
  const long version = syscall(kCreateRuleset, nullptr, 0, kAskVersion);
  if (version < 1) return false;
  RulesetAttributes attributes;
  attributes.fs =
      kFirstRights | (version >= 2 ? kRefer : 0) | (version >= 3 ? kTruncate : 0) | (version >= 5 ? kIoctlDevice : 0);
  if (version >= 6) attributes.scoped = kScopeAbstractSocket | kScopeSignal;
  const size_t size = version >= 6 ? sizeof attributes : offsetof(RulesetAttributes, net);
  const UniqueFd ruleset(static_cast<int>(syscall(kCreateRuleset, &attributes, size, 0)));
  if (!ruleset) return fail_errno(errno, "make a Landlock ruleset");
  for (const std::string& path : readable) {
    const UniqueFd place(open(path.c_str(), O_PATH | O_CLOEXEC));
    struct stat status {};
    // What is missing needs no right; what may be there has to get one.
    if (Error error = Error::from_errno(place ? 0 : errno, "open " + path); error.inconclusive())
      return fail(std::move(error));
    if (!place || fstat(place.get(), &status) != 0) continue;
    const PathBeneath rule{S_ISDIR(status.st_mode) ? kReadFile | kReadDirectory : kReadFile, place.get()};
    if (syscall(kAddRule, ruleset.get(), kRulePathBeneath, &rule, 0) != 0)
      return fail_errno(errno, "allow " + path + " in the Landlock ruleset");
  }
  if (syscall(kRestrictSelf, ruleset.get(), 0) != 0) return fail_errno(errno, "restrict this process by Landlock");
  return true;
}

Result<void> set_limit(__rlimit_resource what, rlim_t value, const char* name) {
  rlimit limit{};
  if (getrlimit(what, &limit) != 0) return fail_errno(errno, std::string("read the limit ") + name);
  limit.rlim_max = std::min(limit.rlim_max, value);
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(what, &limit) != 0) return fail_errno(errno, std::string("set the limit ") + name);
  return {};
}

/// An administrator's certificates and configuration may lie anywhere, with a link in the usual place.
void add_link_targets(const std::string& directory, std::vector<std::string>& readable) {
  for (const std::string& name : list_directory(directory).value_or(std::vector<std::string>())) {
    std::array<char, PATH_MAX> target{};
    const ssize_t size = readlink((directory + "/" + name).c_str(), target.data(), target.size());
    if (size <= 0 || static_cast<size_t>(size) == target.size()) continue;
    const std::string_view path(target.data(), static_cast<size_t>(size));
    if (path.starts_with('/') && !path.starts_with("/etc/") && !path.starts_with("/usr/") && !path.starts_with("/dev/"))
      readable.emplace_back(path);
  }
}

}  // namespace

std::vector<std::string> readable_for_network() {
  std::vector<std::string> readable = {"/etc",
                                       "/usr",
                                       "/lib",
                                       "/lib64",
                                       "/bin",
                                       "/var/lib/ca-certificates",  // openSUSE
                                       "/run/systemd/resolve",
                                       "/run/NetworkManager",
                                       "/run/resolvconf",
                                       "/run/connman",
                                       "/proc/self",
                                       "/proc/sys",
                                       "/proc/meminfo",
                                       "/proc/cpuinfo",
                                       "/proc/stat",
                                       "/sys/devices/system",
                                       "/dev/null",
                                       "/dev/zero",
                                       "/dev/random",
                                       "/dev/urandom"};
  for (const char* directory : {"/etc", "/etc/ssl", "/etc/ssl/certs", "/etc/pki/tls/certs"})
    add_link_targets(directory, readable);
  return readable;
}

Result<bool> enter_sandbox(const SandboxRules& rules) {
  TRY(set_no_new_privileges());
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return fail_errno(errno, "make this process untraceable");
  TRY(set_limit(RLIMIT_CORE, 0, "on core dumps"));
  TRY(set_limit(RLIMIT_NOFILE, kMostDescriptors, "on descriptors"));
  if (rules.largest_file != 0) {
    TRY(set_limit(RLIMIT_FSIZE, rules.largest_file, "on the size of files"));
    (void)std::signal(SIGXFSZ, SIG_IGN);  // the write fails with EFBIG instead
  }
  TRY_ASSIGN(const bool landlock, restrict_files(rules.readable));
  TRY(sandbox_filter().install(0, "install the importer's seccomp filter"));
  return landlock;
}

}  // namespace situla
