// Which image a named container's copy was made of is known for that very file, and for its user only.
#include "plugin/broker/node/container_images.hpp"

#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "common/sys/directory.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

const std::string kIdentity(32, 'a');
constexpr uid_t kAlice = 60801, kBob = 60802;

CopiedImageWanted copy(const std::string& identity = kIdentity) {
  return {identity, false, 12, 4096, 1700000000000000001U};
}

std::string numbered(size_t number) {
  std::string text = std::to_string(number);
  return std::string(32 - text.size(), '0') + text;
}

}  // namespace

TEST_CASE("the image of a copy is found again") {
  const test::TempDir dir;
  REQUIRE(note_copied_image(dir.path(), kAlice, copy(), "0123.4567"));
  CHECK(find_copied_image(dir.path(), kAlice, copy()) == "0123.4567");
  struct stat info {};
  REQUIRE(stat((dir.path() + "/copies").c_str(), &info) == 0);
  CHECK((info.st_mode & 07777U) == 0700);
}

TEST_CASE("another user, another container and another file have no image") {
  const test::TempDir dir;
  REQUIRE(note_copied_image(dir.path(), kAlice, copy(), "0123.4567"));
  CHECK_FALSE(find_copied_image(dir.path(), kBob, copy()));
  CHECK_FALSE(find_copied_image(dir.path(), kAlice, copy(std::string(32, 'b'))));
  for (const auto change : {&CopiedImageWanted::inode, &CopiedImageWanted::bytes, &CopiedImageWanted::changed}) {
    CopiedImageWanted other = copy();
    other.*change += 1;
    CHECK_FALSE(find_copied_image(dir.path(), kAlice, other));
  }
}

TEST_CASE("what is no identity names no note") {
  const test::TempDir dir;
  for (const char* identity : {"", "../../etc/passwd", "abc", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}) {
    CHECK_FALSE(note_copied_image(dir.path(), kAlice, copy(identity), "0123.4567"));
    CHECK_FALSE(find_copied_image(dir.path(), kAlice, copy(identity)));
  }
}

TEST_CASE("a user has so many notes and no more, and takes none from others") {
  const test::TempDir dir;
  REQUIRE(note_copied_image(dir.path(), kBob, copy(), "bob.1"));
  for (size_t number = 0; number < 300; ++number)
    REQUIRE(note_copied_image(dir.path(), kAlice, copy(numbered(number)), "alice.1"));
  CHECK(list_directory(dir.path() + "/copies")->size() == 128 + 1);
  CHECK(find_copied_image(dir.path(), kAlice, copy(numbered(299))));
  CHECK(find_copied_image(dir.path(), kBob, copy()));
}
