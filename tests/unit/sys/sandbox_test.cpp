// What can a process in the sandbox still do? Each attempt is made outside, where it works, and inside.
#include "common/sys/process/sandbox.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <functional>
#include <thread>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/base/unique_fd.hpp"
#include "common/sys/process/process.hpp"
#include "tests/support/kernel.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

using Attempt = std::function<bool()>;  ///< true: it worked

/// In a child, after `prepare`. Ends with the answer.
bool in_child(const std::function<bool()>& what) {
  const pid_t child = fork();
  if (child == 0) _exit(what() ? 0 : 1);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  INFO("status " << status);
  CHECK(WIFEXITED(status));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool inside(const Attempt& attempt, uint64_t largest_file = 0) {
  return in_child([&] {
    if (!enter_sandbox({readable_for_network(), largest_file})) _exit(2);
    return attempt();
  });
}

bool closes(int fd) {
  if (fd >= 0) close(fd);
  return fd >= 0;
}

struct Case {
  const char* name;
  Attempt attempt;
  long call = -1;  ///< one that kernels lack which Situla runs on
};

}  // namespace

TEST_CASE("the sandbox refuses what reading foreign bytes does not need") {
  const test::TempDir directory;
  const std::string file = directory.write("file", "x");
  const std::string new_name = directory / "new";
  const pid_t outsider = getpid();
  const UniqueFd written(open((directory / "written").c_str(), O_WRONLY | O_CREAT, 0600));
  const std::vector<Case> cases = {
      {"open for writing", [&] { return closes(open(file.c_str(), O_WRONLY)); }},
      {"open for reading and writing", [&] { return closes(open(file.c_str(), O_RDWR)); }},
      {"create", [&] { return closes(open((new_name + "1").c_str(), O_RDONLY | O_CREAT, 0600)); }},
      {"create without a name", [&] { return closes(open(directory.path().c_str(), O_TMPFILE | O_RDWR, 0600)); }},
      {"open for truncation", [&] { return closes(open(file.c_str(), O_RDONLY | O_TRUNC)); }},
      {"truncate", [&] { return truncate(file.c_str(), 1) == 0; }},
      {"make a directory", [&] { return mkdir((new_name + "2").c_str(), 0700) == 0; }},
      {"link", [&] { return link(file.c_str(), (new_name + "3").c_str()) == 0; }},
      {"symlink", [&] { return symlink("x", (new_name + "4").c_str()) == 0; }},
      {"rename", [&] { return rename(file.c_str(), file.c_str()) == 0; }},
      {"unlink", [&] { return unlink((new_name + "4").c_str()) == 0; }},
      {"make a fifo", [&] { return mkfifo((new_name + "5").c_str(), 0600) == 0; }},
      {"chmod", [&] { return chmod(file.c_str(), 0600) == 0; }},
      {"chown", [&] { return chown(file.c_str(), geteuid(), getegid()) == 0; }},
      {"times", [&] { return utimensat(AT_FDCWD, file.c_str(), nullptr, 0) == 0; }},
      {"fork",
       [] {
         const pid_t child = fork();
         if (child == 0) _exit(0);
         return child > 0;
       }},
      {"vfork by clone",
       [] {
         const long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
         if (child == 0) _exit(0);
         return child > 0;
       }},
      {"execute",
       [] {
         std::array<char*, 1> none{};
         execve("/bin/true", none.data(), none.data());
         return false;
       }},
      {"setsid or a new group", [] { return setpgid(0, 0) == 0; }},
      {"signal another process", [=] { return kill(outsider, 0) == 0; }},
      {"queue a signal",
       [=] {
         const sigval value{};
         return sigqueue(outsider, 0, value) == 0;
       }},
      {"be traced", [] { return ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0; }},
      {"a unix socket", [] { return closes(socket(AF_UNIX, SOCK_STREAM, 0)); }},
      {"listen",
       [] {
         const int fd = socket(AF_INET, SOCK_STREAM, 0);
         return listen(fd, 1) == 0;
       }},
      {"a pidfd", [] { return closes(static_cast<int>(syscall(434, getpid(), 0))); }, kernel::kPidfdOpen},
      {"read memory of a process",
       [] {
         char from = 'x', to = 0;
         const iovec local{&to, 1}, remote{&from, 1};
         return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
       }},
      {"shared memory",
       [] {
         const int made = shmget(IPC_PRIVATE, 4096, 0600);
         if (made >= 0) (void)shmctl(made, IPC_RMID, nullptr);
         return made >= 0;
       }},
      {"a file handle",
       [&] {
         struct {
           file_handle head;
           std::array<char, 128> bytes;
         } handle{};
         handle.head.handle_bytes = 128;
         int mount = 0;
         return name_to_handle_at(AT_FDCWD, "/", &handle.head, &mount, 0) == 0 || errno == EOPNOTSUPP;
       }},
      {"openat2",
       [] {
         const std::array<uint64_t, 3> how{};
         return closes(static_cast<int>(syscall(437, AT_FDCWD, "/etc/passwd", how.data(), sizeof how)));
       },
       kernel::kOpenat2},
      {"another's priority",
       [=] {
         const auto who = static_cast<id_t>(outsider);
         return setpriority(PRIO_PROCESS, who, getpriority(PRIO_PROCESS, who)) == 0;
       }},
      {"signal another process by a descriptor's events",
       [&] { return fcntl(written.get(), F_SETOWN, outsider) == 0; }},
      {"or to a thread of it",
       [&] {
         const f_owner_ex owner{F_OWNER_PID, outsider};
         return fcntl(written.get(), F_SETOWN_EX, &owner) == 0;
       }},
      {"by a signal of its choice", [&] { return fcntl(written.get(), F_SETSIG, SIGKILL) == 0; }},
      {"another's processors",
       [=] {
         cpu_set_t all;
         return sched_getaffinity(outsider, sizeof all, &all) == 0 &&
                sched_setaffinity(outsider, sizeof all, &all) == 0;
       }},
      {"room beyond a file's end",
       [&] { return fallocate(written.get(), FALLOC_FL_KEEP_SIZE, 0, 4096) == 0 || errno == EOPNOTSUPP; }},
      {"become traceable", [] { return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0; }},
      {"another's limits",
       [=] {
         return prlimit(outsider, RLIMIT_CORE, nullptr, nullptr) == 0 && outsider != getpid() &&
                prlimit(outsider, RLIMIT_NOFILE, nullptr, nullptr) == 0;
       }},
  };
  for (const Case& one : cases) {
    INFO(one.name);
    if (one.call >= 0 && !test::kernel_has(one.call)) {
      WARN("not tried, since this kernel lacks it: " << one.name);
      continue;
    }
    // "link" and "rename" inside find what was made outside: only the call may be refused.
    const bool outside = in_child(one.attempt);
    for (const char* digit : {"1", "2", "3", "5"}) (void)remove((new_name + digit).c_str());
    CHECK(outside);
    CHECK_FALSE(inside(one.attempt));
  }
}

