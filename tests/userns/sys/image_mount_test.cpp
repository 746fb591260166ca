// Needs /dev/fuse and mksquashfs.
#include "hooks/mount/image_mount.hpp"

#include <cstdlib>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/base/scope_exit.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "hooks/mount/overlay.hpp"
#include "tests/support/as_user.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

constexpr int64_t kFuse = 0x65735546;

int shell(const std::string& command) {
  return std::system(command.c_str());
}

/// A small tree as an image; owned by root in it unless said otherwise.
std::string make_image(const test::TempDir& dir, const std::string& options = "-all-root") {
  const std::string tree = dir / "tree";
  REQUIRE(shell("mkdir -p " + tree + "/etc/secret && echo hello >" + tree + "/etc/text && echo rest >" + tree +
                "/etc/rest && echo hidden >" + tree + "/etc/secret/key && chmod 600 " + tree +
                "/etc/secret/key && chmod 700 " + tree + "/etc/secret") == 0);
  const std::string image = dir / "image.sqsh";
  REQUIRE(shell("mksquashfs " + tree + " " + image + " -quiet -no-progress " + options + " >/dev/null") == 0);
  return image;
}

std::string why_no_fuse() {
  return test::in_user_namespace([]() -> Result<void> { return fuse_available(); });
}

Result<void> expect_owned(const std::string& path, uid_t uid, gid_t gid) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return fail_errno(errno, "stat " + path);
  EXPECT(status.st_uid == uid);
  EXPECT(status.st_gid == gid);
  return {};
}

/// Serves the image, looks at owners and content, and at what is left when the server dies.
Result<void> serve_and_look(const std::string& image_path, const std::string& mountpoint) {
  test::MemoryLog log;
  TRY_ASSIGN(const UniqueFd image, open_file(image_path, O_RDONLY));
  TRY_ASSIGN(const ImageServer server, serve_image(image.get(), mountpoint, geteuid(), getegid(), log));
  EXPECT(log.messages.size() == 1 && log.messages[0].text == "image served by process " + std::to_string(server.pid));
  TRY(expect_owned(mountpoint + "/etc/text", geteuid(), getegid()));
  TRY_ASSIGN(const std::string text, read_file(mountpoint + "/etc/secret/key"));
  EXPECT(text == "hidden\n");
  EXPECT(open((mountpoint + "/etc/text").c_str(), O_WRONLY) < 0 && errno == EROFS);
  // What is sent to a step or a terminal's group does not end it.
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) TRY(signal_pidfd(server.pidfd.get(), number));
  TRY(read_file(mountpoint + "/etc/text"));
  TRY(signal_pidfd(server.pidfd.get(), SIGKILL));
  pollfd end{server.pidfd.get(), POLLIN, 0};
  EXPECT(poll(&end, 1, 5000) == 1);
  EXPECT(!read_file(mountpoint + "/etc/rest"));  // not read before; an error, not a hang
  return unmount(mountpoint, false);
}

struct ApiGuard {
  explicit ApiGuard(MountApi api) { set_mount_api(api); }
  ~ApiGuard() { set_mount_api(MountApi::automatic); }
};

}  // namespace

TEST_CASE("An image is served by descriptor and belongs to the user, in both mount modes") {
  if (const auto why = why_no_fuse(); !why.empty()) SITULA_SKIP(why);
  const test::TempDir dir;
  const std::string image = make_image(dir);
  REQUIRE(mkdir((dir / "m").c_str(), 0755) == 0);
  REQUIRE(chmod(dir.path().c_str(), 0755) == 0);
  test::give_to_user(dir / "m");
  for (const MountApi api : {MountApi::modern, MountApi::classic})
    for (const bool as_root : {false, true}) {
      CAPTURE(api == MountApi::classic, as_root);
      const ApiGuard guard(api);
      CHECK(test::in_user_namespace([&] { return serve_and_look(image, dir / "m"); }, as_root) == "");
    }
}

TEST_CASE("Images with one foreign owner or with several are the user's too") {
  if (const auto why = why_no_fuse(); !why.empty()) SITULA_SKIP(why);
  const test::TempDir dir;
  REQUIRE(mkdir((dir / "m").c_str(), 0755) == 0);
  REQUIRE(chmod(dir.path().c_str(), 0755) == 0);
  test::give_to_user(dir / "m");
  SECTION("one") {
    const std::string image = make_image(dir, "-force-uid 1234 -force-gid 1234");
    CHECK(test::in_user_namespace([&] { return serve_and_look(image, dir / "m"); }) == "");
  }
  SECTION("several") {
    const std::string image = make_image(dir, "-force-uid 1234 -force-gid 0");
    CHECK(test::in_user_namespace([&] { return serve_and_look(image, dir / "m"); }) == "");
  }
}

// Hidden: it needs root to hand over a descriptor, so the root suite runs it (tests/root/CMakeLists.txt).
TEST_CASE("The image may lie where the user cannot go", "[.][root]") {
  REQUIRE(geteuid() == 0);
  if (const auto why = why_no_fuse(); !why.empty()) SITULA_SKIP(why);
  const test::TempDir dir;  // mode 0700, root's
  const test::TempDir place;
  const std::string image_path = make_image(dir);
  REQUIRE(chmod(image_path.c_str(), 0444) == 0);
  REQUIRE(chmod(place.path().c_str(), 0755) == 0);
  const UniqueFd image(open(image_path.c_str(), O_RDONLY | O_CLOEXEC));
  const std::string answer = test::in_user_namespace([&]() -> Result<void> {
    EXPECT(!open_file(image_path, O_RDONLY));
    NullLog log;
    TRY_ASSIGN(const ImageServer server, serve_image(image.get(), place.path(), geteuid(), getegid(), log));
    TRY_ASSIGN(const std::string text, read_file(place / "etc/text"));
    EXPECT(text == "hello\n");
    return {};
  });
  CHECK(answer == "");
}

