#include "common/sys/mount/namespaces.hpp"

#include <algorithm>

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "common/sys/process/seccomp.hpp"
#include "tests/support/as_user.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

/// Runs the shell script in this process's namespaces and with its filter; its exit code.
Result<int> run_script(const std::string& script) {
  TRY_ASSIGN(Child child, fork_child());
  if (!child) {
    execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
    _exit(127);
  }
  TRY_ASSIGN(const ExitStatus status, child.wait());
  return status.signal != 0 ? -status.signal : status.code;
}

}  // namespace

TEST_CASE("The map of groups: the user's own, then the others, each for itself") {
  CHECK(map_groups(0, 1000).text == "0 1000 1\n");
  CHECK(map_groups(1000, 1000, {1000, 70, 5}).text == "1000 1000 1\n5 5 1\n70 70 1\n");
  CHECK(map_groups(0, 1000, {7, 1000, 8, 9, 1002, 7}).text == "0 1000 1\n7 7 3\n1002 1002 1\n");
  CHECK(map_groups(0, 1000, {0, 1000, 4294967295}).text == "0 1000 1\n");
  CHECK(map_groups(70, 1000, {70, 71, 1000}).text == "70 1000 1\n71 71 1\n");
  CHECK(map_groups(0, 1000, {7, 8}).text == "0 1000 1\n");  // his own is none of them
  std::vector<gid_t> many = {1000};
  for (gid_t group = 1; many.size() < 65536; group += 2) many.push_back(group);
  const GroupMap map = map_groups(1000, 1000, many);
  CHECK(std::count(map.text.begin(), map.text.end(), '\n') <= 340);
  CHECK(map.text.size() < 4096);
  CHECK(map.left_out > 65000);
  CHECK_THAT(map.text, Catch::StartsWith("1000 1000 1\n1 1 1\n3 3 1\n"));
}

TEST_CASE("A user maps itself to itself or to root") {
  CHECK(test::as_user([]() -> Result<void> {
          const uid_t uid = geteuid();
          const gid_t gid = getegid();
          TRY(unshare_namespaces(kUserNs));
          TRY(write_own_id_maps(0, uid, 0, gid));
          EXPECT(geteuid() == 0 && getegid() == 0);
          TRY_ASSIGN(const std::string groups, read_file("/proc/self/setgroups"));
          EXPECT(groups == "deny\n");
          const auto again = write_own_id_maps(0, uid, 0, gid);
          EXPECT(!again && again.error().kind() == ErrorKind::denied);
          return {};
        }) == "");
}

TEST_CASE("A foreign id cannot be mapped by a user, and the error shows the map") {
  CHECK(test::as_user([]() -> Result<void> {
          TRY(unshare_namespaces(kUserNs));
          const auto refused = write_own_id_maps(0, 1, 0, 1);
          EXPECT(!refused);
          EXPECT(refused.error().message() == "write \"0 1 1\" to /proc/<pid>/gid_map: Operation not permitted");
          return {};
        }) == "");
}

TEST_CASE("Maps are written from outside by somebody who may") {
  CHECK(test::as_user([]() -> Result<void> {
          const uid_t uid = geteuid();
          const gid_t gid = getegid();
          TRY_ASSIGN(auto sockets, socket_pair());
          TRY_ASSIGN(Child child, fork_child());
          if (!child) {
            const auto made = unshare_namespaces(kUserNs);
            (void)send_packet(sockets.second.get(), made ? "made" : made.error().text());
            (void)receive_packet(sockets.second.get(), 10);
            _exit(geteuid() == 7 && getegid() == 8 ? 0 : 1);
          }
          TRY_ASSIGN(const auto packet, receive_packet(sockets.first.get(), 1000));
          EXPECT(packet && packet->bytes == "made");
          TRY_ASSIGN(const UniqueFd proc, open_file("/proc/" + std::to_string(child.pid()), O_RDONLY | O_DIRECTORY));
          TRY(write_id_maps(proc.get(), 7, uid, map_groups(8, gid)));
          TRY_ASSIGN(const UniqueFd user, open_namespace(child.pid(), "user"));
          TRY_ASSIGN(const uid_t owner, user_namespace_owner(user.get()));
          EXPECT(owner == uid);
          TRY(send_packet(sockets.first.get(), "go"));
          TRY_ASSIGN(const ExitStatus status, child.wait());
          EXPECT(status.success());
          return {};
        }) == "");
}

