// Who may take how much of the store, and what goes for it?
#include "hooks/store/room.hpp"

#include <array>
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "hooks/store/layer_shelf.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

constexpr size_t kBytes = 1000;

/// An image of kBytes; the older, the higher `age`.
ImageKey publish(const ImageStore& store, std::optional<uid_t> uid, char digit, int age) {
  const ImageKey key{*Digest::parse_hex(std::string(64, digit)), std::string(32, 'b'), "", std::nullopt};
  auto file = store.create();
  REQUIRE((file && write_all(file->fd(), std::string(kBytes, 'x')) && file->seal()));
  StoreRecord record;
  record.uid = uid;
  REQUIRE(*store.publish(*file, key, record));
  const std::array<timespec, 2> times{{{0, UTIME_OMIT}, {1'000'000'000 - age, 0}}};
  REQUIRE(utimensat(AT_FDCWD, store.record_path(key).c_str(), times.data(), 0) == 0);
  return key;
}

}  // namespace

TEST_CASE("a user's oldest images go for his newest, and nobody else's") {
  const test::TempDir directory;
  const auto store = ImageStore::open(directory.path());
  REQUIRE(store);
  const ImageKey newest = publish(*store, 1000, 'a', 1);
  const ImageKey oldest = publish(*store, 1000, 'b', 3);
  const ImageKey older = publish(*store, 1000, 'c', 2);
  const ImageKey others = publish(*store, 1001, 'd', 4);
  const ImageKey nobodys = publish(*store, std::nullopt, 'e', 5);
  StoreRoom room(*store, 1000, {0, {0, 4 * kBytes}});
  REQUIRE(room.make(kBytes, {}));
  CHECK(store->find(oldest));
  REQUIRE(room.make(kBytes, {1, 1}));
  CHECK_FALSE(store->find(oldest));
  CHECK_FALSE(std::filesystem::exists(store->record_path(oldest)));
  CHECK((store->find(older) && store->find(newest) && store->find(others) && store->find(nobodys)));
}

TEST_CASE("what somebody has open stays, and the error has both numbers") {
  const test::TempDir directory;
  const auto store = ImageStore::open(directory.path());
  REQUIRE(store);
  const ImageKey used = publish(*store, 1000, 'a', 3);
  const ImageKey unused = publish(*store, 1000, 'b', 2);
  const auto open = store->find(used);
  StoreRoom room(*store, 1000, {0, {0, 2000}});
  const auto full = room.make(1500, {});
  REQUIRE_FALSE(full);
  CHECK(full.error().kind() == ErrorKind::no_space);
  CHECK(full.error().code() == ErrorCode::store_full);
  CHECK(full.error().message() ==
        "the images of uid 1000 in the store take 2.4 KiB with this one, and may take 2.0 KiB");
  CHECK_THAT(full.error().hint(), Catch::Contains("bytes_per_user"));
  CHECK((store->find(used) && !store->find(unused)));
  CHECK(room.make(1000, {}));

  // Nothing is removed for what can never be enough.
  const ImageKey another = publish(*store, 1000, 'c', 1);
  CHECK_FALSE(room.make(1500, {501, 501}));
  CHECK(store->find(another));
}

TEST_CASE("indexes of layers count, and no limit is none") {
  const test::TempDir directory;
  const auto store = ImageStore::open(directory.path());
  REQUIRE(store);
  const std::string digits(32, 'e');
  LayerShelf shelf(*store, 1000, digits, digits);
  auto index = shelf.create();
  REQUIRE((index && write_all(index->fd(), std::string(kBytes, 'i')) && index->seal()));
  shelf.put(*index, *Digest::parse_hex(std::string(64, '1')), "zstd-131072", "x");
  CHECK_FALSE(StoreRoom(*store, 1000, {0, {0, kBytes + 9}}).make(10, {}));
  CHECK(StoreRoom(*store, 1000, {0, {0, kBytes + 10}}).make(10, {}));
  CHECK(StoreRoom(*store, 1001, {0, {0, 10}}).make(10, {}));
  CHECK(StoreRoom(*store, 1000, {0, {0, 0}}).make(UINT64_MAX / 2, {}));
  CHECK(StoreRoom(*store, 1000, {0, {50, 0}}).make(10, {}));
  CHECK_FALSE(StoreRoom(*store, 1000, {0, {50, 0}}).make(UINT64_MAX / 2, {}));
}

TEST_CASE("for the reserve those go first who have most") {
  const test::TempDir directory;
  const auto store = ImageStore::open(directory.path());
  REQUIRE(store);
  const ImageKey lone = publish(*store, 1001, 'a', 9);
  publish(*store, 1000, 'b', 2);
  publish(*store, 1000, 'c', 1);
  {
    const auto first_open = store->find(lone);
    const auto full = StoreRoom(*store, 1002, {UINT64_MAX / 2, {0, 0}}).make(1, {});
    REQUIRE_FALSE(full);
    CHECK(full.error().kind() == ErrorKind::no_space);
    CHECK(full.error().code() == ErrorCode::store_full);
    CHECK_THAT(full.error().message(), Catch::Matches("the image store .* has .*iB free, and .*iB have to stay so"));
    CHECK((store->list().size() == 1 && store->find(lone)));
  }
  CHECK(StoreRoom(*store, 1002, {0, {0, 0}}).make(1, {}));
  CHECK(store->find(lone));
  // For what is still to be written there has to be room beside it; nothing goes if there never can be.
  const auto full = StoreRoom(*store, 1002, {0, {0, 0}}).make(1, {}, UINT64_MAX);
  REQUIRE_FALSE(full);
  CHECK_THAT(full.error().message(), Catch::Contains("have to stay so beside this image of "));
  CHECK(store->find(lone));
}

TEST_CASE("the list has the owner from the record, and knows what has none") {
  const test::TempDir directory;
  const auto store = ImageStore::open(directory.path());
  REQUIRE(store);
  publish(*store, 1000, 'a', 1);
  const ImageKey bare = publish(*store, 1000, 'b', 2);
  std::filesystem::remove(store->record_path(bare));
  (void)directory.write("images/sha256/nonsense.sqsh", "x");
  const auto before = store->version();
  const auto images = store->list();
  REQUIRE(images.size() == 2);
  CHECK((images[0].record.uid == 1000U && !images[1].record.uid && images[1].bytes == kBytes));
  CHECK(store->version() == before);
  CHECK(store->remove_unused(bare.name()));
  CHECK_FALSE(store->remove_unused(bare.name()));
  CHECK(store->list().size() == 1);
}

TEST_CASE("all images together have a limit, and an age") {
  const test::TempDir directory;
  const auto store = ImageStore::open(directory.path());
  REQUIRE(store);
  const ImageKey oldest = publish(*store, 1001, 'a', 300), pinned = publish(*store, 1000, 'b', 400);
  const ImageKey newer = publish(*store, 1000, 'c', 200);
  REQUIRE(store->pin(pinned.name(), true));
  StoreRoom room(*store, 1000, {0, {}, {0, 3 * kBytes}});
  REQUIRE(room.make(kBytes, {}));
  CHECK((!store->find(oldest) && store->find(pinned) && store->find(newer)));
  const auto full = room.make(3 * kBytes, {});
  REQUIRE_FALSE(full);
  CHECK(full.error().kind() == ErrorKind::no_space);
  CHECK(full.error().code() == ErrorCode::store_full);
  CHECK(full.error().hint().find("store_max") != std::string::npos);
  CHECK_FALSE(room.make(4 * kBytes, {}));

  const ImageKey last = publish(*store, 1000, 'd', 100);
  StoreRoom(*store, 1000, {0, {}, {}, std::chrono::seconds(150)}).drop_old(1'000'000'000);
  CHECK((store->find(last) && store->find(pinned) && !store->find(newer)));
  StoreRoom(*store, 1000, {0, {}, {}, std::chrono::seconds(100)}).drop_old(1'000'000'000);
  CHECK_FALSE(store->find(last));
}

TEST_CASE("nothing goes for an importer that calls a disk full which is not") {
  const test::TempDir directory;
  const auto store = ImageStore::open(directory.path());
  REQUIRE(store);
  const ImageKey unused = publish(*store, 1000, 'a', 1);
  const auto made = StoreRoom(*store, 1001, {}).make_some();
  REQUIRE_FALSE(made);
  CHECK(made.error().kind() == ErrorKind::no_space);
  CHECK(made.error().code() == ErrorCode::disk_full);
  CHECK(store->find(unused));
}
