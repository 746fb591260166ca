// Does the image's dynamic linker find the node's libraries of the fabric? The plan of hooks/inject/fabric, applied.
#include "hooks/inject/fabric/fabric.hpp"

#include <cstdlib>
#include <filesystem>

#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "hooks/inject/ldcache/ld_cache.hpp"
#include "tests/userns/inject/apply_support.hpp"

using namespace situla;
namespace fs = std::filesystem;

namespace {

/// lib/<file>, with this SONAME and a text in it that tells it from others.
void make_library(const std::string& directory, const std::string& file, const std::string& soname,
                  const std::string& text, const std::string& needs = "") {
  fs::create_directories(directory);
  const std::string command = "cd " + shell_quote(directory) + " && echo 'const char *text(void) { return \"" + text +
                              "\"; }' | gcc -x c -fPIC -nostdlib -shared -Wl,--no-as-needed -Wl,-soname," + soname +
                              " -o " + file + " - -x none " + needs + " && ln -sf " + file + " " + soname;
  REQUIRE(std::system(command.c_str()) == 0);
}

bool contains(const std::string& path, std::string_view text) {
  const auto content = read_file(path);
  return content && content->find(text) != std::string::npos;
}

/// What the cache says of a SONAME; empty: nothing.
std::string cached(const std::string& root, std::string_view soname) {
  const auto bytes = read_file(root + "/etc/ld.so.cache");
  const auto cache = bytes ? LdCache::parse(*bytes) : Result<LdCache>(tl::unexpected<Error>(bytes.error()));
  if (!cache) return "";
  for (const LdCacheEntry& entry : cache->entries)
    if (entry.soname == soname) return std::string(entry.path);
  return "";
}

}  // namespace

TEST_CASE(
    "the node's library is where the image's was, what it needs and the image lacks is found, modules come along") {
  const test::ApplyTest test;
  const std::string node = test.dir / "host/node", image = test.dir / "root";
  make_library(node + "/usr/lib64", "libcxi.so.1.5", "libcxi.so.1", "node cxi");
  make_library(node + "/usr/lib64", "libfabric.so.1.18.0", "libfabric.so.1", "node fabric", "./libcxi.so.1.5");
  make_library(node + "/usr/lib64/libfabric", "libextra-fi.so.1.0", "libextra-fi.so.1", "node provider");
  make_library(image + "/usr/lib64", "libc.so.6.0", "libc.so.6", "image libc");
  make_library(image + "/usr/lib64", "libfabric.so.1.9.0", "libfabric.so.1", "image fabric");
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(image)) test::give_to_user(entry.path());
  test.run([&](test::ApplyScene& scene) -> Result<void> {
    TRY_ASSIGN(const HostRoots roots, HostRoots::open(node, node));
    TRY_ASSIGN(const ContainerEdits edits, fabric::edits({Fabric::ofi}, {roots, scene.root, "", scene.log}));
    TRY(scene.apply(edits));
    EXPECT(contains(scene.in_root("/usr/lib64/libfabric.so.1"), "node fabric"));
    EXPECT(cached(scene.path, "libcxi.so.1") == "/usr/lib/situla-fabric/libcxi.so.1");
    EXPECT(contains(scene.in_root("/usr/lib/situla-fabric/libcxi.so.1"), "node cxi"));
    EXPECT(contains(scene.in_root("/usr/lib64/libfabric/libextra-fi.so.1"), "node provider"));
    EXPECT(contains(scene.in_root("/usr/lib64/libc.so.6"), "image libc"));
    EXPECT(scene.log.text(LogLevel::warning).empty());
    return {};
  });
}
