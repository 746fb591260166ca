// Is the squashfs file what unsquashfs expects, the same every time, and without what upper layers hide?
#include "hooks/import/image_builder.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "hooks/registry/sha256.hpp"
#include "tests/support/noise.hpp"
#include "tests/unit/import/tar.hpp"

using namespace situla;
using test::noise;
using test::Tar;
namespace fs = std::filesystem;

namespace {

struct Directory {
  fs::path path = fs::temp_directory_path() / ("situla-builder-" + std::to_string(getpid()));
  Directory() { fs::create_directories(path); }
  ~Directory() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

struct Builds {
  Directory directory;
  size_t opened = 0;

  /// layers: bottom first.
  Result<BuiltImage> build(const std::string& name, const std::vector<std::string>& layers, SquashOptions options = {},
                           const ImageConfig& config = {}) {
    std::vector<Blob> blobs;
    for (size_t i = 0; i < layers.size(); ++i)
      blobs.push_back({digest_of(layers[i]), layers[i].size(), "layer " + std::to_string(i + 1)});
    const StreamOpener open = [&](const std::vector<Blob>& wanted) -> Result<std::unique_ptr<LayerStream>> {
      ++opened;
      std::vector<std::string> contents;
      for (const Blob& blob : wanted)
        for (const std::string& layer : layers)
          if (digest_of(layer) == blob.digest && contents.size() < wanted.size()) {
            contents.push_back(layer);
            break;
          }
      auto at = std::make_shared<std::vector<size_t>>(contents.size(), 0);
      return std::make_unique<LayerStream>(
          wanted,
          [contents, at](size_t blob) -> Result<std::string_view> {
            const std::string_view piece = std::string_view(contents[blob]).substr((*at)[blob], 10007);
            (*at)[blob] += piece.size();
            return piece;
          },
          [] {});
    };
    const std::string path = directory.path / name;
    TRY_ASSIGN(const UniqueFd fd, open_file(path, O_RDWR | O_CREAT | O_TRUNC, 0600));
    ImportMeter meter{ImportBudget()};
    ImageBuilder builder(fd.get(), path, options, blobs, meter);
    return builder.build(open, config, "docker://registry.test/x:1");
  }
  std::string bytes(const std::string& name) { return read_file(directory.path / name, size_t{1} << 30U).value(); }
  /// Unpacks with the system's unsquashfs, an implementation of its own.
  fs::path unpack(const std::string& name) {
    const fs::path target = directory.path / (name + ".d");
    const std::string command = "unsquashfs -no-progress -no-xattrs -d '" + target.string() + "' '" +
                                (directory.path / name).string() + "' >/dev/null 2>&1";
    REQUIRE(std::system(command.c_str()) == 0);
    return target;
  }
};

std::string content(const fs::path& path) {
  return read_file(path, size_t{1} << 30U).value();
}

}  // namespace

TEST_CASE_METHOD(Builds, "content of every size, links, fifo, configuration") {
  const std::string big = noise(500000, 1);
  const std::string aligned = noise(262144, 2);
  ImageConfig config;
  config.environment = {"A=1"};
  config.workdir = "/made/for/work";
  const auto built = build("i",
                           {Tar()
                                .directory("d")
                                .file("d/big", big)
                                .file("d/aligned", aligned)
                                .file("d/empty", "")
                                .file("d/zeros", std::string(400000, '\0'))
                                .file("d/small", "small")
                                .file("d/same", "small")
                                .hardlink("d/hard", "d/small")
                                .symlink("l", "d/small")
                                .add("p", "", {'6', 0600, {}, {}})
                                .directory("many")
                                .bytes()},
                           {}, config);
  REQUIRE(built);
  CHECK(built->dead_bytes == 0);
  CHECK(built->image_bytes == fs::file_size(directory.path / "i"));
  CHECK(built->image_bytes % 4096 == 0);
  const fs::path root = unpack("i");
  CHECK(content(root / "d/big") == big);
  CHECK(content(root / "d/aligned") == aligned);
  CHECK(content(root / "d/zeros") == std::string(400000, '\0'));
  CHECK(fs::file_size(root / "d/empty") == 0);
  CHECK(fs::hard_link_count(root / "d/hard") == 2);
  CHECK(fs::read_symlink(root / "l") == "d/small");
  CHECK(fs::is_fifo(root / "p"));
  CHECK(fs::is_directory(root / "made/for/work"));
  CHECK(content(root / "etc/environment") == "A=1\n");
  CHECK(content(root / "etc/rc").starts_with("# enroot-provenance: docker://registry.test/x:1\n"));
  CHECK(fs::exists(root / "etc/fstab"));
}

TEST_CASE_METHOD(Builds, "ten thousand small files and a directory of many") {
  Tar tar;
  for (int i = 0; i < 10000; ++i) tar.file("dir/" + std::to_string(i), std::to_string(i) + " content");
  REQUIRE(build("i", {tar.bytes()}));
  const fs::path root = unpack("i");
  for (const int i : {0, 17, 8191, 8192, 9999})
    CHECK(content(root / "dir" / std::to_string(i)) == std::to_string(i) + " content");
}

TEST_CASE_METHOD(Builds, "the same bytes for any number of threads") {
  Tar low, high;
  for (unsigned i = 0; i < 150; ++i)
    low.file("f" + std::to_string(i), noise(i * 997, i % 7) + std::string(i * 500, 'z'));
  for (unsigned i = 0; i < 60; ++i) high.file("f" + std::to_string(i * 2), noise(i * 1300, i));
  SquashOptions options;
  options.all_time = options.made_time = 1600000000;
  std::vector<std::string> results;
  for (const uint32_t workers : {1U, 2U, 7U, 2U}) {
    options.workers = workers;
    REQUIRE(build("i", {low.bytes(), high.bytes()}, options));
    results.push_back(bytes("i"));
  }
  for (const std::string& other : results) CHECK(other == results[0]);
}

TEST_CASE_METHOD(Builds, "hidden content is not written") {
  const std::string big = noise(3000000, 3);
  const std::string low = Tar()
                              .file("a", big)
                              .directory("d")
                              .file("d/b", big + "1")
                              .directory("o")
                              .file("o/c", big + "2")
                              .file("keep", "k")
                              .bytes();
  const std::string high = Tar().file("a", "new").file(".wh.d", "").file("o/.wh..wh..opq", "").bytes();
  const auto built = build("i", {low, high});
  REQUIRE(built);
  CHECK(built->dead_bytes == 0);
  CHECK(built->image_bytes < 20000);
  CHECK(content(unpack("i") / "a") == "new");
}

TEST_CASE_METHOD(Builds, "a file left out that is visible after all is read again") {
  // By its text "lib/x" seems hidden by the whiteout of the middle layer; but there "lib" was a symlink.
  const std::string bottom = Tar().directory("usr").symlink("lib", "usr").file("lib/x", "needed").bytes();
  const std::string top = Tar().file(".wh.lib", "").directory("lib").file("lib/x", "other").bytes();
  const auto built = build("i", {bottom, top});
  REQUIRE(built);
  CHECK(opened == 2);
  const fs::path root = unpack("i");
  CHECK(content(root / "usr/x") == "needed");
  CHECK(content(root / "lib/x") == "other");
}

TEST_CASE_METHOD(Builds, "hard links to the content of lower layers") {
  const auto built =
      build("i", {Tar().file("a", "old").bytes(), Tar().hardlink("b", "a").bytes(), Tar().file("a", "new").bytes()});
  REQUIRE(built);
  const fs::path root = unpack("i");
  CHECK(content(root / "a") == "new");
  CHECK(content(root / "b") == "old");
}

TEST_CASE_METHOD(Builds, "every compressor and the storing options") {
  const std::string text = std::string(300000, 'x') + noise(1000, 4);
  for (const char* words :
       {"-comp gzip", "-comp lzo", "-comp lz4 -Xhc", "-comp xz -b 64K", "-comp zstd -Xcompression-level 5 -b 1M",
        "-noI -noD -noF -noX", "-no-fragments -no-duplicates"}) {
    INFO(words);
    NullLog log;
    const SquashOptions options = SquashOptions::parse(words, log).value();
    if (!can_write(options.compressor)) continue;  // import_to_file() then uses zstd
    const auto built = build("i", {Tar().file("a", text).file("b", "tiny").bytes()}, options);
    REQUIRE(built);
    CHECK(built->image_bytes > (std::string(words).starts_with("-noI") ? 300000U : 0U));
    fs::remove_all(directory.path / "i.d");
    CHECK(content(unpack("i") / "a") == text);
  }
}

TEST_CASE_METHOD(Builds, "no layers, an empty layer, damage") {
  CHECK(build("i", {}));
  CHECK(build("i", {std::string()}));
  unpack("i");
  const auto damaged = build("j", {Tar().file("a", "x").bytes(), std::string(5000, 'x')});
  REQUIRE_FALSE(damaged);
  CHECK(damaged.error().code() == ErrorCode::image_damaged);
  CHECK(damaged.error().message() == "layer 2: read tar: Unrecognized archive format");
}

TEST_CASE_METHOD(Builds, "a full disk is one clear message") {
  UniqueFd full(open("/dev/full", O_RDWR | O_CLOEXEC));
  const auto writer = SquashfsWriter::create(full.get(), "/store/x.sqsh", {});
  REQUIRE_FALSE(writer);
  CHECK(writer.error().kind() == ErrorKind::no_space);
  CHECK(writer.error().code() == ErrorCode::disk_full);
  CHECK(writer.error().message() == "write /store/x.sqsh: No space left on device");
  CHECK_FALSE(writer.error().hint().empty());
}

TEST_CASE_METHOD(Builds, "what libsquashfs cannot read back to compare is an error, once") {
  for (const bool stored : {false, true}) {
    const auto fd = open_file(directory.path / "w", O_WRONLY | O_CREAT, 0600);
    REQUIRE(fd);
    SquashOptions options;
    options.store_fragments = stored;
    auto writer = SquashfsWriter::create(fd->get(), "/store/x.sqsh", options);
    REQUIRE(writer);
    const auto add = [&](const std::string& bytes) -> Result<void> {
      TRY((*writer)->begin_file(bytes.size()));
      TRY((*writer)->append(bytes));
      return (*writer)->end_file();
    };
    Result<void> done;
    for (unsigned i = 0; i < 2000 && done; ++i) done = add(std::string(2000, 'x') + noise(5000, i % 200));
    if (done) done = (*writer)->forget_duplicates();
    REQUIRE_FALSE(done);
    CHECK(done.error().message() == "write /store/x.sqsh: Bad file descriptor");
  }
}

TEST_CASE("a layer counts only with its digest and size") {
  const std::string layer = Tar().file("a", "x").bytes();
  const auto run = [&](Blob blob) {
    LayerStream stream(
        {std::move(blob)},
        [&, done = false](size_t) mutable -> Result<std::string_view> {
          if (std::exchange(done, true)) return std::string_view();
          return std::string_view(layer);
        },
        [] {});
    return stream.drain();
  };
  CHECK(run({digest_of(layer), layer.size(), "L"}));
  const auto wrong_digest = run({digest_of("y"), layer.size(), "L"});
  REQUIRE_FALSE(wrong_digest);
  CHECK(wrong_digest.error().code() == ErrorCode::image_damaged);
  CHECK(wrong_digest.error().message() == "L: its content has the digest " + digest_of(layer).text());
  const auto wrong_size = run({digest_of(layer), layer.size() + 1, "L"});
  REQUIRE_FALSE(wrong_size);
  CHECK(wrong_size.error().kind() == ErrorKind::corrupt);
}
