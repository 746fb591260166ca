// Which layers does a user find again?
#include <filesystem>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "hooks/store/layer_shelf.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

const std::string kRegistry(32, 'e');
const std::string kOrigin(32, 'b'), kOtherOrigin(32, 'c');

ImageKey publish_shelved(const ImageStore& store, char digit) {
  const ImageKey key{*Digest::parse_hex(std::string(64, digit)), kOrigin, "", std::nullopt};
  auto file = store.create();
  REQUIRE((file && write_all(file->fd(), "image") && file->seal()));
  REQUIRE(store.publish(*file, key, {}));
  return key;
}

void put(LayerShelf& shelf, const Digest& layer, const ImageKey& image, const std::string& content) {
  auto index = shelf.create();
  REQUIRE((index && write_all(index->fd(), content) && index->seal()));
  shelf.put(*index, layer, "zstd-131072", image.name());
}

}  // namespace

TEST_CASE("indexes are for one user, of one origin before another, and gone with their image") {
  const test::TempDir directory;
  const auto store = ImageStore::open(directory.path());
  REQUIRE(store);
  const Digest layer = *Digest::parse_hex(std::string(64, '1'));
  const ImageKey image = publish_shelved(*store, 'a');
  LayerShelf writer(*store, 1000, kRegistry, kOrigin);
  put(writer, layer, image, "first");
  put(writer, layer, publish_shelved(*store, 'd'), "second");

  const auto found = LayerShelf(*store, 1000, kRegistry, kOrigin).find(layer, "zstd-131072");
  REQUIRE(found);
  CHECK_FALSE(found->other_origin);
  CHECK(*read_all(found->index.get(), 100) == "second");
  CHECK(*read_all(found->donor.get(), 100) == "image");
  const auto elsewhere = LayerShelf(*store, 1000, kRegistry, kOtherOrigin).find(layer, "zstd-131072");
  REQUIRE(elsewhere);
  CHECK(elsewhere->other_origin);
  CHECK_FALSE(LayerShelf(*store, 1000, std::string(32, 'f'), kOrigin).find(layer, "zstd-131072"));
  CHECK_FALSE(LayerShelf(*store, 1001, kRegistry, kOrigin).find(layer, "zstd-131072"));
  CHECK_FALSE(LayerShelf(*store, 1000, kRegistry, kOrigin).find(layer, "lz4-131072"));
  CHECK_FALSE(LayerShelf(*store, 1000, kRegistry, kOrigin).find(layer, "../x"));

  std::filesystem::remove_all(directory / "images/sha256");
  CHECK_FALSE(LayerShelf(*store, 1000, kRegistry, kOrigin).find(layer, "zstd-131072"));
  CHECK(std::filesystem::is_empty(directory / ("layers/1000/" + kRegistry + "/" + kOrigin)));
}
