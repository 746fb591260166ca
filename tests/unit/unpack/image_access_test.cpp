// Does random access to an image show what was packed into it, and survive images that are damaged?
#include "hooks/unpack/image_access.hpp"

#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "hooks/unpack/read_image.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/unit/unpack/shell.hpp"

using namespace situla;
namespace fs = std::filesystem;
using test::shell;

namespace {

std::string random_bytes(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  // Half of it compresses.
  for (char& c : bytes) c = static_cast<char>(random() % 2 == 0 ? random() : 'a');
  return bytes;
}

/// Files of every shape squashfs knows: empty, in a fragment, whole blocks, blocks and a tail, holes; many names.
void make_tree(const test::TempDir& dir) {
  (void)dir.write("tree/empty", "");
  (void)dir.write("tree/small", "hello\n");
  (void)dir.write("tree/block", random_bytes(131072, 1));
  (void)dir.write("tree/large", random_bytes(3 * 131072 + 777, 2));
  (void)dir.write("tree/deep/er/and/deeper/file", "deep");
  for (int i = 0; i < 1500; ++i) (void)dir.write("tree/many/name-" + std::to_string(i), std::to_string(i));
  shell("cd " + (dir / "tree") +
        " && ln small linked && ln -s ../target symbolic && mkfifo fifo && truncate -s 5M sparse && "
        "printf end >>sparse && chmod 4711 block && chmod 750 deep && setfattr -n user.key -v value small && "
        "setfattr -n user.long -v $(head -c 3000 /dev/zero | tr '\\0' x) large && touch -d @1234567 empty");
}

class Reader {
 public:
  explicit Reader(const std::string& path)
      : file(open_file(path, O_RDONLY).value()), image(ImageAccess::open(file.get()).value()) {}
  UniqueFd file;
  ImageAccess image;
};

Result<std::string> content(ImageAccess& image, const StoredInode& inode, size_t step) {
  std::string bytes;
  while (bytes.size() < inode.size) {
    TRY_ASSIGN(const std::vector<Extent> extents, image.read(inode, bytes.size(), step));
    const size_t before = bytes.size();
    for (const Extent& extent : extents)
      bytes += extent.bytes != nullptr ? std::string(extent.bytes, extent.size) : std::string(extent.size, '\0');
    if (bytes.size() == before) break;
  }
  return bytes;
}

void compare(ImageAccess& image, InodeRef ref, const fs::path& path, size_t step) {
  CAPTURE(path.string());
  const StoredInode inode = image.inode(ref).value();
  struct stat status {};
  REQUIRE(lstat(path.c_str(), &status) == 0);
  CHECK(inode.mode == status.st_mode);
  CHECK(inode.modification_time == status.st_mtime);
  if (S_ISREG(inode.mode)) {
    CHECK(inode.links == status.st_nlink);
    CHECK(content(image, inode, step).value() == test::slurp(path));
  }
  if (S_ISLNK(inode.mode)) CHECK(image.link_target(inode).value() == fs::read_symlink(path));
  if (!S_ISDIR(inode.mode)) return;
  const auto names = image.list(inode).value();
  std::set<std::string> expected, got;
  for (const auto& entry : fs::directory_iterator(path)) expected.insert(entry.path().filename());
  for (const StoredName& name : *names) got.insert(name.name);
  CHECK(got == expected);
  for (const StoredName& name : *names) {
    CHECK(image.inode(name.inode).value().number == name.number);
    compare(image, name.inode, path / name.name, step);
  }
}

/// Reads all there is, as far as it can be read.
size_t walk(ImageAccess& image, InodeRef ref, int depth, size_t& left) {
  if (depth > 30 || left == 0) return 0;
  --left;
  const auto inode = image.inode(ref);
  if (!inode) return 1;
  size_t errors = image.attributes(*inode) ? 0 : 1;
  if (S_ISREG(inode->mode) && inode->size < (1U << 26U)) errors += content(image, *inode, 1U << 20U) ? 0 : 1;
  if (S_ISLNK(inode->mode)) errors += image.link_target(*inode) ? 0 : 1;
  if (!S_ISDIR(inode->mode)) return errors;
  const auto names = image.list(*inode);
  if (!names) return errors + 1;
  for (const StoredName& name : **names) {
    CHECK(name.name.find('/') == std::string::npos);
    CHECK(!name.name.empty());
    errors += walk(image, name.inode, depth + 1, left);
  }
  return errors;
}

}  // namespace

