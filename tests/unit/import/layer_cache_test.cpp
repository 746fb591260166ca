// Does an image made of layers that an earlier import had equal the one made of fetched layers, and is nothing trusted
// that changed meanwhile?
#include "hooks/import/layer_cache.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "hooks/import/import.hpp"
#include "hooks/registry/sha256.hpp"
#include "tests/support/noise.hpp"
#include "tests/unit/import/tar.hpp"

using namespace situla;
using test::noise;
using test::Tar;
namespace fs = std::filesystem;

namespace {

class NotingProgress final : public Progress {
 public:
  void phase(std::string_view) noexcept override {}
  void bytes(uint64_t, uint64_t) noexcept override {}
  void note(std::string_view text) noexcept override { notes += std::string(text) + "\n"; }
  void finish(std::string_view) noexcept override {}
  std::string notes;
};

struct CachedBuilds {
  /// Hundreds of files are synced here, which need not wait for a disk.
  fs::path path = (fs::exists("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path()) /
                  ("situla-reuse-" + std::to_string(getpid()));
  NotingProgress progress;
  NullLog log;
  std::string squash_options;

  CachedBuilds() { fs::create_directories(path); }
  CachedBuilds(const CachedBuilds&) = delete;
  CachedBuilds& operator=(const CachedBuilds&) = delete;
  ~CachedBuilds() { (void)remove_tree(path.string()); }

  static std::string descriptor(const std::string& bytes) {
    return "{\"digest\":\"" + digest_of(bytes).text() + "\",\"size\":" + std::to_string(bytes.size()) + "}";
  }
  void write(const fs::path& file, const std::string& content) const {
    fs::create_directories((path / file).parent_path());
    std::ofstream(path / file, std::ios::binary) << content;
  }
  /// Imports an image of these layers, bottom first, into NAME.sqsh. lost: layers whose blob is not there.
  Result<ImportedImage> import(const std::string& name, const std::vector<std::string>& layers, bool with_cache = true,
                               const std::vector<size_t>& lost = {}) {
    const std::string config = R"({"architecture":"amd64"})";
    std::string list;
    for (const std::string& layer : layers) list += (list.empty() ? "" : ",") + descriptor(layer);
    fs::remove_all(path / "image");
    write("image/version", "Directory Transport Version: 1.1\n");
    write("image/manifest.json",
          "{\"schemaVersion\":2,\"config\":" + descriptor(config) + ",\"layers\":[" + list + "]}");
    write("image/" + digest_of(config).hex(), config);
    for (const std::string& layer : layers) write("image/" + digest_of(layer).hex(), layer);
    for (const size_t i : lost) fs::remove(path / "image" / digest_of(layers[i]).hex());
    ImportRequest request;
    request.image = "dir:" + (path / "image").string();
    request.platform = "amd64";
    request.settings.squash_options = squash_options;
    fs::remove(path / (name + ".sqsh"));
    return import_to_file(request, path / (name + ".sqsh"), with_cache ? path / "cache" : "", progress, log);
  }
  [[nodiscard]] fs::path unpack(const std::string& name) const {
    const fs::path target = path / (name + ".d");
    REQUIRE(remove_tree(target.string()));  // directories that its user may not write to, too
    const std::string command = "unsquashfs -no-progress -no-xattrs -d '" + target.string() + "' '" +
                                (path / name).string() + ".sqsh' >/dev/null 2>&1";
    REQUIRE(std::system(command.c_str()) == 0);
    return target;
  }
  /// Content, links, modes, times: by the system's own tools.
  void same_tree(const std::string& one, const std::string& other) const {
    const auto listing = [&](const std::string& name) {
      const fs::path root = unpack(name);
      const std::string file = path / (name + ".list");
      const std::string command =
          "cd '" + root.string() +
          "' && { find . ! -path './etc/*' -printf '%p %y %m %n %s %T@ %l\\n' | grep -v ' d .* ' | sort; "
          "find . -type f ! -path ./etc/rc -print0 | sort -z | xargs -0r sha256sum; } >'" +
          file + "'";
      REQUIRE(std::system(command.c_str()) == 0);
      return file;
    };
    CHECK(std::system(("diff '" + listing(one) + "' '" + listing(other) + "' >&2").c_str()) == 0);
  }
  /// Imports B with what A left, and without; both must be equal.
  ImportedImage both(const std::vector<std::string>& first, const std::vector<std::string>& second,
                     const std::vector<size_t>& lost = {}) {
    REQUIRE(import("first", first));
    const auto reused = import("reused", second, true, lost);
    if (!reused) FAIL(reused.error().message());
    REQUIRE(import("fetched", second, false));
    same_tree("reused", "fetched");
    return *reused;
  }
};

std::string base_layer(unsigned small = 400, unsigned big = 12) {
  Tar tar;
  tar.directory("usr").directory("usr/lib");
  for (unsigned i = 0; i < small; ++i) tar.file("usr/lib/small" + std::to_string(i), noise(i * 37 % 5000, i % 90));
  for (unsigned i = 0; i < big; ++i) tar.file("usr/lib/big" + std::to_string(i), noise(300000 + i * 7001, i));
  tar.file("usr/lib/twin", noise(300000, 0)).file("usr/lib/zeros", std::string(500000, '\0'));
  tar.file("usr/lib/half", noise(200000, 3) + std::string(600000, '\0') + noise(999, 4));
  tar.hardlink("usr/lib/hard", "usr/lib/big3").symlink("lib", "usr/lib").directory("closed", 0);
  return tar.bytes();
}

}  // namespace

TEST_CASE_METHOD(CachedBuilds, "layers of an earlier import are neither fetched nor compressed again") {
  const std::string base = base_layer();
  const std::string middle = Tar().file("usr/lib/big1", "changed").file(".wh.closed", "").bytes();
  const std::string top = Tar().directory("app").file("app/new", noise(200000, 77)).bytes();
  const std::string old_top = Tar().directory("app").file("app/old", noise(100000, 78)).bytes();
  const ImportedImage image = both({base, middle, old_top}, {base, middle, top}, {0, 1});
  CHECK(image.fetched_bytes == top.size());
  CHECK(image.unpacked_bytes == top.size());
  CHECK(fs::file_size(path / "reused.sqsh") < fs::file_size(path / "fetched.sqsh") * 102 / 100);
}

TEST_CASE_METHOD(CachedBuilds, "with every compressor, and by its own file only") {
  const std::string base = base_layer(80, 4);
  const std::string top = Tar().file("top", "x").bytes();
  for (const char* words : {"-comp gzip", "-comp lz4", "-comp xz -b 64K", "-comp zstd -b 1M", "-noI -noD -noF -noX",
                            "-no-fragments -no-duplicates"}) {
    INFO(words);
    squash_options = words;
    CHECK(both({base}, {base, top}, {0}).fetched_bytes == top.size());
  }
  squash_options = "-comp gzip -b 32K";
  CHECK_FALSE(import("other", {base, top}, true, {0}));
  CHECK(import("other", {base, top}));
}

TEST_CASE_METHOD(CachedBuilds,
                 "a file that the earlier image hides has its layer fetched, one that both hide does not") {
  const std::string base = base_layer();
  const std::string hides = Tar().file("usr/lib/big2", "short").bytes();
  const std::string other = Tar().file("else", "x").bytes();
  CHECK(both({base, hides}, {base, hides, other}, {0, 1}).fetched_bytes == other.size());
  REQUIRE(import("first", {base, hides}));
  fs::remove_all(path / "cache");
  REQUIRE(import("first", {base, hides}));
  const auto without = import("reused", {base, other}, true, {0});
  REQUIRE_FALSE(without);
  CHECK(without.error().kind() == ErrorKind::not_found);
  both({base, hides}, {base, other});
}

TEST_CASE_METHOD(CachedBuilds, "few small files are packed anew, so that no dead fragments come along") {
  Tar tar, hide;
  for (unsigned i = 0; i < 3000; ++i) tar.file("f" + std::to_string(i), noise(2000, i));
  for (unsigned i = 0; i < 3000; ++i)
    if (i % 100 != 0) hide.file("f" + std::to_string(i), "");
  const ImportedImage image = both({tar.bytes()}, {tar.bytes(), hide.bytes()}, {0});
  CHECK(image.image_bytes < 30 * 2000 * 2 + 100000);
}

TEST_CASE_METHOD(CachedBuilds, "what changed, vanished or was damaged since is not used") {
  const std::string base = base_layer();
  const std::string top = Tar().file("top", "x").bytes();
  REQUIRE(import("first", {base}));
  const std::string index = path / "cache" / "situla-layers" / (digest_of(base).hex() + ".zstd-131072");
  REQUIRE(fs::exists(index));

  SECTION("the squashfs file is gone") {
    fs::remove(path / "first.sqsh");
  }
  SECTION("the squashfs file was written to") {
    std::fstream file(path / "first.sqsh", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(5000).write("damage", 6);
  }
  SECTION("the squashfs file is another one") {
    fs::copy_file(path / "first.sqsh", path / "copy");
    fs::rename(path / "copy", path / "first.sqsh");
  }
  SECTION("the index is damaged") {
    std::fstream file(index, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(200).write("damage", 6);
  }
  SECTION("the index is cut off") {
    fs::resize_file(index, fs::file_size(index) / 2);
  }
  SECTION("the index is that of another layer") {
    REQUIRE(import("other", {top}));
    fs::copy_file(path / "cache" / "situla-layers" / (digest_of(top).hex() + ".zstd-131072"), index,
                  fs::copy_options::overwrite_existing);
  }
  CHECK_FALSE(import("reused", {base, top}, true, {0}));
  REQUIRE(import("reused", {base, top}));
  REQUIRE(import("fetched", {base, top}, false));
  same_tree("reused", "fetched");
}

TEST_CASE_METHOD(CachedBuilds, "damage that nobody could know of is found, and the layers are fetched instead") {
  const std::string base = base_layer();
  const std::string top = Tar().file("top", "x").bytes();
  REQUIRE(import("first", {base}));
  // The file ends in the middle, with the size and time it had: as after a disk error.
  const auto time = fs::last_write_time(path / "first.sqsh");
  const auto size = fs::file_size(path / "first.sqsh");
  const std::string whole = read_file(path / "first.sqsh", size_t{1} << 30U).value();
  std::fstream file(path / "first.sqsh", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(whole.size() / 2))
      .write(std::string(size - whole.size() / 2, '\0').data(), static_cast<std::streamoff>(size - whole.size() / 2));
  file.close();
  fs::last_write_time(path / "first.sqsh", time);
  REQUIRE(import("reused", {base, top}));
  REQUIRE(import("fetched", {base, top}, false));
  same_tree("reused", "fetched");
}

TEST_CASE_METHOD(CachedBuilds,
                 "other content in the same place, of the same size and time, is found, in blocks and in fragments") {
  squash_options = "-noI -noD -noF -noX";
  const std::string secret = "the content that was imported";
  const std::string block = std::string(200000, 'b') + secret + std::string(1000, 'c');
  const bool in_block = GENERATE(true, false);
  const std::string base = in_block ? Tar().file("planted", block).bytes() : Tar().file("planted", secret).bytes();
  const std::string top = Tar().file("top", "x").bytes();
  REQUIRE(import("first", {base}));
  const auto time = fs::last_write_time(path / "first.sqsh");
  std::string whole = read_file(path / "first.sqsh", size_t{1} << 30U).value();
  const size_t at = whole.find(secret);
  REQUIRE(at != std::string::npos);
  std::fstream file(path / "first.sqsh", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at)).write("THE", 3);
  file.close();
  fs::last_write_time(path / "first.sqsh", time);
  const auto reused = import("reused", {base, top});
  REQUIRE(reused);
  CHECK_THAT(progress.notes, Catch::Contains("holds something else than was written there"));
  CHECK(reused->fetched_bytes == base.size() + top.size());
  REQUIRE(import("fetched", {base, top}, false));
  same_tree("reused", "fetched");
}

TEST_CASE_METHOD(CachedBuilds, "a cache that others may write to is not used, but one's own in it") {
  const std::string base = base_layer();
  const std::string top = Tar().file("top", "x").bytes();
  fs::create_directories(path / "cache");
  fs::permissions(path / "cache", fs::perms::all | fs::perms::sticky_bit);
  REQUIRE(import("first", {base}));
  CHECK_FALSE(fs::exists(path / "cache" / "situla-layers"));
  const fs::path own = path / "cache" / ("situla-" + std::to_string(geteuid()));
  CHECK(fs::exists(own / "situla-layers"));
  CHECK((fs::status(own).permissions() & fs::perms::all) == fs::perms::owner_all);
  CHECK(import("reused", {base, top}, true, {0}));
}

TEST_CASE_METHOD(CachedBuilds,
                 "blocks that cannot be read are found while they are taken, and every layer is fetched instead") {
  Tar tar, hide;
  for (unsigned i = 0; i < 3000; ++i) tar.file("f" + std::to_string(i), std::to_string(i) + std::string(2000, 'x'));
  for (unsigned i = 0; i < 3000; ++i)
    if (i % 100 != 0) hide.file("f" + std::to_string(i), "");
  REQUIRE(import("first", {tar.bytes()}));
  const auto time = fs::last_write_time(path / "first.sqsh");
  std::fstream file(path / "first.sqsh", std::ios::in | std::ios::out | std::ios::binary);
  uint64_t inodes = 0;  // where they begin: squashfs 4.0, superblock, bytes 64 to 71
  file.seekg(64).read(reinterpret_cast<char*>(&inodes), sizeof inodes);
  REQUIRE(inodes > 1000);
  file.seekp(100).write(std::string(inodes - 100, '\xff').data(), static_cast<std::streamoff>(inodes - 100));
  file.close();
  fs::last_write_time(path / "first.sqsh", time);
  const auto reused = import("reused", {tar.bytes(), hide.bytes()});
  REQUIRE(reused);
  CHECK_THAT(progress.notes, Catch::Contains("fetching every layer instead"));
  CHECK(reused->fetched_bytes == tar.bytes().size() + hide.bytes().size());
  CHECK(fs::file_size(path / "reused.sqsh") == reused->image_bytes);  // nothing of the first attempt is behind it
  REQUIRE(import("fetched", {tar.bytes(), hide.bytes()}, false));
  same_tree("reused", "fetched");
}

TEST_CASE_METHOD(CachedBuilds, "random images upon each other's layers") {
  const unsigned seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto name = [&] { return std::string(1, static_cast<char>('a' + random() % 5)); };
  const auto some_path = [&] {
    std::string text = name();
    while (random() % 3 != 0) text += "/" + name();
    return text;
  };
  const auto random_layer = [&] {
    Tar tar;
    for (size_t i = 0, n = random() % 30; i < n; ++i) {
      const std::string at = some_path();
      switch (random() % 7) {
        case 0:
          tar.directory(at, random() % 3 == 0 ? 0500 : 0755);
          break;
        case 1:
          tar.symlink(at, random() % 2 == 0 ? "/" + some_path() : some_path());
          break;
        case 2: {
          const size_t slash = at.rfind('/');
          tar.file(slash == std::string::npos ? ".wh." + at : at.substr(0, slash) + "/.wh." + at.substr(slash + 1), "");
          break;
        }
        case 3:
          tar.add(at, "", {'6', 0600, {}, {}});
          break;
        default:
          tar.file(at, noise(random() % (random() % 5 == 0 ? 400000 : 3000), static_cast<unsigned>(random() % 20)));
      }
    }
    return tar.bytes();
  };
  std::vector<std::string> pool;
  for (int i = 0; i < 6; ++i) pool.push_back(random_layer());
  for (int round = 0; round < 12; ++round) {
    std::vector<std::string> layers;
    for (size_t i = 0, n = 1 + random() % 5; i < n; ++i) layers.push_back(pool[random() % pool.size()]);
    const std::string target = "i" + std::to_string(round);
    const auto reused = import(target, layers);
    const auto fetched = import("fetched", layers, false);
    REQUIRE(reused.has_value() == fetched.has_value());
    if (reused) same_tree(target, "fetched");
  }
}
