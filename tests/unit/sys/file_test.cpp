#include "common/sys/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/mount/take_tree.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/users.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;
using namespace std::chrono_literals;

TEST_CASE("Errors of files name the operation and the path once") {
  CHECK(open_file("/nonexistent/x", O_RDONLY).error().message() == "open /nonexistent/x: No such file or directory");
  CHECK(open_file("/nonexistent/x", O_RDWR | O_CREAT, 0600).error().message() ==
        "create /nonexistent/x: No such file or directory");
  CHECK(read_file("/etc", 10).error().message() == "/etc: read: Is a directory");
  CHECK(identity_of_user("no-such-user").error().kind() == ErrorKind::not_found);
  CHECK(identity_of_user("no-such-user").error().code() == ErrorCode::installation);
}

TEST_CASE("What shall be an image and is none says which of both") {
  CHECK(open_image_file("/nonexistent/x.sqsh").error().code() == ErrorCode::image_not_found);
  CHECK(open_image_file("/etc").error().code() == ErrorCode::image_file);
}

TEST_CASE("A tree is taken and removed, however deep, as far as there is time") {
  const test::TempDir dir;
  const UniqueFd parent(open(dir.path().c_str(), O_RDONLY | O_DIRECTORY));
  const auto anybody = [](uid_t) { return true; };
  const auto now = std::chrono::steady_clock::now();
  std::string path = dir / "top";
  for (int depth = 0; depth < 300; ++depth, path += "/d") REQUIRE(mkdir(path.c_str(), 0700) == 0);
  (void)dir.write("top/d/file", "x");
  REQUIRE(mkdir((dir / "top/d/beside").c_str(), 0700) == 0);
  REQUIRE(symlink("..", (dir / "top/link").c_str()) == 0);
  REQUIRE(chmod((dir / "top/d").c_str(), 0700) == 0);
  CHECK(take_and_remove(parent.get(), "top", anybody, now).error().message() == "it takes too long");
  CHECK(access((dir / "top/d/file").c_str(), F_OK) == 0);
  CHECK(take_and_remove(parent.get(), "top", anybody, now + 60s));
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), std::filesystem::directory_iterator()) == 0);
  CHECK(take_and_remove(parent.get(), "none", anybody, now + 60s).error().kind() == ErrorKind::not_found);
}

TEST_CASE("A file is read whole or not at all") {
  const test::TempDir dir;
  const std::string path = dir.write("a", "12345");
  CHECK(*read_file(path, 5) == "12345");
  const auto more = read_file(path, 4);
  REQUIRE_FALSE(more);
  CHECK(more.error().kind() == ErrorKind::corrupt);
}

TEST_CASE("An atomic write replaces the file, keeps the mode asked for and leaves nothing else") {
  const test::TempDir dir;
  const mode_t mask = umask(077);
  const auto first = write_file_atomically(dir / "a", "one", 0644);
  const auto second = write_file_atomically(dir / "a", "two", 0640);
  umask(mask);
  REQUIRE(first);
  REQUIRE(second);
  CHECK(test::slurp(dir / "a") == "two");
  struct stat status {};
  REQUIRE(stat((dir / "a").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0640);
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), std::filesystem::directory_iterator()) == 1);
  REQUIRE(mkdir((dir / "d").c_str(), 0700) == 0);
  CHECK_FALSE(write_file_atomically(dir / "d", "x", 0600));
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), std::filesystem::directory_iterator()) == 2);
}

TEST_CASE("Directories are made with their parents, and a file in the way is named") {
  const test::TempDir dir;
  REQUIRE(make_directories(dir / "a/b//c/", 0755));
  REQUIRE(make_directories(dir / "a/b/c", 0755));
  CHECK(std::filesystem::is_directory(dir / "a/b/c"));
  dir.write("file", "");
  const auto blocked = make_directories(dir / "file/x", 0755);
  REQUIRE_FALSE(blocked);
  CHECK(blocked.error().message().find("file/x: Not a directory") != std::string::npos);
}

TEST_CASE("A tree is removed whatever it contains, and links are not followed") {
  const test::TempDir dir;
  const std::string outside = dir.write("outside/keep", "x");
  dir.write("tree/a/b/c", "x");
  REQUIRE(symlink((dir / "outside").c_str(), (dir / "tree/link").c_str()) == 0);
  REQUIRE(symlink("loop", (dir / "tree/loop").c_str()) == 0);
  REQUIRE(mkfifo((dir / "tree/fifo").c_str(), 0000) == 0);
  REQUIRE(chmod((dir / "tree/a/b").c_str(), 0000) == 0);
  REQUIRE(chmod((dir / "tree/a").c_str(), 0555) == 0);
  REQUIRE(remove_tree(dir / "tree/"));
  CHECK_FALSE(std::filesystem::exists(dir / "tree"));
  CHECK(std::filesystem::exists(outside));
  CHECK(remove_tree(dir / "tree"));
  CHECK(remove_tree(dir / "missing/tree"));
  REQUIRE(symlink("outside", (dir / "link").c_str()) == 0);
  REQUIRE(remove_tree(dir / "link"));
  CHECK(std::filesystem::exists(outside));
  CHECK_FALSE(remove_tree("/"));
  CHECK_FALSE(remove_tree(dir / ".."));
}

TEST_CASE("A tree deeper than descriptors last is removed too") {
  const test::TempDir dir;
  UniqueFd here(open(dir.path().c_str(), O_RDONLY | O_DIRECTORY));
  for (int depth = 0; depth < 3000; ++depth) {
    REQUIRE(mkdirat(here.get(), "d", 0700) == 0);
    here.reset(openat(here.get(), "d", O_RDONLY | O_DIRECTORY));
    REQUIRE(here);
  }
  here.reset();
  REQUIRE(remove_tree(dir / "d"));
  CHECK(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("A lock excludes others for as long as its holder lives") {
  const test::TempDir dir;
  const std::string path = dir / "lock";
  {
    auto lock = FileLock::acquire(path, FileLock::Kind::exclusive, 0ms);
    REQUIRE(lock);
    const auto start = std::chrono::steady_clock::now();
    const auto refused = FileLock::acquire(path, FileLock::Kind::shared, 60ms);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::failure);
    CHECK(refused.error().errnum() == EWOULDBLOCK);
    CHECK(std::chrono::steady_clock::now() - start >= 60ms);
  }
  auto shared = FileLock::acquire(path, FileLock::Kind::shared, 0ms);
  auto second = FileLock::acquire(path, FileLock::Kind::shared, 0ms);
  CHECK(shared);
  CHECK(second);
  CHECK_FALSE(FileLock::acquire(path, FileLock::Kind::exclusive, 0ms));
}
