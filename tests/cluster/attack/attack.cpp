// What could a job user try against the image mount, the builder and the broker? Each attempt, one line; a static
// program.
//
// * attack mount DIR: undo the flags of the mount at DIR, in the mount namespace this runs in; exit 0: all refused
// * attack builder SECONDS: catch a situla-builder with ptrace, which has to try the same; exit 0: all refused, 3: none
// * attack device FILE: read one byte of a device node; exit 0: refused
// * attack broker ADDRESS: connect to the abstract address and send garbage; prints what comes back
//
// "gained" on a line means that an attempt had the effect it wanted.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

int g_gained = 0;

// A call that fails is no gain; neither is one that succeeds without the wanted effect.
void attempt(const char* what, long result, bool effect) {
  const int errnum = errno;
  const bool gained = result >= 0 && effect;
  if (gained) ++g_gained;
  std::printf("%s %s: %s\n", gained ? "gained" : "refused", what,
              result < 0 ? std::strerror(errnum)
              : gained   ? "it worked"
                         : "no effect");
  std::fflush(stdout);
}

unsigned long flags_of(const char* path) {
  struct statfs info {};
  return statfs(path, &info) == 0 ? static_cast<unsigned long>(info.f_flags) : ~0UL;
}

constexpr unsigned long kWanted = MS_RDONLY | MS_NOSUID | MS_NODEV;
bool cleared(const char* path) {
  return (flags_of(path) & kWanted) != kWanted;
}

long clear_attributes(int fd, const char* path, uint64_t attributes) {
  struct mount_attr attr {};
  attr.attr_clr = attributes;
  return syscall(SYS_mount_setattr, fd, path, AT_EMPTY_PATH, &attr, sizeof attr);
}

int attack_mount(const char* path) {
  if (cleared(path)) {
    std::printf("gained nothing to clear: %s is not ro,nosuid,nodev (flags %lx)\n", path, flags_of(path));
    return 1;
  }
  attempt("clear ro by mount_setattr", clear_attributes(AT_FDCWD, path, MOUNT_ATTR_RDONLY), cleared(path));
  attempt("clear nosuid by mount_setattr", clear_attributes(AT_FDCWD, path, MOUNT_ATTR_NOSUID), cleared(path));
  attempt("clear nodev by mount_setattr", clear_attributes(AT_FDCWD, path, MOUNT_ATTR_NODEV), cleared(path));
  for (const unsigned long keep : {kWanted & ~MS_RDONLY, kWanted & ~MS_NOSUID, kWanted & ~MS_NODEV})
    attempt("clear by bind remount", mount(nullptr, path, nullptr, MS_REMOUNT | MS_BIND | keep, nullptr),
            cleared(path));
  attempt("remount the file system", mount(nullptr, path, nullptr, MS_REMOUNT, nullptr), cleared(path));

  char copy[] = "/tmp/attackXXXXXX";
  if (mkdtemp(copy) == nullptr) return 2;
  if (const long bound = mount(path, copy, nullptr, MS_BIND, nullptr); bound == 0)
    attempt("bind and clear",
            clear_attributes(AT_FDCWD, copy, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID), cleared(copy));
  else
    attempt("bind", bound, true);
  const long tree = syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE);
  if (tree >= 0) {
    const long result =
        clear_attributes(static_cast<int>(tree), "", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID);
    attempt("clone and clear", result, true);
  } else {
    attempt("clone", tree, true);
  }
  attempt("unmount", umount2(path, MNT_DETACH), true);
  return g_gained == 0 ? 0 : 1;
}

int attack_device(const char* path) {
  char byte = 0;
  const int fd = open(path, O_RDONLY);
  attempt("open a device node", fd, fd >= 0 && read(fd, &byte, 1) == 1);
  return g_gained == 0 ? 0 : 1;
}

// ptrace

