// How does a test do something as an ordinary user, or in namespaces, without becoming unfit for the next test? In a
// child.
#pragma once

#include <functional>
#include <iostream>
#include <optional>
#include <string>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/result.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"

namespace situla::test {

/// Nobody's ids on a normal machine; what a suite run as root becomes.
constexpr uid_t kTestUid = 64901;
constexpr gid_t kTestGid = 64902;

inline uid_t test_uid() {
  return geteuid() == 0 ? kTestUid : geteuid();
}
inline gid_t test_gid() {
  return geteuid() == 0 ? kTestGid : getegid();
}

/// Makes a directory the test user's own.
inline void give_to_user(const std::string& path) {
  if (geteuid() == 0 && chown(path.c_str(), kTestUid, kTestGid) != 0) std::abort();
}

using Body = std::function<Result<void>()>;

/// Runs the body in a forked child; "" when it succeeded, else what went wrong. An error that begins with "SKIP: " is
/// printed as such and counts as success.
inline std::string in_child(const Body& body) {
  auto sockets = socket_pair();
  if (!sockets) return sockets.error().text();
  std::cout.flush();
  auto child = fork_child();
  if (!child) return child.error().text();
  if (!*child) {
    std::string answer = "exception";
    try {
      const auto done = body();
      answer = done ? "ok" : done.error().text();
    } catch (const std::exception& error) {
      answer = error.what();
    }
    (void)send_packet(sockets->second.get(), answer);
    _exit(0);
  }
  sockets->second.reset();
  auto packet = receive_packet(sockets->first.get(), 65536);
  const auto status = child->wait();
  if (!packet || !*packet) return "the child sent no answer: " + (status ? status->text() : status.error().text());
  if ((*packet)->bytes == "ok") return {};
  if ((*packet)->bytes.starts_with("SKIP: ")) {
    std::cout << (*packet)->bytes << std::endl;
    return {};
  }
  return (*packet)->bytes;
}

/// Where no udev runs, /dev/fuse is root's alone. Gives this process's mount namespace one that is everybody's, as on a
/// node.
inline Result<void> open_fuse_to_all() {
  struct stat status {};
  if (stat("/dev/fuse", &status) != 0 || (status.st_mode & 0006) == 0006) return {};
  const std::string node = "/tmp/situla-test-fuse-" + std::to_string(getpid());
  TRY(unshare_namespaces(kMountNs));
  TRY(set_propagation("/", Propagation::private_mount, true));
  const mode_t mask = umask(0);
  const int made = mknod(node.c_str(), S_IFCHR | 0666, status.st_rdev);
  umask(mask);
  if (made != 0) return fail_errno(errno, "create " + node);
  const UniqueFd source(open(node.c_str(), O_PATH | O_CLOEXEC));
  const UniqueFd target(open("/dev/fuse", O_PATH | O_CLOEXEC));
  const auto bound = bind_at(target.get(), source.get(), false, {}, "/dev/fuse");
  (void)unlink(node.c_str());
  return bound;
}

/// The same as an ordinary user (kTestUid when the suite runs as root).
inline std::string as_user(const Body& body) {
  return in_child([&body]() -> Result<void> {
    if (geteuid() == 0) {
      TRY(open_fuse_to_all());
      TRY(become({kTestUid, kTestGid, {}}));
      // A process that changed its uid may not write its own /proc files; exec would reset this, a test does not exec.
      (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    }
    return body();
  });
}

/// The same in a user and mount namespace of its own, where the user keeps its ids (or is root).
inline std::string in_user_namespace(const Body& body, bool as_root = false) {
  return as_user([&]() -> Result<void> {
    const uid_t uid = geteuid();
    const gid_t gid = getegid();
    TRY(unshare_namespaces(kUserNs | kMountNs));
    TRY(write_own_id_maps(as_root ? 0 : uid, uid, as_root ? 0 : gid, gid));
    TRY(set_propagation("/", Propagation::private_mount, true));
    return body();
  });
}

}  // namespace situla::test

/// In a body: a condition that must hold.
#define EXPECT(condition)                                                                                         \
  do {                                                                                                            \
    if (!(condition))                                                                                             \
      return ::situla::fail(::situla::ErrorKind::failure,                                                         \
                            std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": expected " + #condition); \
  } while (false)
