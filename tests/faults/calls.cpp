#include "tests/faults/calls.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <initializer_list>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <linux/fs.h>
#include <linux/futex.h>
#include <linux/loop.h>
#include <linux/nsfs.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "common/sys/kernel.hpp"
#include "tests/faults/process_view.hpp"

namespace situla::faults {
namespace {

using Faults = std::vector<Fault>;
using enum Fault;

struct FaultName {
  const char* name;
  Fault fault;
  int number;
};
constexpr FaultName kNames[] = {
    {"ENOSPC", enospc, ENOSPC},
    {"EDQUOT", edquot, EDQUOT},
    {"EIO", eio, EIO},
    {"EMFILE", emfile, EMFILE},
    {"ENFILE", enfile, ENFILE},
    {"ENOMEM", enomem, ENOMEM},
    {"EINTR", eintr, EINTR},
    {"EAGAIN", eagain, EAGAIN},
    {"ESTALE", estale, ESTALE},
    {"short-read", short_read, 0},
    {"short-write", short_write, 0},
    {"kill", kill, 0},
    {"term", term, 0},
    {"stop", stop, 0},
    {"clock-forward", clock_forward, 0},
    {"clock-back", clock_back, 0},
};

/// What a call's first operands are; decides which of its errors are possible this time.
enum class Kind {
  plain,    ///< as its row says
  path,     ///< a path, in argument `operand`
  open,     ///< a path; the flags are the next argument
  reading,  ///< a descriptor, a buffer and its size
  writing,
  vectors,  ///< a descriptor, blocks and their number: read
  vectors_out,
  receiving,  ///< a socket
  sending,
  descriptor,  ///< of any kind
  closing,
  clone,
  heap,     ///< brk(2): the kernel reports a failure by the break as it was, which is what it says when asked with 0
  control,  ///< fcntl(2)
  locking,  ///< flock(2)
  copying,  ///< copy_file_range(2): the size is argument 4
  feeding,  ///< sendfile(2): the size is argument 3
  request,  ///< ioctl(2): its errors are in requests()
  futex,    ///< futex(2): what waits; to wake cannot fail
  clock,    ///< argument `operand` points to the seconds
};

struct Row {
  const char* name;
  Kind kind;
  unsigned operand;  ///< which argument is the path or the descriptor
  Faults faults;
};

#define SITULA_CALL(call, ...) \
  {                            \
    SYS_##call, Row {          \
#call, __VA_ARGS__       \
    }                          \
  }

const Faults kDescriptors = {emfile, enfile, enomem};
const Faults kOpening = {emfile, enfile, enomem, enospc, edquot, estale};
const Faults kLooking = {enomem, estale};
const Faults kNaming = {enospc, edquot, enomem, estale};
const Faults kLinking = {enospc, edquot, eio, enomem, estale};
const Faults kReading = {eio, eintr, eagain, estale, short_read};
const Faults kWriting = {enospc, edquot, eio, eintr, eagain, estale, short_write};
const Faults kMemory = {enomem};
const Faults kWaiting = {eintr};
const Faults kClock = {clock_forward, clock_back};

/// Sections 2 of the manual; ESTALE by errno(3), for whatever may lie on NFS.
const std::unordered_map<uint64_t, Row>& table() {
  static const std::unordered_map<uint64_t, Row> rows = {
      SITULA_CALL(open, Kind::open, 0, kOpening),
      SITULA_CALL(openat, Kind::open, 1, kOpening),
      {437, Row{"openat2", Kind::open, 1, kOpening}},
      SITULA_CALL(stat, Kind::path, 0, kLooking),
      SITULA_CALL(lstat, Kind::path, 0, kLooking),
      SITULA_CALL(newfstatat, Kind::path, 1, kLooking),
      SITULA_CALL(statx, Kind::path, 1, kLooking),
      SITULA_CALL(fstat, Kind::descriptor, 0, kLooking),
      SITULA_CALL(access, Kind::path, 0, {eio, enomem, estale}),
      SITULA_CALL(faccessat, Kind::path, 1, {eio, enomem, estale}),
      {439, Row{"faccessat2", Kind::path, 1, {eio, enomem, estale}}},
      SITULA_CALL(readlink, Kind::path, 0, {eio, enomem, estale}),
      SITULA_CALL(readlinkat, Kind::path, 1, {eio, enomem, estale}),
      SITULA_CALL(getdents64, Kind::descriptor, 0, {estale}),
      SITULA_CALL(statfs, Kind::path, 0, {eintr, eio, enomem, estale}),
      SITULA_CALL(fstatfs, Kind::descriptor, 0, {eintr, eio, enomem, estale}),
      SITULA_CALL(ftruncate, Kind::descriptor, 0, {eintr, eio, estale}),
      SITULA_CALL(fallocate, Kind::descriptor, 0, {eintr, eio, enospc, edquot}),
      SITULA_CALL(chmod, Kind::path, 0, {eio, enomem, estale}),
      SITULA_CALL(fchmod, Kind::descriptor, 0, {eio, enomem, estale}),
      SITULA_CALL(fchmodat, Kind::path, 1, {eio, enomem, estale}),
      SITULA_CALL(chown, Kind::path, 0, {eio, enomem, estale}),
      SITULA_CALL(lchown, Kind::path, 0, {eio, enomem, estale}),
      SITULA_CALL(fchown, Kind::descriptor, 0, {eio, enomem, estale}),
      SITULA_CALL(fchownat, Kind::path, 1, {eio, enomem, estale}),
      SITULA_CALL(mkdir, Kind::path, 0, kNaming),
      SITULA_CALL(mkdirat, Kind::path, 1, kNaming),
      SITULA_CALL(mknod, Kind::path, 0, kNaming),
      SITULA_CALL(mknodat, Kind::path, 1, kNaming),
      SITULA_CALL(unlink, Kind::path, 0, {eio, enomem, estale}),
      SITULA_CALL(unlinkat, Kind::path, 1, {eio, enomem, estale}),
      SITULA_CALL(rmdir, Kind::path, 0, {enomem, estale}),
      SITULA_CALL(rename, Kind::path, 0, kNaming),
      SITULA_CALL(renameat, Kind::path, 1, kNaming),
      SITULA_CALL(renameat2, Kind::path, 1, kNaming),
      SITULA_CALL(link, Kind::path, 0, kLinking),
      SITULA_CALL(linkat, Kind::path, 1, kLinking),
      SITULA_CALL(symlink, Kind::path, 1, kLinking),
      SITULA_CALL(symlinkat, Kind::path, 2, kLinking),
      SITULA_CALL(setxattr, Kind::path, 0, {enospc, edquot}),
      SITULA_CALL(lsetxattr, Kind::path, 0, {enospc, edquot}),
      SITULA_CALL(fsetxattr, Kind::descriptor, 0, {enospc, edquot}),
      SITULA_CALL(chdir, Kind::path, 0, {eio, enomem, estale}),
      SITULA_CALL(getcwd, Kind::plain, 0, kMemory),
      SITULA_CALL(read, Kind::reading, 0, kReading),
      SITULA_CALL(pread64, Kind::reading, 0, kReading),
      SITULA_CALL(readv, Kind::vectors, 0, kReading),
      SITULA_CALL(preadv, Kind::vectors, 0, kReading),
      SITULA_CALL(write, Kind::writing, 0, kWriting),
      SITULA_CALL(pwrite64, Kind::writing, 0, kWriting),
      SITULA_CALL(writev, Kind::vectors_out, 0, kWriting),
      SITULA_CALL(pwritev, Kind::vectors_out, 0, kWriting),
      SITULA_CALL(copy_file_range, Kind::copying, 0, {eio, enomem, enospc, edquot, short_write}),
      SITULA_CALL(sendfile, Kind::feeding, 0, {eio, enomem, short_write}),
      SITULA_CALL(fsync, Kind::descriptor, 0, {eintr, eio, enospc, edquot}),
      SITULA_CALL(fdatasync, Kind::descriptor, 0, {eintr, eio, enospc, edquot}),
      SITULA_CALL(syncfs, Kind::descriptor, 0, {eio, enospc, edquot}),
      SITULA_CALL(close, Kind::closing, 0, {eio, enospc, edquot}),
      SITULA_CALL(fcntl, Kind::control, 0, {emfile, eintr}),
      SITULA_CALL(flock, Kind::locking, 0, kWaiting),
      // All that requests() has.
      SITULA_CALL(ioctl, Kind::request, 0, {eio, emfile, enfile, enomem, enospc, edquot, estale}),
      SITULA_CALL(futex, Kind::futex, 0, {eintr, eagain}),
      SITULA_CALL(dup, Kind::plain, 0, {emfile, enomem}),
      SITULA_CALL(pipe2, Kind::plain, 0, {emfile, enfile}),
      SITULA_CALL(pipe, Kind::plain, 0, {emfile, enfile}),
      SITULA_CALL(socket, Kind::plain, 0, kDescriptors),
      SITULA_CALL(socketpair, Kind::plain, 0, {emfile, enfile}),
      SITULA_CALL(accept, Kind::receiving, 0, {emfile, enfile, enomem, eintr, eagain}),
      SITULA_CALL(accept4, Kind::receiving, 0, {emfile, enfile, enomem, eintr, eagain}),
      SITULA_CALL(connect, Kind::sending, 0, {eintr, eagain}),
      SITULA_CALL(bind, Kind::plain, 0, kMemory),
      SITULA_CALL(sendto, Kind::sending, 0, {eintr, eagain, enomem, short_write}),
      SITULA_CALL(sendmsg, Kind::sending, 0, {eintr, eagain, enomem}),
      SITULA_CALL(recvfrom, Kind::receiving, 0, {eintr, eagain, enomem, short_read}),
      SITULA_CALL(recvmsg, Kind::receiving, 0, {eintr, eagain, enomem}),
      SITULA_CALL(poll, Kind::plain, 0, {eintr, enomem}),
      SITULA_CALL(ppoll, Kind::plain, 0, {eintr, enomem}),
      SITULA_CALL(select, Kind::plain, 0, {eintr, enomem}),
      SITULA_CALL(pselect6, Kind::plain, 0, {eintr, enomem}),
      SITULA_CALL(epoll_create1, Kind::plain, 0, kDescriptors),
      SITULA_CALL(epoll_ctl, Kind::plain, 0, {enomem, enospc}),
      SITULA_CALL(epoll_wait, Kind::plain, 0, kWaiting),
      SITULA_CALL(epoll_pwait, Kind::plain, 0, kWaiting),
      SITULA_CALL(eventfd2, Kind::plain, 0, kDescriptors),
      SITULA_CALL(signalfd4, Kind::plain, 0, kDescriptors),
      SITULA_CALL(timerfd_create, Kind::plain, 0, kDescriptors),
      SITULA_CALL(inotify_init1, Kind::plain, 0, {emfile, enomem}),
      SITULA_CALL(inotify_add_watch, Kind::path, 1, {enomem, enospc}),
      SITULA_CALL(memfd_create, Kind::plain, 0, kDescriptors),
      {434, Row{"pidfd_open", Kind::plain, 0, kDescriptors}},
      {438, Row{"pidfd_getfd", Kind::plain, 0, {emfile, enfile}}},
      SITULA_CALL(mmap, Kind::plain, 0, kMemory),
      SITULA_CALL(brk, Kind::heap, 0, kMemory),
      SITULA_CALL(mremap, Kind::plain, 0, kMemory),
      SITULA_CALL(mprotect, Kind::plain, 0, kMemory),
      SITULA_CALL(fork, Kind::plain, 0, {eagain, enomem}),
      SITULA_CALL(vfork, Kind::plain, 0, {eagain, enomem}),
      SITULA_CALL(clone, Kind::clone, 0, {eagain, enomem, emfile, enospc}),
      {435, Row{"clone3", Kind::plain, 0, {eagain, enomem}}},
      SITULA_CALL(execve, Kind::path, 0, {eagain, eio, emfile, enfile, enomem}),
      SITULA_CALL(execveat, Kind::plain, 0, {eagain, eio, emfile, enfile, enomem}),
      SITULA_CALL(wait4, Kind::plain, 0, kWaiting),
      SITULA_CALL(waitid, Kind::plain, 0, kWaiting),
      SITULA_CALL(nanosleep, Kind::plain, 0, kWaiting),
      SITULA_CALL(clock_nanosleep, Kind::plain, 0, kWaiting),
      SITULA_CALL(unshare, Kind::plain, 0, {enomem, enospc}),
      SITULA_CALL(setns, Kind::plain, 0, kMemory),
      SITULA_CALL(mount, Kind::path, 1, kMemory),
      SITULA_CALL(umount2, Kind::path, 0, kMemory),
      {428, Row{"open_tree", Kind::path, 1, kDescriptors}},
      {430, Row{"fsopen", Kind::plain, 0, kDescriptors}},
      {431, Row{"fsconfig", Kind::plain, 0, {enomem, eio}}},
      {432, Row{"fsmount", Kind::plain, 0, kDescriptors}},
      {442, Row{"mount_setattr", Kind::plain, 0, kMemory}},
      SITULA_CALL(setuid, Kind::plain, 0, {eagain}),
      SITULA_CALL(setreuid, Kind::plain, 0, {eagain}),
      SITULA_CALL(setresuid, Kind::plain, 0, {eagain}),
      SITULA_CALL(setgroups, Kind::plain, 0, kMemory),
      SITULA_CALL(seccomp, Kind::plain, 0, kMemory),
      {444, Row{"landlock_create_ruleset", Kind::plain, 0, kMemory}},
      SITULA_CALL(clock_gettime, Kind::clock, 1, kClock),
      SITULA_CALL(gettimeofday, Kind::clock, 0, kClock),
      SITULA_CALL(time, Kind::clock, 0, kClock),
  };
  return rows;
}
#undef SITULA_CALL

/// ioctl_loop(4), ioctl_ficlone(2), ioctl_nsfs(2), netdevice(7); drivers/md/dm-ioctl.c. Those of a terminal fail once
/// it has hung up; the loop device asks the file system of its file, which may be NFS.
const std::unordered_map<uint64_t, Faults>& requests() {
  static const std::unordered_map<uint64_t, Faults> rows = {
      {LOOP_CTL_GET_FREE, {enomem, enospc}},
      {kernel::kLoopConfigure, {eio, enomem, estale}},
      {LOOP_SET_FD, {eio, enomem, estale}},
      {LOOP_SET_STATUS64, {eio, enomem}},
      {LOOP_GET_STATUS64, {eio, estale}},
      {FICLONE, {eio, enospc, edquot, enomem, estale}},
      {NS_GET_USERNS, kDescriptors},
      {NS_GET_PARENT, kDescriptors},
      {SIOCSIFFLAGS, kMemory},
      {DM_LIST_DEVICES, kMemory},
      {DM_LIST_VERSIONS, kMemory},
      {DM_DEV_CREATE, {enomem, enospc}},
      {DM_DEV_REMOVE, kMemory},
      {DM_DEV_SUSPEND, {eio, enomem}},
      {DM_DEV_STATUS, kMemory},
      {DM_TABLE_LOAD, {eio, enomem}},
      {TIOCGWINSZ, {eio}},
      {TCGETS, {eio}},
  };
  return rows;
}

bool contains(const Faults& faults, Fault fault) {
  return std::find(faults.begin(), faults.end(), fault) != faults.end();
}

bool of_the_kernel(const std::string& path) {
  for (const char* folder : {"/proc", "/sys", "/dev"})
    if (path.rfind(folder, 0) == 0) return true;
  return false;
}

std::optional<Failure> when(bool possible) {
  return possible ? std::optional(Failure{}) : std::nullopt;
}

/// Half of it, where there is more than one.
std::optional<Failure> less(const Call& call, unsigned argument, bool possible = true) {
  const uint64_t size = call.arguments[argument];
  if (!possible || size < 2) return std::nullopt;
  return Failure{Failure::Way::less, argument, size / 2};
}

int descriptor_in(const Call& call, unsigned argument) {
  return static_cast<int>(call.arguments[argument]);
}

std::optional<Failure> failure_at_path(const Call& call, const Row& row, Fault fault) {
  const std::string path = text_of(call.process, call.arguments[row.operand]);
  if (fault == estale) return when(!of_the_kernel(path));
  if (row.kind == Kind::open && (fault == enospc || fault == edquot)) {
    const uint64_t next = call.arguments[row.operand + 1];
    // openat2(2) has a structure there, which begins with the flags.
    const uint64_t flags = call.number == 437 ? word_of(call.process, next) : next;
    return when((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE);
  }
  return when(true);
}

std::optional<Failure> failure_of_transfer(const Call& call, Fault fault, bool vectors) {
  const Descriptor file = descriptor_of(call.process, descriptor_in(call, 0));
  if (fault == eintr) return when(file.waits);
  if (fault == eagain) return when(file.waits && file.nonblocking);
  if (fault == short_read || fault == short_write) {
    const bool possible = file.regular || file.stream;
    // Of blocks only the first one: their sizes are the process's.
    if (vectors && possible && call.arguments[2] > 1) return Failure{Failure::Way::less, 2, 1};
    return vectors ? std::nullopt : less(call, 2, possible);
  }
  return when(file.regular);
}

std::optional<Failure> failure_of_socket(const Call& call, Fault fault) {
  constexpr unsigned kFlagsOfBuffer = 3, kFlagsOfMessage = 2;
  const Descriptor file = descriptor_of(call.process, descriptor_in(call, 0));
  if (fault == short_read || fault == short_write) return less(call, 2, file.stream);
  if (fault != eagain) return when(true);
  uint64_t flags = 0;
  if (call.number == SYS_sendmsg || call.number == SYS_recvmsg) flags = call.arguments[kFlagsOfMessage];
  if (call.number == SYS_sendto || call.number == SYS_recvfrom) flags = call.arguments[kFlagsOfBuffer];
  return when(file.nonblocking || (flags & MSG_DONTWAIT) != 0);
}

std::optional<Failure> failure_of_control(const Call& call, Fault fault) {
  const uint64_t command = call.arguments[1];
  if (fault == emfile) return when(command == F_DUPFD || command == F_DUPFD_CLOEXEC);
  return when(command == F_SETLKW || command == F_OFD_SETLKW);
}

std::optional<Failure> failure_of_request(const Call& call, Fault fault) {
  const auto found = requests().find(static_cast<uint32_t>(call.arguments[1]));
  return when(found != requests().end() && contains(found->second, fault));
}

/// EAGAIN: the word has changed meanwhile; whoever waits looks at it again.
std::optional<Failure> failure_of_futex(const Call& call) {
  const auto operation = static_cast<int>(call.arguments[1] & static_cast<uint64_t>(FUTEX_CMD_MASK));
  return when(operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET);
}

std::optional<Failure> failure_of_row(const Call& call, const Row& row, Fault fault) {
  constexpr uint64_t kNamespaces =
      CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
  constexpr uint64_t kPidfd = 0x1000;
  const auto regular = [&call] { return descriptor_of(call.process, descriptor_in(call, 0)).regular; };
  switch (row.kind) {
    case Kind::plain:
      return when(true);
    case Kind::path:
    case Kind::open:
      return failure_at_path(call, row, fault);
    case Kind::reading:
    case Kind::writing:
      return failure_of_transfer(call, fault, false);
    case Kind::vectors:
    case Kind::vectors_out:
      return failure_of_transfer(call, fault, true);
    case Kind::receiving:
    case Kind::sending:
      return failure_of_socket(call, fault);
    case Kind::descriptor:
      return when(fault == enomem || !descriptor_of(call.process, descriptor_in(call, 0)).in_kernel);
    case Kind::closing:
      return regular() ? std::optional(Failure{Failure::Way::after, 0, 0}) : std::nullopt;
    case Kind::clone:
      if (fault == emfile) return when((call.arguments[0] & kPidfd) != 0);
      if (fault == enospc) return when((call.arguments[0] & kNamespaces) != 0);
      return when(true);
    case Kind::heap:
      return call.arguments[0] != 0 ? std::optional(Failure{Failure::Way::less, 0, 0}) : std::nullopt;
    case Kind::control:
      return failure_of_control(call, fault);
    case Kind::locking:
      return when((call.arguments[1] & LOCK_NB) == 0);
    case Kind::request:
      return failure_of_request(call, fault);
    case Kind::futex:
      return failure_of_futex(call);
    case Kind::copying:
      return fault == short_write ? less(call, 4) : when(true);
    case Kind::feeding:
      return fault == short_write ? less(call, 3) : when(true);
    case Kind::clock: {
      const bool other = call.number == SYS_clock_gettime && call.arguments[0] != CLOCK_REALTIME &&
                         call.arguments[0] != CLOCK_REALTIME_COARSE;
      return other ? std::nullopt : std::optional(Failure{Failure::Way::clock, row.operand, 0});
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Fault> fault_of(const std::string& name) {
  for (const FaultName& known : kNames)
    if (name == known.name) return known.fault;
  return std::nullopt;
}

int error_number(Fault fault) {
  for (const FaultName& known : kNames)
    if (fault == known.fault) return known.number;
  return 0;
}

int64_t clock_step(Fault fault) {
  constexpr int64_t kDay = 86400;
  return fault == clock_forward ? kDay : fault == clock_back ? -kDay : 0;
}

std::optional<Failure> failure_of(const Call& call, Fault fault) {
  // The process is hit, whatever it does.
  if (fault == kill || fault == term || fault == stop) return Failure{};
  const auto found = table().find(call.number);
  if (found == table().end() || !contains(found->second.faults, fault)) return std::nullopt;
  return failure_of_row(call, found->second, fault);
}

std::string name_of(uint64_t number) {
  const auto found = table().find(number);
  return found == table().end() ? "call " + std::to_string(number) : found->second.name;
}

std::string operand_of(const Call& call) {
  const auto found = table().find(call.number);
  if (found == table().end() || found->second.kind == Kind::plain || found->second.kind == Kind::clone ||
      found->second.kind == Kind::clock || found->second.kind == Kind::futex)
    return {};
  const Row& row = found->second;
  if (row.kind == Kind::path || row.kind == Kind::open) {
    const std::string path = text_of(call.process, call.arguments[row.operand]);
    if (!path.empty()) return path;
    return descriptor_of(call.process, descriptor_in(call, 0)).target;
  }
  return descriptor_of(call.process, descriptor_in(call, row.operand)).target;
}

}  // namespace situla::faults
