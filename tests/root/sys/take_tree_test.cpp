// Does root remove a directory whose user goes on making files in it?
#include "common/sys/mount/take_tree.hpp"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;
using namespace std::chrono_literals;

namespace {

constexpr uid_t kUser = 60123, kNeighbour = 60124;

bool is_user(uid_t id) {
  return id == kUser;
}

/// As the user, in directories that it has open, until it is killed.
[[noreturn]] void refill(const std::string& path) {
  if (setgid(kUser) != 0 || setuid(kUser) != 0 || chdir(path.c_str()) != 0 || mkdir("sub", 0777) != 0) _exit(1);
  const int below = open("sub", O_RDONLY | O_DIRECTORY);
  for (unsigned number = 0;; ++number) {
    const std::string name = std::to_string(number);
    for (const int directory : {AT_FDCWD, below}) {
      const int file = openat(directory, name.c_str(), O_WRONLY | O_CREAT, 0600);
      if (file >= 0) close(file);
      (void)mkdirat(directory, ("d" + name).c_str(), 0700);
    }
  }
}

}  // namespace

TEST_CASE("A directory in which its user goes on making files is removed, and nobody's beside it") {
  if (geteuid() != 0) SITULA_SKIP("it takes root to take a directory from its user");
  const test::TempDir dir;
  REQUIRE(chmod(dir.path().c_str(), 0755) == 0);
  const UniqueFd parent(open(dir.path().c_str(), O_RDONLY | O_DIRECTORY));
  REQUIRE(mkdir((dir / "his").c_str(), 0700) == 0);
  REQUIRE(chown((dir / "his").c_str(), kUser, kUser) == 0);
  const std::string kept = dir.write("kept", "x");
  REQUIRE(symlink("../kept", (dir / "his/link").c_str()) == 0);
  auto user = fork_child();
  REQUIRE(user);
  if (!*user) refill(dir / "his");
  const std::string sub = dir / "his/sub/d50";
  for (int wait = 0; wait < 500 && access(sub.c_str(), F_OK) != 0; ++wait) usleep(10000);
  REQUIRE(access(sub.c_str(), F_OK) == 0);
  const auto removed = take_and_remove(parent.get(), "his", is_user, std::chrono::steady_clock::now() + 60s);
  CHECK(removed);
  const auto runs = user->wait_for(0ms);
  CHECK((runs && !*runs));
  CHECK(access((dir / "his").c_str(), F_OK) != 0);
  CHECK(test::slurp(kept) == "x");
}

TEST_CASE("Another's directory stays, as does what a file system is mounted on") {
  if (geteuid() != 0) SITULA_SKIP("it takes root to take a directory from its user");
  const test::TempDir dir;
  const UniqueFd parent(open(dir.path().c_str(), O_RDONLY | O_DIRECTORY));
  for (const char* name : {"his", "his/a", "his/others", "his/others/b", "his/z"})
    REQUIRE(mkdir((dir / name).c_str(), 0755) == 0);
  for (const char* name : {"his", "his/a", "his/z"}) REQUIRE(chown((dir / name).c_str(), kUser, kUser) == 0);
  REQUIRE(chown((dir / "his/others").c_str(), kNeighbour, kNeighbour) == 0);
  (void)dir.write("his/a/file", "x");
  const auto end = std::chrono::steady_clock::now() + 60s;
  const auto removed = take_and_remove(parent.get(), "his", is_user, end);
  REQUIRE_FALSE(removed);
  CHECK(removed.error().message() == "remove others: it belongs to uid 60124");
  CHECK(*list_directory(dir / "his") == std::vector<std::string>{"others"});
  CHECK(access((dir / "his/others/b").c_str(), F_OK) == 0);
  struct stat info {};
  REQUIRE(stat((dir / "his").c_str(), &info) == 0);
  CHECK(info.st_uid == 0);
  CHECK((info.st_mode & 07777) == 0700);

  REQUIRE(mkdir((dir / "mounted").c_str(), 0700) == 0);
  REQUIRE(mount("tmpfs", (dir / "mounted").c_str(), "tmpfs", 0, nullptr) == 0);
  const auto covered = take_and_remove(parent.get(), "mounted", is_user, end);
  REQUIRE(umount((dir / "mounted").c_str()) == 0);
  REQUIRE_FALSE(covered);
  CHECK(covered.error().errnum() == EBUSY);
}
