#include "common/sys/private_directory.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "tests/support/as_user.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

/// A directory of the test user's, in which the user may make what a test needs.
struct Home {
  test::TempDir dir;
  Home() {
    REQUIRE(chmod(dir.path().c_str(), 0755) == 0);
    test::give_to_user(dir.path());
  }
  [[nodiscard]] std::string operator/(std::string_view name) const { return dir / name; }
};

mode_t mode_of(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? status.st_mode & 07777U : 0;
}

bool names_same(int fd, const std::string& path) {
  struct stat a {
  }, b{};
  return fstat(fd, &a) == 0 && stat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

TEST_CASE("A private directory is made with those above it, for its user only, and opened again") {
  const Home home;
  CHECK(test::as_user([&]() -> Result<void> {
          (void)umask(0);
          const std::string path = home / "a/b/data";
          EXPECT(PrivateDirectory::open(path, "X").error().kind() == ErrorKind::not_found);
          TRY(PrivateDirectory::open_or_make(path, "X"));
          EXPECT(mode_of(path) == 0700 && mode_of(home / "a/b") == 0700);
          TRY_ASSIGN(const auto again, PrivateDirectory::open(path + "//", "X"));
          EXPECT(names_same(again.fd(), path));
          TRY(write_file_atomically(again.held("file"), "text", 0600));
          EXPECT(*read_file(path + "/file") == "text");
          EXPECT(again.path("file") == path + "/file");
          return {};
        }) == "");
}

TEST_CASE("A directory that others may write to is refused with the line that fixes it") {
  const Home home;
  CHECK(test::as_user([&]() -> Result<void> {
          const std::string path = home / "it's data";
          TRY(make_directories(path, 0700));
          for (const mode_t mode : {0770U, 0702U, 01777U, 02775U}) {
            EXPECT(chmod(path.c_str(), mode) == 0);
            const auto refused = PrivateDirectory::open_or_make(path, "ENROOT_DATA_PATH");
            EXPECT(!refused && refused.error().kind() == ErrorKind::denied);
            EXPECT(refused.error().hint().ends_with("chmod go-w '" + (home / "it'\\''s data") + "'"));
          }
          EXPECT(chmod(path.c_str(), 01777) == 0);
          EXPECT(PrivateDirectory::open(path, "ENROOT_DATA_PATH").error().message() ==
                 "ENROOT_DATA_PATH: " + path + " can be written by other users (mode 1777)");
          EXPECT(chmod(path.c_str(), 0755) == 0);
          return PrivateDirectory::open(path, "ENROOT_DATA_PATH") ? Result<void>() : fail(ErrorKind::failure, "0755");
        }) == "");
}

TEST_CASE("A directory of somebody else is refused, with his name") {
  if (geteuid() != 0) SITULA_SKIP("only root has files of two users");
  const Home home;
  const std::string others = home / "others";
  REQUIRE(mkdir(others.c_str(), 0755) == 0);
  REQUIRE(mkdir((home / "secret").c_str(), 0700) == 0);
  CHECK(test::as_user([&]() -> Result<void> {
          const auto refused = PrivateDirectory::open_or_make(others, "ENROOT_DATA_PATH");
          EXPECT(!refused && refused.error().kind() == ErrorKind::denied);
          EXPECT(refused.error().message() == "ENROOT_DATA_PATH: " + others + " belongs to root (uid 0), not to uid " +
                                                  std::to_string(test::kTestUid));
          EXPECT(refused.error().hint() == "choose another directory: ENROOT_DATA_PATH=PATH");
          EXPECT(refused.error().code() == ErrorCode::enroot_config);
          EXPECT(PrivateDirectory::open_or_make(others + "/new", "ENROOT_DATA_PATH").error().code() ==
                 ErrorCode::enroot_config);
          EXPECT(PrivateDirectory::open(others, "").error().code() == ErrorCode::installation);
          // Also where it cannot be opened at all.
          EXPECT(PrivateDirectory::open(home / "secret", "").error().message().find("belongs to root") !=
                 std::string::npos);
          return {};
        }) == "");
  // Root is no exception: what a user can change would run with root's rights.
  const auto as_root = PrivateDirectory::open(home.dir.path(), "ENROOT_DATA_PATH");
  REQUIRE_FALSE(as_root);
  CHECK(as_root.error().hint() ==
        "choose another directory: ENROOT_DATA_PATH=PATH, or run the command as uid " + std::to_string(test::kTestUid));
}

TEST_CASE("Links of the user and of root are followed, those of others are not") {
  if (geteuid() != 0) SITULA_SKIP("only root has files of two users");
  const Home home;
  REQUIRE(mkdir((home / "real").c_str(), 0700) == 0);
  test::give_to_user(home / "real");
  REQUIRE(symlink((home / "real").c_str(), (home / "roots").c_str()) == 0);
  REQUIRE(symlink("real", (home / "foreign").c_str()) == 0);
  REQUIRE(lchown((home / "foreign").c_str(), 12345, 12345) == 0);
  CHECK(test::as_user([&]() -> Result<void> {
          EXPECT(symlink("real/../roots", (home / "own").c_str()) == 0);
          EXPECT(symlink("loop", (home / "loop").c_str()) == 0);
          EXPECT(symlink("missing", (home / "dangling").c_str()) == 0);
          TRY_ASSIGN(const auto own, PrivateDirectory::open_or_make(home / "own", "X"));
          EXPECT(names_same(own.fd(), home / "real"));
          TRY(PrivateDirectory::open_or_make(home / "dangling", "X"));
          EXPECT(mode_of(home / "missing") == 0700);
          EXPECT(PrivateDirectory::open(home / "loop", "X").error().errnum() == ELOOP);
          const auto foreign = PrivateDirectory::open_or_make(home / "foreign", "X");
          EXPECT(!foreign && foreign.error().message() ==
                                 "X: " + (home / "foreign") + " is a symbolic link that belongs to uid 12345");
          EXPECT(symlink("/usr", (home / "usr").c_str()) == 0);
          EXPECT(PrivateDirectory::open(home / "usr", "X").error().message().find("belongs to root") !=
                 std::string::npos);
          return {};
        }) == "");
}

TEST_CASE("In a user namespace root's links are known by where only root and the user can have made them") {
  if (geteuid() != 0) SITULA_SKIP("only root has files of two users");
  const Home home;
  for (const char* name : {"real", "shared"}) {
    REQUIRE(mkdir((home / name).c_str(), 0700) == 0);
    test::give_to_user(home / name);
  }
  REQUIRE(symlink("real", (home / "roots").c_str()) == 0);
  REQUIRE(symlink("../real", (home / "shared/roots").c_str()) == 0);
  CHECK(test::in_user_namespace([&]() -> Result<void> {
          TRY_ASSIGN(const auto data, PrivateDirectory::open(home / "roots", "X"));
          EXPECT(names_same(data.fd(), home / "real"));
          TRY(PrivateDirectory::open(home / "shared/roots", "X"));
          EXPECT(chmod((home / "shared").c_str(), 0777) == 0);
          EXPECT(PrivateDirectory::open(home / "shared/roots", "X").error().kind() == ErrorKind::denied);
          return {};
        }) == "");
}

TEST_CASE("What has been opened stays the same whatever others do to the path") {
  const Home home;
  CHECK(test::as_user([&]() -> Result<void> {
          TRY_ASSIGN(const auto data, PrivateDirectory::open_or_make(home / "data", "X"));
          EXPECT(rename((home / "data").c_str(), (home / "taken").c_str()) == 0);
          TRY(make_directories(home / "data", 0700));
          TRY(write_file_atomically(data.held("mine"), "", 0600));
          EXPECT(access((home / "taken/mine").c_str(), F_OK) == 0 && access((home / "data/mine").c_str(), F_OK) != 0);
          return {};
        }) == "");
}

TEST_CASE("In a directory that several share everybody has his own") {
  const Home home;
  CHECK(test::as_user([&]() -> Result<void> {
          const std::string shared = home / "shared";
          const std::string own = shared + "/situla-" + std::to_string(geteuid());
          TRY_ASSIGN(const auto alone, PrivateDirectory::own_within(shared, "situla", "X"));
          EXPECT(alone.path() == shared && mode_of(shared) == 0700);
          EXPECT(chmod(shared.c_str(), 01777) == 0);
          TRY_ASSIGN(const auto beside, PrivateDirectory::own_within(shared, "situla", "X"));
          EXPECT(beside.path() == own && mode_of(own) == 0700);
          EXPECT(chmod(own.c_str(), 0777) == 0);
          EXPECT(!PrivateDirectory::own_within(shared, "situla", "X"));
          EXPECT(chmod(own.c_str(), 0700) == 0);
          TRY_ASSIGN(const auto again, PrivateDirectory::own_within(shared, "situla", "X"));
          TRY_ASSIGN(const auto below, again.below("layers"));
          EXPECT(mode_of(again.path("layers")) == 0700 && names_same(below.fd(), again.path("layers")));
          EXPECT(chmod(again.path("layers").c_str(), 0770) == 0);
          EXPECT(!again.below("layers"));
          return {};
        }) == "");
}
