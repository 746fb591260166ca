// Images that nobody's mksquashfs would write. They are made from good ones whose tables are not compressed, so that
// names and numbers can be changed in place. Each must be refused, and nothing may appear outside of the target.
#include <cstdlib>
#include <cstring>
#include <random>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"
#include "hooks/unpack/extract.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/unit/unpack/shell.hpp"

using namespace situla;
using test::shell;

// Impossible sizes make the library ask for impossible memory. malloc(3) answers that with NULL, and so shall the
// sanitizer's.
extern "C" const char* __asan_default_options() __attribute__((visibility("default")));
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}  // NOLINT

namespace {

constexpr size_t kRootReference = 32;  // superblock: offset of the root inode's reference

class Hostile {
 public:
  /// script makes the tree in its working directory.
  explicit Hostile(const std::string& script, const std::string& options = "-noI -noD -noF -noX -no-duplicates") {
    shell("mkdir " + (dir / "tree") + " && cd " + (dir / "tree") + " && " + script);
    shell("cd " + dir.path() + " && mksquashfs tree image -quiet -no-progress -all-root " + options +
          " >/dev/null && mkdir cage outside");
    bytes = test::slurp(dir / "image");
  }

  void rename_entry(const std::string& from, const std::string& to) {
    REQUIRE(from.size() == to.size());
    const size_t at = bytes.rfind(from);  // the directory table follows the inodes
    REQUIRE(at != std::string::npos);
    bytes.replace(at, from.size(), to);
  }

  /// The directory entry of this name then leads to the root directory. (offset, number difference, type, size, name)
  void lead_to_root(const std::string& name) {
    const size_t at = bytes.rfind(name);
    REQUIRE(at != std::string::npos);
    std::memcpy(bytes.data() + at - 8, bytes.data() + kRootReference, 2);
  }

  Result<void> extract() const {
    dir.write("bad", bytes);
    std::filesystem::create_directories(dir / "cage/target");
    const UniqueFd image(open((dir / "bad").c_str(), O_RDONLY));
    const UniqueFd target(open((dir / "cage/target").c_str(), O_RDONLY | O_DIRECTORY));
    return extract_image(image.get(), target.get(), {});
  }

  /// The message of the refusal; and nothing beside the target was made.
  std::string refusal() const {
    const auto done = extract();
    CHECK(std::filesystem::is_empty(dir / "outside"));
    CHECK(std::distance(std::filesystem::directory_iterator(dir / "cage"), std::filesystem::directory_iterator()) == 1);
    if (done) return "accepted";
    CHECK(done.error().kind() == ErrorKind::corrupt);
    CHECK((done.error().code() == ErrorCode::image_damaged || done.error().code() == ErrorCode::image_file));
    return done.error().message();
  }

  test::TempDir dir;
  std::string bytes;
};

}  // namespace

TEST_CASE("Names that are no names are refused") {
  Hostile up("mkdir NAMEA && echo x >NAMEA/XY");
  SECTION("..") {
    up.rename_entry("XY", "..");
    CHECK(up.refusal() == "extract NAMEA/: read directory: impossible name \"..\"");
  }
  SECTION("slash") {
    up.rename_entry("NAMEA", "../xx");
    CHECK(up.refusal() == "extract /: read directory: impossible name \"../xx\"");
  }
  SECTION("absolute") {
    up.rename_entry("NAMEA", "/tmpx");
    CHECK(up.refusal() == "extract /: read directory: impossible name \"/tmpx\"");
  }
  SECTION("NUL") {
    up.rename_entry("NAMEA", std::string("AB\0CD", 5));
    CHECK(up.refusal() == "extract /: read directory: impossible name \"AB\\x00CD\"");
  }
}

TEST_CASE("A dot is refused") {
  Hostile dot("echo x >@");
  dot.rename_entry("@", ".");
  CHECK(dot.refusal() == "extract /: read directory: impossible name \".\"");
}

TEST_CASE("A link and a directory of the same name do not lead out") {
  SECTION("link first") {
    Hostile twice("mkdir NAMEB && echo x >NAMEB/evil && ln -s ../../outside NAMEA");
    twice.rename_entry("NAMEB", "NAMEA");
    CHECK(twice.refusal() == "extract NAMEA: the name appears twice, or the target was not empty");
  }
  SECTION("directory first") {
    Hostile twice("mkdir NAMEA && echo x >NAMEA/evil && ln -s ../../outside NAMEB");
    twice.rename_entry("NAMEB", "NAMEA");
    CHECK(twice.refusal() == "extract NAMEA: the name appears twice, or the target was not empty");
  }
  SECTION("link and file") {
    Hostile twice("ln -s ../../outside/made NAMEA && echo x >NAMEB");
    twice.rename_entry("NAMEB", "NAMEA");
    CHECK(twice.refusal() == "extract NAMEA: the name appears twice, or the target was not empty");
  }
}

