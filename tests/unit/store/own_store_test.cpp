// Does a user's own store work like a node's, and has nobody else a say in it? Where is there no store at all?
#include "hooks/store/own_store.hpp"

#include <filesystem>

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/base/log.hpp"
#include "common/sys/file.hpp"
#include "hooks/store/image_store.hpp"
#include "tests/support/as_user.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

/// A cache that everybody may write to, and the user's settings.
struct Cache {
  test::TempDir dir;
  std::string path = dir / "cache";
  std::string store = path + "/situla-store." + std::to_string(test::test_uid());

  Cache() {
    REQUIRE(chmod(dir.path().c_str(), 0755) == 0);
    REQUIRE(mkdir(path.c_str(), 0777) == 0);
    REQUIRE(chmod(path.c_str(), 0777) == 0);
  }
  /// As the user.
  [[nodiscard]] Result<OwnStore> open() const {
    Environment environment;
    environment.set("ENROOT_SYSCONF_PATH", dir.path());
    environment.set("ENROOT_CACHE_PATH", path);
    environment.set("PATH", "/usr/bin:/bin");
    NullLog log;
    TRY_ASSIGN(const EnrootConfig config, EnrootConfig::load(environment, log));
    return OwnStore::open(config);
  }
};

mode_t mode_in_store(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? status.st_mode & 07777U : 0;
}

Result<void> publish(const ImageStore& store, char digit) {
  TRY_ASSIGN(OutputFile file, store.create());
  TRY(write_all(file.fd(), "image"));
  TRY(file.seal());
  StoreRecord record;
  record.source = "registry.test/tiny";
  return store
      .publish(file, {*Digest::parse_hex(std::string(64, digit)), std::string(32, 'b'), "", std::nullopt}, record)
      .map([](bool) {});
}

}  // namespace

TEST_CASE("an image in a user's own store is his alone, whoever shares the cache") {
  const Cache cache;
  CHECK(test::as_user([&]() -> Result<void> {
          (void)umask(0);
          TRY_ASSIGN(const OwnStore own, cache.open());
          EXPECT(mode_in_store(cache.store) == 0700);
          TRY_ASSIGN(const ImageStore store, ImageStore::open(own.path()));
          TRY(publish(store, 'a'));
          EXPECT(mode_in_store(cache.store + "/images/sha256") == 0700);
          TRY_ASSIGN(const OwnStore again, cache.open());
          TRY_ASSIGN(const ImageStore same, ImageStore::open(again.path()));
          EXPECT(same.list().size() == 1 && same.list()[0].record.source == "registry.test/tiny");
          return {};
        }) == "");
}

TEST_CASE("an own store that others could read is closed to them") {
  const Cache cache;
  CHECK(test::as_user([&]() -> Result<void> {
          EXPECT(mkdir(cache.store.c_str(), 0755) == 0);
          TRY_ASSIGN(const OwnStore own, cache.open());
          TRY(ImageStore::open(own.path()));
          EXPECT(mode_in_store(cache.store) == 0700);
          return {};
        }) == "");
}

TEST_CASE("a directory that somebody else has put there is refused, with what to do") {
  const Cache cache;
  REQUIRE(mkdir(cache.store.c_str(), 0777) == 0);
  REQUIRE(chmod(cache.store.c_str(), 0777) == 0);
  const bool foreign = geteuid() == 0;
  CHECK(test::as_user([&]() -> Result<void> {
          const auto own = cache.open();
          EXPECT(!own && own.error().kind() == ErrorKind::denied);
          const std::string what = foreign ? cache.store + " belongs to root" : "can be written by other users";
          EXPECT(own.error().message().find(what) != std::string::npos);
          const std::string fix = foreign ? "rm -r " + cache.store : "chmod go-w " + cache.store;
          EXPECT(own.error().hint().find(fix) != std::string::npos);
          EXPECT(std::filesystem::is_empty(cache.store));
          return {};
        }) == "");
}

TEST_CASE("who takes an own store away does not put another one in its place; errors say its path") {
  const Cache cache;
  CHECK(test::as_user([&]() -> Result<void> {
          TRY_ASSIGN(const OwnStore own, cache.open());
          TRY_ASSIGN(const ImageStore store, ImageStore::open(own.path()));
          EXPECT(rename(cache.store.c_str(), (cache.path + "/taken").c_str()) == 0);
          EXPECT(symlink("/tmp", cache.store.c_str()) == 0);
          TRY(publish(store, 'c'));
          EXPECT(std::filesystem::exists(cache.path + "/taken/images/sha256"));
          const std::string file = own.path() + "/images";
          const Error shown = own.shown(Error(ErrorKind::no_space, "write " + file + ", not " + own.path() + "9/x")
                                            .with_hint("make room in " + own.path()));
          EXPECT(shown.kind() == ErrorKind::no_space);
          EXPECT(shown.message() == "write " + cache.store + "/images, not " + own.path() + "9/x");
          EXPECT(shown.hint() == "make room in " + cache.store);
          return {};
        }) == "");
}

TEST_CASE("there is no store where nobody has made its directory and nobody may") {
  const Cache cache;
  const std::string closed = cache.dir / "closed", foreign = closed + "/store";
  REQUIRE(mkdir(closed.c_str(), 0755) == 0);
  CHECK(test::as_user([&]() -> Result<void> {
          EXPECT(!ImageStore::why_none(cache.path + "/store"));
          EXPECT(mode_in_store(cache.path + "/store") == 0700);
          if (geteuid() != test::kTestUid) return {};  // nobody else's directory
          const auto why = ImageStore::why_none(foreign + "/deeper");
          EXPECT(why && why->find("Permission denied") != std::string::npos);
          return {};
        }) == "");
  // What is there and is wrong is no missing store.
  REQUIRE(mkdir(foreign.c_str(), 0755) == 0);
  CHECK(test::as_user([&]() -> Result<void> {
          EXPECT(!ImageStore::why_none(foreign));
          EXPECT(geteuid() != test::kTestUid || !ImageStore::open(foreign));
          return {};
        }) == "");
}
