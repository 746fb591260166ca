// Who can read the store, what gets a name in it, and what becomes of one that an older release wrote?
#include "hooks/store/image_store.hpp"

#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "tests/support/superblock.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;
using test::superblock;
namespace fs = std::filesystem;

namespace {

mode_t mode_of(const std::string& path) {
  struct stat status {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777U;
}

ImageKey key_of(char digit) {
  return {*Digest::parse_hex(std::string(64, digit)), std::string(32, 'b'), "", std::nullopt};
}

/// The smallest thing that passes for a squashfs file.
OutputFile written(const ImageStore& store, const std::string& bytes) {
  auto file = store.create();
  REQUIRE(file);
  REQUIRE(write_all(file->fd(), bytes));
  REQUIRE(file->seal());
  return std::move(*file);
}

}  // namespace

TEST_CASE("directories, images and records are closed to others") {
  const test::TempDir directory;
  const auto store = ImageStore::open(directory / "store");
  REQUIRE(store);
  for (const char* name : {"", "/images", "/images/sha256", "/layers", "/leases", "/slots"})
    CHECK(mode_of(store->directory() + name) == 0700);
  const ImageKey key = key_of('a');
  CHECK_FALSE(store->find(key));
  OutputFile file = written(*store, superblock());
  StoreRecord record;
  record.source = "registry.test/x";
  const auto published = store->publish(file, key, record);
  REQUIRE((published && *published));
  CHECK(mode_of(store->image_path(key)) == 0400);
  CHECK(mode_of(store->record_path(key)) == 0600);
  const auto found = store->find(key);
  REQUIRE(found);
  CHECK((fcntl(found->get(), F_GETFL) & O_ACCMODE) == O_RDONLY);
  CHECK_THAT(test::slurp(store->record_path(key)), Catch::Contains("\"source\": \"registry.test/x\""));
  // The first one stays.
  OutputFile other = written(*store, superblock() + "more");
  const auto again = store->publish(other, key, record);
  REQUIRE(again);
  CHECK_FALSE(*again);
  CHECK(fs::file_size(store->image_path(key)) == 96);
}

TEST_CASE("names are digits and letters of their own, whoever they are for") {
  ImageKey key = key_of('a');
  CHECK(key.name() == std::string(64, 'a') + "." + std::string(32, 'b'));
  CHECK_FALSE(is_of_one_user(key.name()));
  key.only = 1000;
  CHECK(is_of_one_user(key.name()));
  key.variant = "lz4";
  CHECK(key.name() == std::string(64, 'a') + "." + std::string(32, 'b') + ".u1000.lz4");
  const test::TempDir directory;
  const auto store = ImageStore::open(directory.path());
  REQUIRE(store);
  directory.write("secret.sqsh", "x");
  for (const std::string& name : {std::string("../../secret"), std::string(64, 'a'), key.name() + "/../x"})
    CHECK_FALSE(store->find_named(name));
}

TEST_CASE("an open store of an older release is closed, and its images go") {
  const test::TempDir directory;
  const std::string old = directory.write("images/sha256/" + std::string(64, 'a') + ".sqsh", "x");
  directory.write("images/sha256/" + std::string(64, 'a') + ".json", "{}");
  directory.write("images/sha256/" + std::string(64, 'a') + ".sqsh.lease", "node pid 1");
  directory.write("layers/" + std::string(64, 'a') + ".zstd-131072", "x");
  for (const char* name : {"", "/images", "/images/sha256", "/layers"})
    fs::permissions(directory.path() + name, fs::perms(0755));
  const auto store = ImageStore::open(directory.path());
  REQUIRE(store);
  for (const char* name : {"", "/images", "/images/sha256", "/layers"}) CHECK(mode_of(directory.path() + name) == 0700);
  CHECK(fs::is_empty(directory / "images/sha256"));
  CHECK(fs::is_empty(directory / "layers"));
}

TEST_CASE("who still writes to a file is noticed") {
  const test::TempDir directory;
  const auto store = ImageStore::open(directory.path());
  REQUIRE(store);
  auto file = store->create();
  REQUIRE(file);
  UniqueFd writer(dup(file->fd()));
  REQUIRE(file->seal());
  const auto held = wait_for_writers(file->fd());
  REQUIRE_FALSE(held);
  CHECK_THAT(held.error().message(), Catch::Contains("open for writing"));
  writer.reset();
  CHECK(wait_for_writers(file->fd()));
}

TEST_CASE("what is no squashfs file is noticed without parsing it") {
  const test::TempDir directory;
  const auto check = [&](const std::string& bytes) {
    const auto fd = open_file(directory.write("f", bytes), O_RDONLY);
    REQUIRE(fd);
    return check_superblock(fd->get()).has_value();
  };
  CHECK(check(superblock()));
  CHECK_FALSE(check(""));
  CHECK_FALSE(check(superblock().substr(0, 95)));
  CHECK_FALSE(check("x" + superblock()));
  std::string longer = superblock();
  longer[40] = 97;
  CHECK_FALSE(check(longer));
}