TEST_CASE("Links that point out of the tree are only text") {
  const Hostile links("ln -s ../../../outside up && ln -s /etc/passwd absolute && mkdir d && ln -s .. d/parent");
  REQUIRE(links.extract());
  CHECK(std::filesystem::read_symlink(links.dir / "cage/target/up") == "../../../outside");
  CHECK(std::filesystem::is_empty(links.dir / "outside"));
}

TEST_CASE("A directory that contains itself, or is in two places, is refused") {
  Hostile loop("mkdir -p a/LOOPDIR");
  loop.lead_to_root("LOOPDIR");
  CHECK(loop.refusal() == "extract a/LOOPDIR: a directory with two names");
}

TEST_CASE("A tree deeper than any real one is refused, and can be removed") {
  const Hostile deep("p=.; for i in $(seq 450); do p=$p/d; done; mkdir -p $p");
  const auto done = deep.extract();
  REQUIRE_FALSE(done);
  CHECK(done.error().message().find("directories nested deeper than 400") != std::string::npos);
  CHECK(remove_tree(deep.dir / "cage"));
}

TEST_CASE("Sizes that do not fit the data are refused") {
  // A regular file's inode ends with its size; it is found by its modification time.
  Hostile huge("printf 1234567890 >file && touch -d @287454020 file");  // 0x11223344
  const size_t inode = huge.bytes.rfind(std::string("\x44\x33\x22\x11", 4)) - 8;
  REQUIRE(huge.bytes[inode] == 2);  // a basic file
  const size_t size_at = inode + 16 + 12;
  uint32_t size = 0;
  std::memcpy(&size, huge.bytes.data() + size_at, sizeof size);
  REQUIRE(size == 10);
  for (const uint32_t wrong : {0xffffffffU, 0x7fffffffU, 200000U, 131073U}) {
    CAPTURE(wrong);
    std::memcpy(huge.bytes.data() + size_at, &wrong, sizeof wrong);
    REQUIRE(remove_tree(huge.dir / "cage/target"));
    CHECK(huge.refusal() != "accepted");
  }
  // Within one block the library fills up with zeros: wrong, but nobody else's memory.
  const uint32_t within = 131071;
  std::memcpy(huge.bytes.data() + size_at, &within, sizeof within);
  REQUIRE(remove_tree(huge.dir / "cage/target"));
  if (huge.extract()) {
    CHECK(test::slurp(huge.dir / "cage/target/file") == "1234567890" + std::string(131061, '\0'));
  }
}

TEST_CASE("Damaged images end in an error or in a tree, never in a crash or a hang") {
  const std::string script =
      "mkdir -p a/b && seq 3000 >a/text && head -c 300000 /dev/urandom >a/b/random && ln a/text hard && "
      "ln -s a/text link && mkfifo fifo && setfattr -n user.x -v y a/text 2>/dev/null; touch a/b/c d";
  for (const char* options : {"-noI -noD -noF -noX", "-comp zstd", "-comp gzip", "-comp lzo"}) {
    Hostile good(script, options);
    const std::string original = good.bytes;
    std::mt19937 random(7);  // NOLINT: the same damage in every run
    for (int round = 0; round < 120; ++round) {
      good.bytes = original;
      if (round % 10 == 0) {
        good.bytes.resize(random() % original.size());
      } else {
        // Tables and superblock are at both ends; the file data in between is not interesting.
        for (int i = 0; i < 1 + round % 5; ++i) {
          const size_t window = random() % 3 == 0 ? 96 : 1500;
          const size_t from = window == 96 ? 0 : original.size() - std::min(original.size(), size_t{6000});
          good.bytes[from + random() % std::min(window == 96 ? size_t{96} : size_t{6000}, original.size() - from)] =
              static_cast<char>(random());
        }
      }
      auto child = fork_child();
      REQUIRE(child);
      if (!*child) {
        (void)good.extract();
        _exit(0);
      }
      const auto status = child->wait_for(std::chrono::seconds(60));
      REQUIRE(status);
      CAPTURE(options, round);
      REQUIRE(status->has_value());
      CHECK((*status)->text() == "exited with return code 0");
      REQUIRE(remove_tree(good.dir / "cage/target"));
    }
  }
}
