// Do ld.so.caches come out as glibc's own tools read and write them?
#include "hooks/inject/ldcache/ld_cache.hpp"

#include <cstring>
#include <filesystem>
#include <random>

#include <catch2/catch.hpp>

#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/unit/inject/ldcache_support.hpp"

namespace fs = std::filesystem;
using namespace situla;
using namespace situla::test;

namespace {

std::string corpus(const std::string& name) {
  return slurp(std::string(SITULA_SOURCE_DIR) + "/tests/corpus/ld_cache/" + name);
}

std::string line(const LdCacheEntry& entry) {
  char text[32];
  std::snprintf(text, sizeof text, " %04x ", entry.flags);
  return std::string(entry.soname) + text + std::string(entry.path);
}

std::vector<std::string> lines(const LdCache& cache) {
  std::vector<std::string> all;
  for (const LdCacheEntry& entry : cache.entries) all.push_back(line(entry));
  return all;
}

/// "SONAME PATH" as ldconfig -p has it.
std::vector<std::string> names(const LdCache& cache) {
  std::vector<std::string> all;
  for (const LdCacheEntry& entry : cache.entries)
    all.push_back(std::string(entry.soname) + " " + std::string(entry.path));
  return all;
}

}  // namespace

TEST_CASE("a cache that ldconfig wrote is read as ldconfig prints it", "[ldcache]") {
  const std::string bytes = corpus("hwcaps_and_32bit");
  const auto cache = LdCache::parse(bytes);
  REQUIRE(cache);
  const std::string lib = "/usr/lib/x86_64-linux-gnu/";
  CHECK(lines(*cache) == std::vector<std::string>{
                             "libfoo.so.10 0303 " + lib + "libfoo.so.10", "libfoo.so.9 0303 " + lib + "libfoo.so.9",
                             "libfoo.so.1 0303 " + lib + "glibc-hwcaps/x86-64-v2/libfoo.so.1",
                             "libfoo.so.1 0303 " + lib + "glibc-hwcaps/x86-64-v3/libfoo.so.1",
                             "libfoo.so.1 0303 /usr/local/lib/libfoo.so.1", "libfoo.so.1 0303 " + lib + "libfoo.so.1",
                             "libfoo.so.1 0001 /usr/lib32/libfoo.so.1", "libbar.so.0 0303 " + lib + "libbar.so.0"});
  CHECK(cache->hwcaps == std::vector<std::string_view>{"x86-64-v2", "x86-64-v3"});
  SECTION("the same behind a block of the old format") {
    const std::string both = corpus("behind_the_old_format");
    const auto again = LdCache::parse(both);
    REQUIRE(again);
    CHECK(again->entries == cache->entries);
    CHECK(again->hwcaps == cache->hwcaps);
  }
  SECTION("written again it says the same, to ldconfig, too") {
    const TempDir directory;
    const std::string before = directory.write("before", bytes), after = directory.write("after", cache->serialize());
    const auto was = ldconfig_prints(before), is = ldconfig_prints(after);
    REQUIRE(was.size() == 8);
    CHECK(is == was);
  }
}

TEST_CASE("caches that are cut off or lie are refused", "[ldcache]") {
  for (const char* name :
       {"cut_off_in_entries", "cut_off_in_texts", "too_many_entries", "name_at_the_end", "no_nul_at_the_end",
        "extension_beyond_the_end", "old_block_without_end", "old_format_only"}) {
    INFO(name);
    const std::string bytes = corpus(name);
    const auto cache = LdCache::parse(bytes);
    REQUIRE_FALSE(cache);
    CHECK(cache.error().kind() == ErrorKind::corrupt);
  }
  CHECK_FALSE(LdCache::parse(""));
  const std::string written = corpus("hwcaps_and_32bit");
  const std::string whole = LdCache::parse(written)->serialize();
  REQUIRE(LdCache::parse(whole));
  for (size_t size = 0; size < whole.size(); ++size) {
    INFO(size);
    CHECK_FALSE(LdCache::parse(std::string_view(whole).substr(0, size)));
  }
}

TEST_CASE("entries that would be gigabytes when written out are refused", "[ldcache]") {
  const std::string path(4000, 'x');
  LdCache cache;
  cache.entries.push_back({"lib.so.1", path, native_ld_flags(false)});
  std::string bytes = cache.serialize();
  const std::string entry = bytes.substr(48, 24), texts = bytes.substr(72);
  constexpr uint32_t kCount = 20000;
  std::string bomb = bytes.substr(0, 48);
  std::memcpy(bomb.data() + 20, &kCount, 4);
  for (uint32_t i = 0; i < kCount; ++i) {
    std::string moved = entry;
    for (const size_t at : {4U, 8U}) {
      uint32_t offset = 0;
      std::memcpy(&offset, moved.data() + at, 4);
      offset += (kCount - 1) * 24;
      std::memcpy(moved.data() + at, &offset, 4);
    }
    bomb += moved;
  }
  const auto parsed = LdCache::parse(bomb + texts);
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().kind() == ErrorKind::corrupt);
}

