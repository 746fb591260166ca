// Does a node's copy of an image hold what the store says, whatever happened to either of them?
#include "hooks/store/local_tier.hpp"

#include <array>
#include <filesystem>
#include <future>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "hooks/registry/sha256.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

constexpr size_t kMiB = size_t{1} << 20U;
const auto kAlways = [] { return true; };

/// A store and its copies, in one file system: LocalTier::open() would refuse that.
struct TierScene {
  test::TempDir directory;
  ImageStore store = *ImageStore::open(directory / "store");
  ImageStore local = *ImageStore::open(directory / "local");

  [[nodiscard]] LocalTier tier(DiskShare most = {}) const { return {store, local, most}; }

  /// knows: somebody has read it whole. The name.
  [[nodiscard]] std::string publish(char digit, const std::string& bytes, bool knows = true) const {
    const ImageKey key{*Digest::parse_hex(std::string(64, digit)), std::string(32, 'b'), "", std::nullopt};
    auto file = store.create();
    REQUIRE((file && write_all(file->fd(), bytes) && file->seal()));
    REQUIRE(*store.publish(*file, key, {"registry.test/tiny", "latest", "", "amd64", 1000, 0, 0}));
    if (knows) REQUIRE(store.note_content(key.name(), digest_of(bytes)));
    return key.name();
  }
  [[nodiscard]] std::optional<UniqueFd> find(const std::string& name) const {
    const auto image = store.find_named(name);
    REQUIRE(image);
    return tier().find(name, image->get());
  }
  [[nodiscard]] std::string part(const std::string& name) const {
    return directory / ("local/images/" + name + ".part");
  }
  /// Of the one copy.
  [[nodiscard]] std::string path() const {
    REQUIRE(local.list().size() == 1);
    return local.images() + "/" + local.list()[0].name + ".sqsh";
  }
  /// The age decides who goes first.
  void make_old(const std::string& name, int age) const {
    const std::array<timespec, 2> times{{{0, UTIME_OMIT}, {1'000'000'000 - age, 0}}};
    const std::string record = local.images() + "/" + name + "." + store.content(name)->hex() + ".json";
    REQUIRE(utimensat(AT_FDCWD, record.c_str(), times.data(), 0) == 0);
  }
};

std::string content_of(const UniqueFd& file) {
  return read_all(file.get(), 64 * kMiB).value_or("?");
}

ino_t number_of(const std::string& path) {
  struct stat status {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  return status.st_ino;
}

/// No at that question.
std::function<bool()> stop_at(int question) {
  return [question, asked = 0]() mutable { return ++asked != question; };
}

}  // namespace

TEST_CASE("the first step has no copy, and those after it have one that only reads") {
  const TierScene scene;
  const std::string name = scene.publish('a', "an image");
  CHECK_FALSE(scene.find(name));
  REQUIRE(scene.tier().fill(name, kAlways));
  const auto copy = scene.find(name);
  REQUIRE(copy);
  CHECK(content_of(*copy) == "an image");
  struct stat status {};
  REQUIRE(fstat(copy->get(), &status) == 0);
  CHECK((status.st_mode & 07777U) == 0400U);
  CHECK(status.st_nlink == 1);
  CHECK((fcntl(copy->get(), F_GETFL) & O_ACCMODE) == O_RDONLY);
  CHECK(status.st_ino == number_of(scene.path()));
  CHECK(scene.local.list()[0].reference() == "registry.test/tiny:latest");
  CHECK_FALSE(std::filesystem::exists(scene.part(name)));
  // It is not made twice.
  REQUIRE(scene.tier().fill(name, kAlways));
  CHECK(status.st_ino == number_of(scene.path()));
}

TEST_CASE("what nobody has read whole before is noted in the store, and not from what lay there") {
  const TierScene scene;
  const std::string name = scene.publish('a', "an image", false);
  CHECK_FALSE(scene.find(name));
  scene.directory.write("local/images/" + name + ".part", "another one");
  REQUIRE(scene.tier().fill(name, kAlways));
  CHECK(scene.store.content(name) == digest_of("an image"));
  const auto copy = scene.find(name);
  REQUIRE(copy);
  CHECK(content_of(*copy) == "an image");
}

TEST_CASE("an image that was imported anew is not taken from its old copy") {
  const TierScene scene;
  REQUIRE(scene.tier().fill(scene.publish('a', "image 1"), kAlways));
  REQUIRE(scene.store.remove_unused(scene.store.list()[0].name));
  const std::string name = scene.publish('a', "image 2", false);
  CHECK_FALSE(scene.find(name));
  REQUIRE(scene.store.note_content(name, digest_of("image 2")));
  CHECK_FALSE(scene.find(name));
  REQUIRE(scene.tier().fill(name, kAlways));
  CHECK(content_of(*scene.find(name)) == "image 2");
}

TEST_CASE("a copy that lost its end, or has a second name, is not given out, and made anew") {
  const TierScene scene;
  const std::string name = scene.publish('a', "an image");
  REQUIRE(scene.tier().fill(name, kAlways));
  REQUIRE(chmod(scene.path().c_str(), 0600) == 0);
  std::filesystem::resize_file(scene.path(), 4);
  CHECK_FALSE(scene.find(name));
  REQUIRE(scene.tier().fill(name, kAlways));
  CHECK(content_of(*scene.find(name)) == "an image");
  std::filesystem::create_hard_link(scene.path(), scene.directory / "another");
  CHECK_FALSE(scene.find(name));
}

TEST_CASE("a step that ends in the middle of a copy leaves nothing that is used, and the next one goes on with it") {
  const TierScene scene;
  std::string bytes(5 * kMiB + 100, 'x');
  for (size_t i = 0; i < bytes.size(); i += 4096) bytes[i] = static_cast<char>(i / 4096);
  const std::string name = scene.publish('a', bytes);
  REQUIRE(scene.tier().fill(name, stop_at(4)));
  CHECK_FALSE(scene.find(name));
  CHECK(scene.local.list().empty());
  REQUIRE(std::filesystem::file_size(scene.part(name)) == 2 * kMiB);
  const ino_t begun = number_of(scene.part(name));

  SECTION("it is the same file") {
    REQUIRE(scene.tier().fill(name, kAlways));
    CHECK(number_of(scene.path()) == begun);
    CHECK(content_of(*scene.find(name)) == bytes);
    CHECK_FALSE(std::filesystem::exists(scene.part(name)));
  }
  SECTION("what a crash made of it is noticed, and the next one begins anew") {
    REQUIRE(chmod(scene.part(name).c_str(), 0600) == 0);
    std::filesystem::resize_file(scene.part(name), kMiB);
    std::filesystem::resize_file(scene.part(name), 2 * kMiB);
    const auto filled = scene.tier().fill(name, kAlways);
    REQUIRE_FALSE(filled);
    CHECK(filled.error().kind() == ErrorKind::corrupt);
    CHECK_FALSE(std::filesystem::exists(scene.part(name)));
    CHECK(scene.local.list().empty());
    REQUIRE(scene.tier().fill(name, kAlways));
    CHECK(content_of(*scene.find(name)) == bytes);
  }
  SECTION("one that is too long") {
    std::filesystem::resize_file(scene.part(name), 2 * kMiB);
    std::filesystem::resize_file(scene.part(name), 9 * kMiB);
    CHECK_FALSE(scene.tier().fill(name, kAlways));
    REQUIRE(scene.tier().fill(name, kAlways));
    CHECK(content_of(*scene.find(name)) == bytes);
  }
  SECTION("a copy of another image takes its place") {
    REQUIRE(scene.tier().fill(scene.publish('c', "another"), kAlways));
    CHECK_FALSE(std::filesystem::exists(scene.part(name)));
    CHECK(scene.local.list().size() == 1);
  }
}

TEST_CASE("a link in the place of a copy is not followed") {
  const TierScene scene;
  const std::string name = scene.publish('a', "an image");
  const std::string other = scene.directory.write("other", "kept");
  std::filesystem::create_symlink(other, scene.part(name));
  REQUIRE(scene.tier().fill(name, kAlways));
  CHECK(content_of(*scene.find(name)) == "an image");
  CHECK(test::slurp(other) == "kept");
}

TEST_CASE("the oldest copies go for a new one, those that are in use stay, and nothing goes in vain") {
  const TierScene scene;
  const std::string image(1000, 'x');
  const LocalTier tier = scene.tier({0, 3000});
  const std::string oldest = scene.publish('1', image), used = scene.publish('2', image + "2"),
                    newer = scene.publish('3', "3" + image.substr(1));
  for (const std::string& name : {oldest, used, newer}) REQUIRE(scene.tier().fill(name, kAlways));
  for (int age = 3; const std::string& name : {used, oldest, newer}) scene.make_old(name, age--);
  const auto open = scene.find(used);
  REQUIRE(open);
  scene.make_old(used, 3);

  const std::string next = scene.publish('4', "4" + image.substr(1));
  REQUIRE(tier.fill(next, kAlways));
  CHECK_FALSE(scene.find(oldest));
  CHECK((scene.find(used) && scene.find(next)));
  // 1001 bytes are in use.
  const auto hopeless = tier.fill(scene.publish('5', std::string(2000, 'x')), kAlways);
  REQUIRE_FALSE(hopeless);
  CHECK(hopeless.error().kind() == ErrorKind::no_space);
  CHECK(hopeless.error().message() == "copies of images take 3.9 KiB with this one, and may take 2.9 KiB");
  CHECK((scene.find(used) && scene.find(next)));
  CHECK(scene.local.list().size() == 2);
  CHECK(std::distance(std::filesystem::directory_iterator(scene.directory / "local/images"), {}) == 1);
}

TEST_CASE("who finds another one copying waits for it, as long as its step runs") {
  const TierScene scene;
  const std::string name = scene.publish('a', "an image");
  {
    const auto other = FileLock::acquire(*open_file(scene.local.images(), O_RDONLY | O_DIRECTORY),
                                         FileLock::Kind::exclusive, {}, "the lock");
    REQUIRE(other);
    REQUIRE(scene.tier().fill(name, stop_at(2)));
    CHECK_FALSE(scene.find(name));
  }
  std::array<std::future<bool>, 4> fills;
  for (auto& fill : fills)
    fill = std::async(std::launch::async, [&] { return scene.tier().fill(name, kAlways).has_value(); });
  for (auto& fill : fills) CHECK(fill.get());
  CHECK(content_of(*scene.find(name)) == "an image");
  CHECK(scene.local.list().size() == 1);
}

TEST_CASE("an image that the store has no more is not given out, and its copy goes with the next one's making") {
  const TierScene scene;
  const std::string gone = scene.publish('a', "an image"), other = scene.publish('c', "another");
  REQUIRE(scene.tier().fill(gone, kAlways));
  auto image = scene.store.find_named(gone);
  REQUIRE(scene.store.remove_unused(gone, true));
  // Not even to who still has the store's file.
  CHECK_FALSE(scene.tier().find(gone, image->get()));
  REQUIRE(scene.tier().fill(gone, kAlways));
  CHECK(scene.local.list().size() == 1);

  auto used = scene.local.find_named(scene.local.list()[0].name);
  REQUIRE(scene.tier().fill(other, kAlways));
  CHECK(scene.local.list().size() == 2);  // a step may run in it
  used.reset();
  REQUIRE(scene.store.remove_unused(other));
  REQUIRE(scene.tier().fill(scene.publish('d', "a third one"), kAlways));
  CHECK(scene.local.list().size() == 1);
}

TEST_CASE("what the node's own store has left stays until its room is needed") {
  const TierScene scene;
  const ImageKey key{*Digest::parse_hex(std::string(64, 'e')), std::string(32, 'f'), "", std::nullopt};
  {
    auto file = scene.local.create();
    REQUIRE((file && write_all(file->fd(), std::string(1000, 'x')) && file->seal()));
    REQUIRE(*scene.local.publish(*file, key, {}));
  }
  REQUIRE(scene.tier().fill(scene.publish('a', "an image"), kAlways));
  CHECK(scene.local.find(key));
  REQUIRE(scene.tier({0, 1000}).fill(scene.publish('c', "another"), kAlways));
  CHECK_FALSE(scene.local.find(key));
  CHECK(scene.local.list().size() == 2);
}

TEST_CASE("no copies are made where nobody asked for them, or they would spare nothing") {
  const test::TempDir directory;
  test::MemoryLog log;
  SiteConfig config;
  CHECK_FALSE(LocalTier::open(config, directory / "store", log));
  CHECK(log.text(LogLevel::debug).empty());
  config.local_tier = directory / "local";
  CHECK_FALSE(LocalTier::open(config, directory / "store", log));
  CHECK_THAT(log.text(LogLevel::debug), Catch::Contains("it is on the file system of the store"));
  CHECK_FALSE(std::filesystem::exists(directory / "local"));
  config.local_tier = "/proc/situla";
  CHECK_FALSE(LocalTier::open(config, directory / "store", log));
  CHECK_THAT(log.text(LogLevel::debug), Catch::Contains("no copies in /proc/situla: open the image store: "));
}
