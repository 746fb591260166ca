// Do files in a squashfs file belong to whom the writer was told, however many owners there are?
#include <cstdlib>

#include <fcntl.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "hooks/export/file_capability.hpp"
#include "hooks/squashfs/root_tree.hpp"
#include "hooks/squashfs/writer.hpp"
#include "hooks/unpack/image_access.hpp"
#include "hooks/unpack/read_image.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

/// A file "0" to "count - 1" for each pair of ids, in the order of `owners`; "" or what went wrong.
std::string write_image(const std::string& path, const std::vector<std::pair<uint32_t, uint32_t>>& owners) {
  const auto write = [&]() -> Result<void> {
    TRY_ASSIGN(const UniqueFd file, open_file(path, O_RDWR | O_CREAT | O_TRUNC, 0600));
    TRY_ASSIGN(const auto writer, SquashfsWriter::create(file.get(), path, {}));
    LayerTable table;
    RootTree tree(table);
    LayerEntry top;
    top.kind = EntryKind::directory;
    top.mode = 0755;
    tree.put_root(table.add_made(top));
    FileOwners ids;
    for (size_t i = 0; i < owners.size(); ++i) {
      LayerEntry entry;
      entry.mode = 0644;
      const uint32_t inode = table.add_made(entry);
      ids.set(inode, owners[i].first, owners[i].second);
      TRY(tree.put(RootTree::kRoot, std::to_string(i), inode));
    }
    tree.finish();
    TRY(writer->finish(tree, nullptr, ids));
    return {};
  };
  const auto written = write();
  return written ? "" : written.error().text();
}

Result<std::pair<uint32_t, uint32_t>> owner_in(ImageAccess& image, const std::string& path) {
  TRY_ASSIGN(const StoredInode inode, find_in_image(image, path));
  TRY_ASSIGN(const std::vector<uint32_t> ids, image.owners());
  return std::pair(ids.at(inode.owner), ids.at(inode.group));
}

}  // namespace

TEST_CASE("owners and groups are kept, and what nobody was named for is 0's") {
  const test::TempDir dir;
  REQUIRE(write_image(dir / "i.sqsh", {{0, 0}, {101, 0}, {0, 101}, {101, 102}, {65534, 65535}}) == "");
  const auto file = open_file(dir / "i.sqsh", O_RDONLY);
  auto image = ImageAccess::open(file->get());
  REQUIRE(image);
  CHECK(image->owners().value() == std::vector<uint32_t>{0, 0, 101, 102, 65534, 65535});
  CHECK(names_owners(image->owners().value()));
  CHECK(owner_in(*image, "0").value() == std::pair(0U, 0U));
  CHECK(owner_in(*image, "1").value() == std::pair(101U, 0U));
  CHECK(owner_in(*image, "2").value() == std::pair(0U, 101U));
  CHECK(owner_in(*image, "3").value() == std::pair(101U, 102U));
  CHECK(owner_in(*image, "4").value() == std::pair(65534U, 65535U));
}

TEST_CASE("a table of owners may have any number of blocks, and others read it as well") {
  for (const uint32_t count : {2046U, 2047U, 4095U, 9000U}) {
    const test::TempDir dir;
    std::vector<std::pair<uint32_t, uint32_t>> owners;
    for (uint32_t i = 0; i < count; ++i) owners.emplace_back(i + 1, 0);
    REQUIRE(write_image(dir / "i.sqsh", owners) == "");
    const auto file = open_file(dir / "i.sqsh", O_RDONLY);
    auto image = ImageAccess::open(file->get());
    REQUIRE(image);
    REQUIRE(image->owners()->size() == count + 2);
    for (const uint32_t i : {0U, 1U, count / 2, count - 1})
      CHECK(owner_in(*image, std::to_string(i)).value() == std::pair(i + 1, 0U));
    CHECK(std::system(("unsquashfs -lln " + (dir / "i.sqsh") + " | grep -qE '^-rw-r--r-- " + std::to_string(count) +
                       "/0 .*/" + std::to_string(count - 1) + "$'")
                          .c_str()) == 0);
  }
}

TEST_CASE("an image with one owner has the table that others may show as anybody's") {
  const test::TempDir dir;
  REQUIRE(write_image(dir / "i.sqsh", {{0, 0}, {0, 0}}) == "");
  const auto file = open_file(dir / "i.sqsh", O_RDONLY);
  auto image = ImageAccess::open(file->get());
  REQUIRE(image);
  CHECK(image->owners().value() == std::vector<uint32_t>{0, 0});
  CHECK_FALSE(names_owners(image->owners().value()));
  CHECK_FALSE(names_owners({1000, 100}));
  CHECK_FALSE(names_owners({1000}));
  CHECK_FALSE(names_owners({}));
}

TEST_CASE("capabilities of a container's root are every root's in an image") {
  // cap_net_raw+ep, as getxattr(2) shows it to another user: of revision 3, with its root's number at the end.
  const auto capability = [](uint32_t root) {
    std::string value("\1\0\0\3\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
    for (int i = 0; i < 4; ++i) value += static_cast<char>(root >> (8 * i));
    return value;
  };
  std::string rootless = capability(0).substr(0, 20);
  rootless[3] = 2;
  const IdMaps maps = map_range({1000, 1000, {1000}}, false, {100000, 200000}, Nobody::unmapped);
  const NamespaceIds ids(maps.uids, maps.groups.text), none("0 1000 1\n", "0 1000 1\n");
  CHECK(capability_in_image(capability(1000), ids) == rootless);
  CHECK(capability_in_image(rootless, ids) == rootless);
  // Of a namespace within the container.
  CHECK(capability_in_image(capability(101), ids) == capability(101));
  CHECK(capability_in_image(capability(65536), ids) == capability(1000));
  CHECK(capability_in_image(capability(1000), none) == capability(1000));
  for (const char* other : {"", "\1", "cap"}) CHECK(capability_in_image(other, ids) == other);
}