TEST_CASE("What cannot be served says why and leaves no mount") {
  if (const auto why = why_no_fuse(); !why.empty()) SITULA_SKIP(why);
  const test::TempDir dir;
  REQUIRE(chmod(dir.path().c_str(), 0755) == 0);
  const std::string garbage = dir.write("garbage", std::string(100000, 'x'));
  const std::string image = make_image(dir);
  REQUIRE(shell("head -c 300 " + image + " >" + (dir / "short")) == 0);
  REQUIRE(mkdir((dir / "m").c_str(), 0755) == 0);
  const auto attempt = [&](const std::string& path) {
    return test::in_user_namespace([&]() -> Result<void> {
      NullLog log;
      TRY_ASSIGN(const UniqueFd fd, open_file(path, O_RDONLY));
      const auto served = serve_image(fd.get(), dir / "m", geteuid(), getegid(), log);
      TRY_ASSIGN(const UniqueFd mountpoint, open_file(dir / "m", O_PATH));
      TRY_ASSIGN(const int64_t type, filesystem_type(mountpoint.get()));
      EXPECT(type != kFuse);
      if (!served) return fail(served.error());
      return {};
    });
  };
  CHECK(attempt(garbage) == "read superblock: not a squashfs file [image-file]");
  CHECK(attempt(dir / "short").find("truncated") != std::string::npos);
}

TEST_CASE("The server ends with its mount, when the last process of the namespace has ended") {
  if (const auto why = why_no_fuse(); !why.empty()) SITULA_SKIP(why);
  const test::TempDir dir;
  const std::string image_path = make_image(dir);
  REQUIRE(chmod(dir.path().c_str(), 0755) == 0);
  REQUIRE(mkdir((dir / "m").c_str(), 0755) == 0);
  const std::string pid_path = dir.write("pid", "");
  REQUIRE(chmod(pid_path.c_str(), 0666) == 0);
  const std::string answer = test::in_user_namespace([&]() -> Result<void> {
    NullLog log;
    TRY_ASSIGN(const UniqueFd image, open_file(image_path, O_RDONLY));
    TRY_ASSIGN(const ImageServer server, serve_image(image.get(), dir / "m", geteuid(), getegid(), log));
    TRY_ASSIGN(const UniqueFd out, open_file(pid_path, O_WRONLY));
    return write_all(out.get(), std::to_string(server.pid));
  });
  CHECK(answer == "");
  const int pid = std::stoi(test::slurp(pid_path));
  // Its entry may stay as long as the machine's first process does not look.
  const std::string status = "/proc/" + std::to_string(pid) + "/status";
  const auto ended = [&] {
    const auto text = read_file(status);
    return !text || text->find("State:\tZ") != std::string::npos;
  };
  for (int i = 0; i < 1200 && !ended(); ++i) usleep(50000);
  CHECK(ended());
}

TEST_CASE("An overlay over a served image can be changed as a container changes it") {
  if (const auto why = why_no_fuse(); !why.empty()) SITULA_SKIP(why);
  const test::TempDir dir;
  const std::string image_path = make_image(dir);
  REQUIRE(chmod(dir.path().c_str(), 0755) == 0);
  REQUIRE(mkdir((dir / "m").c_str(), 0755) == 0);
  for (const bool as_root : {false, true}) {
    const std::string answer = test::in_user_namespace(
        [&]() -> Result<void> {
          test::MemoryLog log;
          const std::string base = dir / "m";
          TRY_ASSIGN(const UniqueFd place, open_file(base, O_PATH | O_DIRECTORY));
          TRY(mount_new_at(place.get(), "tmpfs", "tmpfs", {{"mode", "0755"}}, {}, base));
          for (const char* name : {"/lower", "/upper", "/work", "/root"}) TRY(make_directories(base + name, 0755));
          TRY_ASSIGN(const UniqueFd image, open_file(image_path, O_RDONLY));
          TRY_ASSIGN(const ImageServer server, serve_image(image.get(), base + "/lower", geteuid(), getegid(), log));
          TRY_ASSIGN(const UniqueFd target, open_file(base + "/root", O_PATH | O_DIRECTORY));
          TRY(mount_overlay({{base + "/lower"}, base + "/upper", base + "/work", true}, target.get(), {}, log));
          const std::string root = base + "/root";
          TRY(write_file_atomically(root + "/etc/text", "changed", 0644));
          TRY_ASSIGN(const UniqueFd key, open_file(root + "/etc/secret/key", O_WRONLY | O_APPEND));
          TRY(write_all(key.get(), "more\n"));
          TRY_ASSIGN(const std::string text, read_file(root + "/etc/secret/key"));
          EXPECT(text == "hidden\nmore\n");
          TRY(remove_tree(root + "/etc/secret"));
          EXPECT(mkdir((root + "/etc/secret").c_str(), 0700) == 0);
          EXPECT(access((root + "/etc/secret/key").c_str(), F_OK) != 0);
          return expect_owned(root + "/etc", geteuid(), getegid());
        },
        as_root);
    CAPTURE(as_root);
    CHECK(answer == "");
  }
}