TEST_CASE("Namespaces have an identity, an owner, and can be joined by their user") {
  CHECK(test::as_user([]() -> Result<void> {
          TRY_ASSIGN(const UniqueFd before, open_namespace(0, "mnt"));
          TRY_ASSIGN(auto sockets, socket_pair());
          const uid_t uid = geteuid();
          const gid_t gid = getegid();
          TRY_ASSIGN(Child child, fork_child());
          if (!child) {
            auto made = unshare_namespaces(kUserNs | kMountNs | kIpcNs | kUtsNs | kNetNs | kCgroupNs);
            if (made) made = write_own_id_maps(uid, uid, gid, gid);
            auto user = open_namespace(0, "user");
            auto mount = open_namespace(0, "mnt");
            if (made && user && mount) (void)send_packet(sockets.second.get(), "made", {user->get(), mount->get()});
            _exit(0);
          }
          TRY_ASSIGN(const auto packet, receive_packet(sockets.first.get(), 1000));
          TRY(child.wait());
          EXPECT(packet && packet->fds.size() == 2);
          const int user = packet->fds[0].get();
          const int mount = packet->fds[1].get();
          TRY_ASSIGN(const NamespaceId old_id, namespace_id(before.get()));
          TRY_ASSIGN(const NamespaceId new_id, namespace_id(mount));
          EXPECT(!(old_id == new_id));
          TRY_ASSIGN(const UniqueFd owner, owning_user_namespace(mount));
          TRY_ASSIGN(const NamespaceId owner_id, namespace_id(owner.get()));
          TRY_ASSIGN(const NamespaceId user_id, namespace_id(user));
          EXPECT(owner_id == user_id);
          const auto early = join_namespace(mount, "mnt");
          EXPECT(!early && early.error().message() == "join mnt namespace: Operation not permitted");
          TRY(join_namespace(user, "user"));
          TRY(join_namespace(mount, "mnt"));
          TRY_ASSIGN(const UniqueFd now, open_namespace(0, "mnt"));
          TRY_ASSIGN(const NamespaceId now_id, namespace_id(now.get()));
          EXPECT(now_id == new_id);
          return {};
        }) == "");
}

TEST_CASE("What forbids user namespaces is named") {
  // Whoever owns a user namespace may set the limit inside it, so the real cause can be produced without root.
  CHECK(test::in_user_namespace(
            []() -> Result<void> {
              auto limit = open_file("/proc/sys/user/max_user_namespaces", O_WRONLY);
              if (!limit) return fail(ErrorKind::failure, "SKIP: /proc/sys is read-only here");
              TRY(write_all(limit->get(), "0"));
              const auto refused = unshare_namespaces(kUserNs | kMountNs);
              EXPECT(!refused);
              EXPECT(refused.error().message() == "unshare user, mount namespaces: No space left on device");
              EXPECT(refused.error().hint() ==
                     "user namespaces are switched off: sysctl -w user.max_user_namespaces=15000");
              EXPECT(refused.error().code() == ErrorCode::namespaces);
              return {};
            },
            true) == "");
  CHECK(test::as_user([]() -> Result<void> {
          const auto refused = unshare_namespaces(kMountNs);
          EXPECT(!refused);
          EXPECT(refused.error().message() == "unshare mount namespaces: Operation not permitted");
          return {};
        }) == "");
}

TEST_CASE("An identity is taken for good") {
  CHECK(test::as_user([]() -> Result<void> {
          const Identity self{geteuid(), getegid(), {}};
          if (getgroups(0, nullptr) == 0) TRY(become(self));
          EXPECT(!become({0, 0, {}}));
          EXPECT(!become({self.uid, self.gid, {self.gid + 1}}));
          TRY(drop_all_capabilities());
          TRY_ASSIGN(const std::string status, read_file("/proc/self/status"));
          EXPECT(status.find("CapPrm:\t0000000000000000") != std::string::npos);
          EXPECT(status.find("NoNewPrivs:\t1") != std::string::npos);
          return {};
        }) == "");
  CHECK(test::in_user_namespace([]() -> Result<void> {
          TRY(drop_bounding_set());
          TRY_ASSIGN(const std::string status, read_file("/proc/self/status"));
          EXPECT(status.find("CapBnd:\t0000000000000000") != std::string::npos);
          EXPECT(status.find("CapEff:\t0000000000000000") == std::string::npos);
          return {};
        }) == "");
}