TEST_CASE("an entry takes the place of all that the cache had for its name and processor", "[ldcache]") {
  const std::string bytes = corpus("hwcaps_and_32bit");
  auto cache = *LdCache::parse(bytes);
  const uint32_t flags = kLdElfLibc6 | kLdX86_64;
  cache.put({{"libfoo.so.1", "/compat/libfoo.so.1", flags},
             {"libfoo.so.1", "/driver/libfoo.so.1", flags},
             {"libnew.so.2", "/driver/libnew.so.2", flags}});
  const std::string lib = "/usr/lib/x86_64-linux-gnu/";
  const std::vector<std::string> expected = {
      "libnew.so.2 /driver/libnew.so.2", "libfoo.so.10 " + lib + "libfoo.so.10", "libfoo.so.9 " + lib + "libfoo.so.9",
      "libfoo.so.1 /compat/libfoo.so.1", "libfoo.so.1 /usr/lib32/libfoo.so.1",   "libbar.so.0 " + lib + "libbar.so.0"};
  CHECK(names(cache) == expected);
  const TempDir directory;
  CHECK(ldconfig_prints(directory.write("cache", cache.serialize())) == expected);
}

TEST_CASE("numbers in names are compared as numbers", "[ldcache]") {
  CHECK(compare_ld_names("libfoo.so.9", "libfoo.so.10") < 0);
  CHECK(compare_ld_names("libfoo.so.10", "libfoo.so.9") > 0);
  CHECK(compare_ld_names("libfoo.so", "libfoo.so.1") < 0);
  CHECK(compare_ld_names("libfoo.so.1", "libfoo.so") > 0);
  CHECK(compare_ld_names("libfoo-2.so", "libfoox.so") < 0);
  CHECK(compare_ld_names("lib1.so", "liba.so") > 0);  // a digit comes after everything else
  CHECK(compare_ld_names("lib007.so", "lib7.so") == 0);
}

TEST_CASE("random caches come back as they were, and ldconfig reads them", "[ldcache]") {
  std::mt19937 random(17);
  const TempDir directory;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::string> texts;
    const size_t count = random() % 200;
    for (size_t i = 0; i < count; ++i) {
      std::string name = "lib";
      for (size_t length = random() % 6; length > 0; --length) name += "ab19.-_"[random() % 7];
      texts.push_back(name + ".so." + std::to_string(random() % 30));
      texts.push_back("/usr/lib" + std::to_string(random() % 3) + "/" + texts.back());
    }
    std::vector<LdCacheEntry> entries;
    for (size_t i = 0; i < texts.size(); i += 2)
      entries.push_back({texts[i], texts[i + 1], kLdElfLibc6 | (random() % 4 == 0 ? kLdI386 : kLdX86_64)});
    LdCache cache;
    cache.put(entries);
    const std::string bytes = cache.serialize();
    const auto again = LdCache::parse(bytes);
    REQUIRE(again);
    CHECK(again->entries == cache.entries);
    CHECK(ldconfig_prints(directory.write("cache", bytes)) == names(cache));
  }
}

TEST_CASE("the order is the one in which ldconfig writes", "[ldcache]") {
  std::mt19937 random(4);
  const TempDir root;
  for (int i = 0; i < 60; ++i) {
    std::string name = "lib";
    for (size_t length = 1 + random() % 4; length > 0; --length) name += "ab19-_+"[random() % 7];
    name += ".so." + std::to_string(random() % 12);
    root.write("usr/lib/" + name, elf_library(ElfLibrary{.soname = name, .is_32bit = random() % 5 == 0}));
  }
  run_ldconfig(root.path());
  const std::string bytes = slurp(root / "etc/ld.so.cache");
  const auto cache = LdCache::parse(bytes);
  REQUIRE(cache);
  REQUIRE(cache->entries.size() > 20);
  LdCache shuffled = *cache;
  std::shuffle(shuffled.entries.begin(), shuffled.entries.end(), random);
  const std::string written = shuffled.serialize();
  const auto again = LdCache::parse(written);
  REQUIRE(again);
  CHECK(names(*again) == names(*cache));
}