std::optional<pid_t> find_builder() {
  DIR* proc = opendir("/proc");
  std::optional<pid_t> found;
  while (const dirent* entry = readdir(proc)) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid <= 0) continue;
    char name[64] = {};
    const std::string path = "/proc/" + std::to_string(pid) + "/cmdline";
    const int fd = open(path.c_str(), O_RDONLY);
    if (fd < 0) continue;
    const ssize_t size = read(fd, name, sizeof name - 1);
    close(fd);
    // argv[1] tells the builder of the container from the writer of the request.
    if (size > 0 && std::strcmp(name, "situla-builder") == 0 && std::strcmp(name + 15, "container") == 0) found = pid;
  }
  closedir(proc);
  return found;
}

/// Makes a stopped process execute one system call, in its own namespaces and with its own rights.
class Puppet {
 public:
  explicit Puppet(pid_t pid) : pid_(pid) { ptrace(PTRACE_GETREGS, pid, nullptr, &saved_); }
  ~Puppet() {
    ptrace(PTRACE_SETREGS, pid_, nullptr, &saved_);
    ptrace(PTRACE_DETACH, pid_, nullptr, pending_);
  }
  bool find_syscall() {
    // A stopped process is nearly always behind a syscall instruction, which is two bytes long.
    errno = 0;
    for (const unsigned long back : {2UL, 0UL}) {
      const long word = ptrace(PTRACE_PEEKTEXT, pid_, saved_.rip - back, nullptr);
      if (errno == 0 && (word & 0xffff) == 0x050f) {
        instruction_ = saved_.rip - back;
        return true;
      }
    }
    return false;
  }
  /// Puts bytes below the stack's red zone; returns their address in the puppet.
  unsigned long put(const void* bytes, size_t size) {
    top_ = ((top_ == 0 ? saved_.rsp - 4096 : top_) - size) & ~15UL;
    for (size_t at = 0; at < size; at += sizeof(long)) {
      long word = 0;
      std::memcpy(&word, static_cast<const char*>(bytes) + at, std::min(sizeof word, size - at));
      ptrace(PTRACE_POKEDATA, pid_, top_ + at, word);
    }
    return top_;
  }
  long call(long number, unsigned long a, unsigned long b, unsigned long c, unsigned long d, unsigned long e) {
    user_regs_struct regs = saved_;
    regs.rip = instruction_;
    regs.rax = static_cast<unsigned long>(number);
    regs.orig_rax = ~0UL;
    regs.rdi = a;
    regs.rsi = b;
    regs.rdx = c;
    regs.r10 = d;
    regs.r8 = e;
    ptrace(PTRACE_SETREGS, pid_, nullptr, &regs);
    // A signal that comes stops it before the instruction: rax is the call's number then, which looks like success.
    while (regs.rip == instruction_) {
      ptrace(PTRACE_SINGLESTEP, pid_, nullptr, nullptr);
      int status = 0;
      waitpid(pid_, &status, __WALL);
      if (!WIFSTOPPED(status)) return -ESRCH;
      if (WSTOPSIG(status) != SIGTRAP) pending_ = WSTOPSIG(status);
      ptrace(PTRACE_GETREGS, pid_, nullptr, &regs);
    }
    return static_cast<long>(regs.rax);
  }

 private:
  pid_t pid_;
  user_regs_struct saved_{};
  unsigned long instruction_ = 0, top_ = 0;
  long pending_ = 0;  ///< a signal that it gets when it goes on
};

void puppet_attempt(const char* what, long result) {
  errno = static_cast<int>(-result);
  attempt(what, result < 0 ? -1 : result, true);
}