TEST_CASE("The id filter makes chown and set*id succeed without effect, and touches nothing else") {
  const test::TempDir dir;
  const std::string file = dir.write("file", "x");
  REQUIRE(chmod(dir.path().c_str(), 0755) == 0);
  test::give_to_user(file);
  const auto body = [&]() -> Result<void> {
    const uid_t uid = geteuid();
    struct stat before {};
    EXPECT(stat(file.c_str(), &before) == 0);
    const UniqueFd fd(open(file.c_str(), O_RDONLY));
    EXPECT(chown(file.c_str(), 12345, 12345) != 0);  // so the successes below show something
    EXPECT(setuid(uid + 1) != 0);
    TRY(install_id_filter());
    EXPECT(chown(file.c_str(), 12345, 12345) == 0 && lchown(file.c_str(), 1, 1) == 0);
    EXPECT(fchown(fd.get(), 12345, 12345) == 0 && fchownat(AT_FDCWD, file.c_str(), 1, 1, 0) == 0);
    EXPECT(chown("/nonexistent", 1, 1) == 0);
    EXPECT(setuid(uid + 1) == 0 && setgid(1) == 0 && setreuid(1, 1) == 0 && setregid(1, 1) == 0);
    EXPECT(setresuid(1, 1, 1) == 0 && setresgid(1, 1, 1) == 0);
    const gid_t group = 1;
    EXPECT(setgroups(1, &group) == 0);
    EXPECT(setfsuid(12345) == 0);  // pretended
    EXPECT(setfsuid(static_cast<uid_t>(-1)) == static_cast<int>(uid));
    EXPECT(setfsgid(static_cast<gid_t>(-1)) == static_cast<int>(getegid()));
    struct stat after {};
    EXPECT(stat(file.c_str(), &after) == 0 && after.st_uid == before.st_uid && after.st_gid == before.st_gid);
    EXPECT(geteuid() == uid && getuid() == uid);
    EXPECT(chmod("/nonexistent", 0600) != 0 && errno == ENOENT);
    EXPECT(open("/nonexistent", O_RDONLY) < 0 && errno == ENOENT);
    // The filter is inherited, and programs of the distribution believe it.
    TRY_ASSIGN(const int code, run_script("chown root:root " + file + " && chgrp daemon " + file));
    EXPECT(code == 0);
    return {};
  };
  CHECK(test::as_user([&]() -> Result<void> {
          TRY(body());
          TRY_ASSIGN(const std::string status, read_file("/proc/self/status"));
          EXPECT(status.find("NoNewPrivs:\t1") != std::string::npos);  // an ordinary process cannot filter without it
          return {};
        }) == "");
  CHECK(test::in_user_namespace([&]() -> Result<void> {
          TRY(body());
          TRY_ASSIGN(const std::string status, read_file("/proc/self/status"));
          EXPECT(status.find("NoNewPrivs:\t0") != std::string::npos);
          return {};
        }) == "");
}

#if defined(__x86_64__)
namespace {

/// A call by the i386 convention, which any 64-bit process can make.
long call_i386(long number, long first, long second) {
  long result = number;
  asm volatile("int $0x80" : "+a"(result) : "b"(first), "c"(second), "d"(0L) : "memory", "r8", "r9", "r10", "r11");
  return static_cast<int>(result);
}

constexpr long kGetuid32 = 199;

/// A kernel without such calls, or one that was booted with ia32_emulation=off, ends who makes them by SIGSEGV.
bool has_i386_calls() {
  const pid_t child = fork();
  if (child == 0) {
    (void)signal(SIGSEGV, SIG_DFL);
    _exit(call_i386(kGetuid32, 0, 0) == static_cast<int>(geteuid()) ? 0 : 1);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

TEST_CASE("The i386 convention is filtered as well") {
  if (!has_i386_calls()) SITULA_SKIP("this kernel has no i386 calls");
  CHECK(test::as_user([]() -> Result<void> {
          const int uid = static_cast<int>(geteuid());
          constexpr long kSetuid32 = 213, kSetgroups16 = 81, kSetfsuid16 = 138, kSetfsuid32 = 215, kSetresgid32 = 210;
          EXPECT(call_i386(kSetuid32, 1, 0) == -EPERM);
          TRY(install_id_filter());
          EXPECT(call_i386(kSetuid32, 1, 0) == 0);
          EXPECT(call_i386(kSetgroups16, 0, 0) == 0);
          EXPECT(call_i386(kSetresgid32, 1, 1) == 0);
          EXPECT(call_i386(kSetfsuid32, 5, 0) == 0);
          EXPECT(call_i386(kSetfsuid32, -1, 0) == uid);
          EXPECT(call_i386(kSetfsuid16, 0xffff, 0) != 0);  // the kernel's answer, a 16-bit id
          EXPECT(call_i386(kSetfsuid16, 5, 0) == 0);
          EXPECT(call_i386(kGetuid32, 0, 0) == uid);
          return {};
        }) == "");
}

TEST_CASE("The x32 convention is filtered as well, also where the kernel has none") {
  CHECK(test::as_user([]() -> Result<void> {
          TRY(install_id_filter());
          EXPECT(syscall(SYS_setuid | 0x40000000L, 1) == 0);
          return {};
        }) == "");
}
#endif