TEST_CASE("Random access shows what was packed, with every compressor and block size") {
  const test::TempDir dir;
  make_tree(dir);
  for (const std::string options :
       {"-comp zstd", "-comp gzip", "-comp xz -b 1M", "-comp lz4 -b 4096", "-comp lzo -b 64K", "-noI -noD -noF -noX",
        "-comp zstd -no-fragments", "-comp zstd -always-use-fragments", "-comp zstd -noI -b 256K"}) {
    CAPTURE(options);
    const std::string image_path = dir / "image";
    shell("rm -f " + image_path + " && mksquashfs " + (dir / "tree") + " " + image_path + " -quiet -no-progress " +
          options + " >/dev/null");
    Reader reader(image_path);
    compare(reader.image, reader.image.root(), dir / "tree", options.find("4096") != std::string::npos ? 5000 : 200000);
  }
}

TEST_CASE("Extended attributes, and several threads at once") {
  const test::TempDir dir;
  make_tree(dir);
  shell("mksquashfs " + (dir / "tree") + " " + (dir / "image") + " -quiet -no-progress -comp zstd >/dev/null");
  Reader reader(dir / "image");
  ImageAccess& image = reader.image;
  REQUIRE(image.has_attributes());
  const auto names = image.list(image.top().value()).value();
  for (const StoredName& name : *names) {
    const auto attributes = image.attributes(image.inode(name.inode).value()).value();
    const bool expected = name.name == "small" || name.name == "linked" || name.name == "large";
    CHECK(attributes.size() == (expected ? 1 : 0));
    if (name.name == "small") CHECK(attributes[0] == std::pair<std::string, std::string>{"user.key", "value"});
    if (name.name == "large") CHECK(attributes[0].second == std::string(3000, 'x'));
  }
  std::vector<std::thread> threads;
  std::array<size_t, 4> errors{};
  for (size_t i = 0; i < errors.size(); ++i)
    threads.emplace_back([&, i] {
      ImageAccess own = image.another().value();
      size_t left = 100000;
      errors[i] = walk(own, own.root(), 0, left);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(errors == std::array<size_t, 4>{});
}

TEST_CASE("Damaged images give errors, never a crash or an endless walk") {
  const test::TempDir dir;
  make_tree(dir);
  shell("rm -r " + (dir / "tree/many") + " && mksquashfs " + (dir / "tree") + " " + (dir / "image") +
        " -quiet -no-progress -noI -noX -comp zstd >/dev/null");
  const std::string good = test::slurp(dir / "image");
  std::mt19937 random(20261121);
  size_t refused = 0, wrong = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bad = good;
    // Mostly where the tables are, at the end, and in the superblock.
    for (unsigned i = 0; i <= random() % 4; ++i) {
      const size_t area = random() % 3 == 0 ? 96 : 2500;
      const size_t at = area == 96 ? 4 + random() % 92 : bad.size() - 1 - random() % std::min(area, bad.size() - 1);
      bad[at] = static_cast<char>(random());
    }
    const std::string path = dir.write("bad", bad);
    const UniqueFd file = open_file(path, O_RDONLY).value();
    auto image = ImageAccess::open(file.get());
    if (!image) {
      ++refused;
      continue;
    }
    size_t left = 5000;
    if (walk(*image, image->root(), 0, left) > 0) ++wrong;
  }
  CHECK(refused > 5);
  CHECK(wrong > 20);
}

namespace {

/// A SIF file by hand: a header, a table of 48 objects and what they describe. (sylabs/sif: sif.go, "Layout of a SIF
/// file"; numbers little-endian, without gaps.)
class SifFile {
 public:
  /// type: 0x4001 definition file, 0x4004 partition. file_system: 1 squashfs, 2 ext3, 5 encrypted. partition: 1 system,
  /// 2 primary system, 3 data.
  void add(uint32_t type, const std::string& content, uint32_t file_system = 0, uint32_t partition = 0) {
    std::string object;
    put(object, type);
    object += '\1';
    for (const uint32_t number : {++id_, 0xf0000001U, 0U}) put(object, number);
    for (const uint64_t number : {kData + data_.size(), content.size(), content.size(), 0UL, 0UL, 0UL, 0UL})
      put(object, static_cast<uint64_t>(number));
    object.resize(201);  // and a name
    put(object, file_system);
    put(object, partition);
    object.resize(585);
    table_ += object;
    data_ += content;
    data_.resize((data_.size() + 4095) / 4096 * 4096);
  }
  [[nodiscard]] std::string bytes(uint64_t table_at = 4096) const {
    std::string header("#!/usr/bin/env run-singularity\n");
    header.resize(32);
    header += std::string("SIF_MAGIC\0", 10) + std::string("01\0", 3) + std::string("02\0", 3);
    header.resize(64);
    for (const uint64_t number : {0UL, 0UL, 48UL - id_, 48UL, table_at, table_.size(), kData, data_.size()})
      put(header, static_cast<uint64_t>(number));
    header.resize(4096);
    std::string file = header + table_;
    file.resize(kData);
    return file + data_;
  }

 private:
  static constexpr uint64_t kData = 32768;
  template <typename Number>
  static void put(std::string& out, Number number) {
    out.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  uint32_t id_ = 0;
  std::string table_, data_;
};

std::string image_of(const test::TempDir& dir, const std::string& text) {
  const std::string name = dir.write("sif-tree/text", text), image = dir / "part.sqsh";
  shell("rm -f " + image + " && mksquashfs " + (dir / "sif-tree") + " " + image +
        " -quiet -no-progress -all-root >/dev/null");
  return *read_file(image, size_t{1} << 20U);
}

}  // namespace

TEST_CASE("A SIF file is read as the squashfs file in it") {
  const test::TempDir dir;
  const std::string data = image_of(dir, "data"), primary = image_of(dir, "primary");
  const auto text_in = [&](const std::string& bytes) {
    const UniqueFd file = open_file(dir.write("file.sif", bytes), O_RDONLY).value();
    const auto text = read_image_file(file.get(), "text");
    return text ? *text : text.error().message();
  };
  SifFile whole;
  whole.add(0x4001, "Bootstrap: docker\n");
  whole.add(0x4004, data, 1, 3);
  whole.add(0x4004, primary, 1, 2);
  CHECK(text_in(whole.bytes()) == "primary");
  const UniqueFd file = open_file(dir.write("file.sif", whole.bytes()), O_RDONLY).value();
  const auto info = read_image_info(file.get());
  REQUIRE(info);
  CHECK(info->offset > 32768);
  CHECK(info->offset % 4096 == 0);

  SifFile only_data;
  only_data.add(0x4004, "not squashfs", 2, 1);
  only_data.add(0x4004, data, 1, 3);
  CHECK(text_in(only_data.bytes()) == "data");

  SifFile encrypted, nothing, other;
  encrypted.add(0x4004, data, 1, 3);
  encrypted.add(0x4004, primary, 5, 2);
  other.add(0x4004, data, 1, 3);
  other.add(0x4004, "ext3", 2, 2);
  CHECK(text_in(other.bytes()) == "read SIF header: no squashfs file system is in it");
  nothing.add(0x4001, "Bootstrap: docker\n");
  CHECK(text_in(encrypted.bytes()) == "read SIF header: the file system in it is encrypted");
  CHECK(text_in(nothing.bytes()) == "read SIF header: no squashfs file system is in it");
  CHECK(text_in(whole.bytes(uint64_t{1} << 60U)) == "read SIF header: its table lies outside of the file");
  CHECK_THAT(text_in(whole.bytes().substr(0, 33000)), Catch::Contains("outside of the file"));
  SifFile garbage;
  garbage.add(0x4004, std::string(9000, 'x'), 1, 2);
  CHECK_THAT(text_in(garbage.bytes()), Catch::Contains("not a squashfs file"));
}