int attack_builder(int seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (std::chrono::steady_clock::now() < end) {
    const auto pid = find_builder();
    if (!pid || ptrace(PTRACE_ATTACH, *pid, nullptr, nullptr) != 0) {
      std::this_thread::yield();
      continue;
    }
    int status = 0;
    waitpid(*pid, &status, __WALL);
    Puppet puppet(*pid);
    if (!puppet.find_syscall()) continue;
    char user[64] = {};
    char own[64] = {};
    (void)!readlink(("/proc/" + std::to_string(*pid) + "/ns/user").c_str(), user, sizeof user - 1);
    (void)!readlink("/proc/self/ns/user", own, sizeof own - 1);
    const char image[] = "/run/situla/root/image";
    const unsigned long path = puppet.put(image, sizeof image);
    struct mount_attr attr {};
    attr.attr_clr = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    const unsigned long attributes = puppet.put(&attr, sizeof attr);
    const bool before = std::strcmp(user, own) == 0;
    std::printf("caught the builder %s its user namespace\n", before ? "before" : "in");
    const auto here = static_cast<unsigned long>(AT_FDCWD);
    puppet_attempt("puppet: clear the image's flags",
                   puppet.call(SYS_mount_setattr, here, path, 0, attributes, sizeof attr));
    puppet_attempt("puppet: bind remount", puppet.call(SYS_mount, 0, path, 0, MS_REMOUNT | MS_BIND, 0));
    puppet_attempt("puppet: unmount the image", puppet.call(SYS_umount2, path, MNT_DETACH, 0, 0, 0));
    const long tree = puppet.call(SYS_open_tree, here, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC, 0, 0);
    const unsigned long empty = puppet.put("", 1);
    if (tree < 0)
      puppet_attempt("puppet: clone the image mount", tree);
    else
      puppet_attempt("puppet: clone and clear", puppet.call(SYS_mount_setattr, static_cast<unsigned long>(tree), empty,
                                                            AT_EMPTY_PATH, attributes, sizeof attr));
    puppet_attempt("puppet: become root", puppet.call(SYS_setuid, 0, 0, 0, 0, 0));
    // Through a user namespace of its own: the way in which a plain user gets CAP_SYS_ADMIN over mounts.
    if (before && puppet.call(SYS_unshare, CLONE_NEWUSER | CLONE_NEWNS, 0, 0, 0, 0) == 0) {
      puppet_attempt("puppet: unshare, then clear",
                     puppet.call(SYS_mount_setattr, here, path, 0, attributes, sizeof attr));
      puppet_attempt("puppet: unshare, then unmount", puppet.call(SYS_umount2, path, MNT_DETACH, 0, 0, 0));
    }
    return g_gained == 0 ? 0 : 1;
  }
  std::printf("no builder was caught\n");
  return 3;
}

// The broker

int attack_broker(const char* name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name, std::min(std::strlen(name), sizeof address.sun_path - 1));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + std::strlen(name));
  for (const size_t length : {size_t{1}, size_t{8}, size_t{28}, size_t{4096}, size_t{60000}}) {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), size) != 0) {
      std::printf("refused connect: %s\n", std::strerror(errno));
      return 0;
    }
    std::vector<char> garbage(length, 'A');
    // A well-formed Join with a wrong token: version, index 0, 16 bytes, an empty directory.
    const unsigned char join[] = {1, 0, 0x49, 0x53, 0, 0, 0, 0};
    if (length >= 28) {
      std::memcpy(garbage.data(), join, sizeof join);
      std::memset(garbage.data() + 24, 0, 4);
    }
    (void)!send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL);
    timeval limit{3, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char answer[4096];
    const ssize_t got = recv(fd, answer, sizeof answer, 0);
    attempt("get an answer from the broker", got, got > 0);
    close(fd);
  }
  return g_gained == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc == 3 ? argv[1] : "";
  if (mode == "mount") return attack_mount(argv[2]);
  if (mode == "device") return attack_device(argv[2]);
  if (mode == "builder") return attack_builder(std::atoi(argv[2]));
  if (mode == "broker") return attack_broker(argv[2]);
  std::fprintf(stderr, "usage: attack mount DIR | builder SECONDS | device FILE | broker ADDRESS\n");
  return 2;
}