TEST_CASE("calls for root, and those that do not exist yet, are refused by number") {
  struct Call {
    const char* name;
    long number;
    int errnum;
  };
  const std::vector<Call> calls = {{"mount", SYS_mount, EPERM},
                                   {"umount", SYS_umount2, EPERM},
                                   {"chroot", SYS_chroot, EPERM},
                                   {"unshare", SYS_unshare, EPERM},
                                   {"setns", SYS_setns, EPERM},
                                   {"bpf", SYS_bpf, EPERM},
                                   {"perf_event_open", SYS_perf_event_open, EPERM},
                                   {"userfaultfd", SYS_userfaultfd, EPERM},
                                   {"keyctl", SYS_keyctl, EPERM},
                                   {"add_key", SYS_add_key, EPERM},
                                   {"setpriority of others", SYS_setpriority, EPERM},
                                   {"setuid", SYS_setuid, EPERM},
                                   {"setgroups", SYS_setgroups, EPERM},
                                   {"open_by_handle_at", SYS_open_by_handle_at, EPERM},
                                   {"seccomp", SYS_seccomp, EPERM},
                                   {"io_uring_setup", 425, ENOSYS},
                                   {"open_tree", 428, ENOSYS},
                                   {"fsopen", 430, ENOSYS},
                                   {"clone3", 435, ENOSYS},
                                   {"pidfd_getfd", 438, ENOSYS},
                                   {"process_madvise", 440, ENOSYS},
                                   {"mount_setattr", 442, ENOSYS},
                                   {"to come", 900, ENOSYS}};
  for (const Call& call : calls) {
    INFO(call.name);
    CHECK(inside([&] { return syscall(call.number, -1, -1, -1, -1, -1, -1) == -1 && errno == call.errnum; }));
  }
}

TEST_CASE("and leaves what it needs") {
  const test::TempDir directory;
  const std::string file = directory.write("file", "x");
  const int given = open(file.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(given >= 0);
  CHECK(inside([&] { return write(given, "more", 4) == 4 && ftruncate(given, 2) == 0 && fsync(given) == 0; }));
  CHECK(inside([] { return closes(open("/etc/passwd", O_RDONLY | O_CLOEXEC)); }));
  CHECK(inside([] {
    bool ran = false;
    std::thread([&] { ran = true; }).join();
    return ran;
  }));
  CHECK(inside([] {
    int nice = 0;
    std::thread([&] { nice = give_way(3) ? getpriority(PRIO_PROCESS, 0) : -1; }).join();
    return nice == std::min(getpriority(PRIO_PROCESS, 0) + 3, 19);  // 19: as nice as can be
  }));
  CHECK(inside([] {
    addrinfo* found = nullptr;
    return getaddrinfo("localhost", "443", nullptr, &found) == 0;
  }));
  CHECK(inside([] { return closes(socket(AF_INET, SOCK_STREAM, 0)) && closes(socket(AF_INET6, SOCK_DGRAM, 0)); }));
  CHECK(inside([] {
    std::array<int, 2> ends{};
    return socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0 && raise(0) == 0 && kill(getpid(), 0) == 0;
  }));
  close(given);
}

TEST_CASE("a file of it stays within its bound, and where there is Landlock it reads what it may only") {
  const test::TempDir directory;
  const std::string file = directory.write("file", "x");
  const int given = open(file.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(given >= 0);
  CHECK(inside([&] { return pwrite(given, "x", 1, 4095) == 1 && pwrite(given, "x", 1, 4096) == -1 && errno == EFBIG; },
               4096));
  close(given);
  CHECK(in_child([&] {
    const auto landlock = enter_sandbox({readable_for_network(), 0});
    if (!landlock) return false;
    return !*landlock || (open(file.c_str(), O_RDONLY) < 0 && errno == EACCES);
  }));
}
