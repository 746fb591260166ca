// Whose files does a view show, what else of the image changes, and of which files is there none?
#include "hooks/store/view.hpp"

#include <cstddef>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/protocol/messages.hpp"
#include "common/sys/file.hpp"
#include "common/sys/socket.hpp"
#include "hooks/squashfs/layout.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

constexpr Owner kOwner{4711, 815};
constexpr size_t kViewBytes = 4 * ViewMade::kBlockBytes;

/// Nothing but what says whose the files are, at `where`.
struct Image {
  explicit Image(size_t where) : table_at(where) {
    super.magic = squashfs::kMagic;
    super.id_count = squashfs::kIdCount;
    super.id_table = where + offsetof(squashfs::OwnIdTable, block);
    table.header = squashfs::kMetadataStored | (2 * sizeof(uint32_t));
    table.block = where;
  }

  [[nodiscard]] std::string bytes() const {
    std::string all(kViewBytes, 'x');
    std::memcpy(all.data(), &super, sizeof super);
    std::memcpy(all.data() + table_at, &table, sizeof table);
    return all;
  }
  [[nodiscard]] UniqueFd file() const {
    auto file = sealed_memory("image", bytes());
    REQUIRE(file);
    return std::move(*file);
  }

  size_t table_at;
  squashfs::Superblock super{};
  squashfs::OwnIdTable table{};
};

/// What a reader of the view gets.
std::string patched(const Image& image, const ViewBlocks& blocks) {
  const auto own = read_sealed_memory(blocks.memory.get(), kViewBytes);
  REQUIRE(own);
  std::string all = image.bytes();
  REQUIRE(blocks.offset % ViewMade::kBlockBytes == 0);
  REQUIRE(own->size() % ViewMade::kBlockBytes == 0);
  REQUIRE(blocks.offset + own->size() <= all.size());
  return all.replace(blocks.offset, own->size(), *own);
}

std::string expected(Image image) {
  image.table.user = kOwner.user;
  image.table.group = kOwner.group;
  return image.bytes();
}

}  // namespace

TEST_CASE("a view is the image but for the eight bytes that say whose the files are") {
  // In one block, at the very end of one, and across two.
  for (const size_t where : {size_t{5000}, size_t{4096 * 2 - 10}, size_t{4096 * 2 - 6}, kViewBytes - 18}) {
    const Image image(where);
    const auto blocks = view_blocks(image.file().get(), kOwner);
    REQUIRE(blocks);
    CHECK(patched(image, *blocks) == expected(image));
  }
}

TEST_CASE("of what our importer does not make there is no view") {
  const auto is_refused = [](const Image& image) {
    const auto blocks = view_blocks(image.file().get(), kOwner);
    return !blocks && blocks.error().kind() == ErrorKind::unsupported;
  };
  Image image(5000);
  CHECK_FALSE(is_refused(image));
  SECTION("another number of entries") {
    image.super.id_count = 1;
  }
  SECTION("no squashfs") {
    image.super.magic = 1;
  }
  SECTION("a table in front of the file") {
    image.super.id_table = 3;
  }
  SECTION("a table behind the file") {
    image.super.id_table = kViewBytes;
  }
  SECTION("a table beyond all files") {
    image.super.id_table = UINT64_MAX;
  }
  SECTION("a compressed block") {
    image.table.header = 8;
  }
  SECTION("a block elsewhere") {
    image.table.block = 96;
  }
  SECTION("somebody else's already") {
    image.table.user = 1;
  }
  SECTION("of another group") {
    image.table.group = 1;
  }
  CHECK(is_refused(image));
}

TEST_CASE("a whole view has no name and cannot be written, or the file system shares no blocks") {
  const test::TempDir directory;
  const std::string path = directory.path() + "/image";
  const Image image(5000);
  REQUIRE(write_file_atomically(path, image.bytes(), 0400));
  const auto file = open_file(path, O_RDONLY);
  REQUIRE(file);
  const auto view = share_view(directory.path(), file->get(), kOwner);
  if (!view) {
    CHECK(view.error().kind() == ErrorKind::unsupported);
    return;
  }
  struct stat info {};
  REQUIRE(fstat(view->get(), &info) == 0);
  CHECK(info.st_nlink == 0);
  CHECK((info.st_mode & 07777U) == 0400U);
  CHECK((static_cast<unsigned>(fcntl(view->get(), F_GETFL)) & static_cast<unsigned>(O_ACCMODE)) == O_RDONLY);
  CHECK(read_all(view->get(), kViewBytes) == expected(image));
  CHECK(read_file(path) == image.bytes());
}
