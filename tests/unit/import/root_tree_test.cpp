// Do layers merge as the OCI image-spec and umoci say? Each case is a list of layers and the tree that must come out.
#include "hooks/squashfs/root_tree.hpp"

#include <map>

#include <catch2/catch.hpp>

#include "hooks/import/hidden_paths.hpp"

using namespace situla;

namespace {

TarEntry entry(EntryKind kind, const std::string& path, const std::string& target = "", uint16_t mode = 0755) {
  TarEntry made;
  made.kind = kind;
  made.path = path;
  made.target = target;
  made.mode = mode;
  return made;
}
TarEntry dir(const std::string& path, uint16_t mode = 0755) {
  return entry(EntryKind::directory, path, "", mode);
}
TarEntry file(const std::string& path, uint16_t mode = 0644) {
  return entry(EntryKind::file, path, "", mode);
}
TarEntry soft(const std::string& path, const std::string& target) {
  return entry(EntryKind::symlink, path, target, 0777);
}
TarEntry hard(const std::string& path, const std::string& target) {
  return entry(EntryKind::hardlink, path, target);
}

using Layers = std::vector<std::vector<TarEntry>>;  // bottom first

/// "path kind mode #inode": inodes are shown where two names share one.
Result<std::vector<std::string>> merge(const Layers& layers) {
  LayerTable table;
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    table.begin_layer();
    for (const TarEntry& made : *layer) TRY(table.add(made));
    table.end_layer();
  }
  RootTree tree(table);
  for (size_t layer = table.layers(); layer-- > 0;) TRY(tree.apply(layer));
  tree.finish();
  tree.open_to_owner();
  std::vector<std::string> lines;
  std::map<uint32_t, std::string> first;
  std::vector<std::pair<uint32_t, std::string>> open{{RootTree::kRoot, ""}};
  while (!open.empty()) {
    const auto [node, path] = open.back();
    open.pop_back();
    for (const uint32_t child : tree.children(node)) {
      const LayerEntry& made = table.entry(tree.node(child).inode);
      const std::string name = path + "/" + std::string(tree.name(child));
      std::string line = name + " " + "dfshpD"[static_cast<int>(made.kind)] + std::to_string(made.mode / 64) +
                         std::to_string(made.mode / 8 % 8) + std::to_string(made.mode % 8);
      const auto [known, fresh] = first.emplace(tree.node(child).inode, name);
      if (!fresh) line += " =" + known->second;
      lines.push_back(line);
      if (made.kind == EntryKind::directory) open.emplace_back(child, name);
    }
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

void check(const Layers& layers, const std::vector<std::string>& expected) {
  const auto lines = merge(layers);
  REQUIRE(lines);
  CHECK(*lines == expected);
}

}  // namespace

TEST_CASE("replacing") {
  check({{file("a", 0600)}, {file("a", 0644)}}, {"/a f644"});
  check({{dir("a", 0700), file("a/x")}, {dir("a", 0750)}}, {"/a d750", "/a/x f644"});
  check({{dir("a"), file("a/x")}, {file("a")}}, {"/a f644"});
  check({{file("a")}, {dir("a"), file("a/y")}}, {"/a d755", "/a/y f644"});
  check({{dir("a"), file("a/x")}, {file("a")}, {dir("a")}}, {"/a d755"});
  check({{file("a"), file("a", 0600)}}, {"/a f600"});
}

TEST_CASE("whiteouts hide lower layers only") {
  check({{file("a"), file("b")}, {file(".wh.a")}}, {"/b f644"});
  check({{dir("d"), file("d/a")}, {file(".wh.d")}}, {});
  check({{dir("d"), file("d/a")}, {dir("d"), file("d/b"), file(".wh.d")}}, {"/d d755", "/d/b f644"});
  check({{file("a", 0600)}, {file("a"), file(".wh.a")}}, {"/a f644"});
  check({{file("a", 0600)}, {file(".wh.a"), file("a")}}, {"/a f644"});
  check({{dir("d"), dir("d/e"), file("d/e/x"), file("d/y")}, {dir("d"), file("d/n"), file("d/.wh..wh..opq")}},
        {"/d d755", "/d/n f644"});
  check({{dir("d"), file("d/y")}, {file("d/.wh..wh..opq"), dir("d"), file("d/n")}}, {"/d d755", "/d/n f644"});
  check({{}, {file("no/.wh.x"), file("no/.wh..wh..opq")}}, {});
  check({{file("a")}, {file(".wh.a")}, {file("a", 0600)}}, {"/a f600"});
}

TEST_CASE("hard links") {
  check({{file("a"), hard("b", "a")}}, {"/a f644", "/b f644 =/a"});
  check({{file("a")}, {hard("b", "/a")}}, {"/a f644", "/b f644 =/a"});
  // The target is what the name meant when the link was made.
  check({{file("a", 0600)}, {hard("b", "a")}, {file("a", 0640)}}, {"/a f640", "/b f600"});
  check({{file("a", 0600)}, {hard("b", "a"), file(".wh.a")}}, {"/b f600"});
  check({{soft("l", "x"), hard("m", "l")}}, {"/l s777", "/m s777 =/l"});
  CHECK_FALSE(merge({{hard("b", "missing")}}));
  CHECK_FALSE(merge({{dir("d"), hard("b", "d")}}));
}

TEST_CASE("symlinks on the way are followed inside the tree") {
  check({{dir("usr"), dir("usr/lib"), soft("lib", "usr/lib")}, {file("lib/x")}},
        {"/lib s777", "/usr d755", "/usr/lib d755", "/usr/lib/x f644"});
  check({{soft("up", "../../../.."), file("up/x")}}, {"/up s777", "/x f644"});
  check({{soft("abs", "/d"), file("abs/x")}}, {"/abs s777", "/d d755", "/d/x f644"});
  check({{dir("d"), file("d/a"), soft("l", "d")}, {file("l/.wh.a")}}, {"/d d755", "/l s777"});
  check({{dir("d"), soft("l", "d")}, {dir("l"), file("l/x")}}, {"/d d755", "/l d755", "/l/x f644"});
  CHECK_FALSE(merge({{soft("a", "b"), soft("b", "a"), file("a/x")}}));
}

TEST_CASE("links on the way are limited in a path, as in Linux, and in the whole image") {
  const auto chain = [](int links) {
    std::vector<TarEntry> layer{dir("d")};
    for (int i = 0; i < links; ++i)
      layer.push_back(soft("l" + std::to_string(i), i == 0 ? "d" : "l" + std::to_string(i - 1)));
    layer.push_back(file("l" + std::to_string(links - 1) + "/x"));
    return merge({layer});
  };
  CHECK(chain(40));
  REQUIRE_FALSE(chain(41));
  CHECK_THAT(chain(41).error().text(), Catch::Contains("too many levels of symbolic links"));
  // Each path leads over 40 links with 2,000 names in each.
  std::vector<TarEntry> layer{dir("d")};
  std::string dots;
  for (int i = 0; i < 2000; ++i) dots += "./";
  for (int i = 0; i < 40; ++i)
    layer.push_back(soft("l" + std::to_string(i), dots + (i == 0 ? "d" : "l" + std::to_string(i - 1))));
  for (int i = 0; i < 500; ++i) layer.push_back(file("l39/e" + std::to_string(i) + "/x"));
  const auto merged = merge({layer});
  REQUIRE_FALSE(merged);
  CHECK(merged.error().kind() == ErrorKind::unsupported);
  CHECK_THAT(merged.error().text(), Catch::Contains("lead over more than 16"));
}

// before: merged; 131,072 such files, 2.5 MB of layer, took 26 s
TEST_CASE("files in two deep directories by turns: their paths are walked within limits") {
  std::string deep;
  for (int i = 0; i < 2000; ++i) deep += "a/";
  std::vector<TarEntry> layer;
  for (int i = 0; i < 9000; ++i) layer.push_back(file(std::to_string(i % 2) + "/" + deep + "f"));
  const auto merged = merge({layer});
  REQUIRE_FALSE(merged);
  CHECK_THAT(merged.error().text(), Catch::Contains("lead over more than 16"));
}

TEST_CASE("a merge can be cancelled") {
  LayerTable table;
  table.begin_layer();
  REQUIRE(table.add(file("a")));
  table.end_layer();
  RootTree tree(table);
  const auto ended = tree.apply(0, [] { return true; });
  REQUIRE_FALSE(ended);
  CHECK(ended.error().kind() == ErrorKind::cancelled);
}

TEST_CASE("hostile names stay inside") {
  check({{file("../../etc/x"), file("/abs"), file("a//./b/../c")}},
        {"/a d755", "/a/c f644", "/abs f644", "/etc d755", "/etc/x f644"});
  for (const std::string& path : {std::string(256, 'n'), std::string("d/") + std::string(300, 'n'), [] {
                                    std::string deep;
                                    for (int i = 0; i < 600; ++i) deep += "dirname/";
                                    return deep + "x";
                                  }()}) {
    const auto merged = merge({{file(path)}});
    REQUIRE_FALSE(merged);
    CHECK(merged.error().kind() == ErrorKind::corrupt);
  }
  const std::string longest(255, 'n');
  check({{file(longest)}}, {"/" + longest + " f644"});
  check({{file(longest), dir("d"), file("d/" + longest)}, {file("d/.wh." + longest)}},
        {"/d d755", "/" + longest + " f644"});
  CHECK_FALSE(merge({{file(".wh.n" + longest)}}));
  CHECK_FALSE(merge({{file(".wh." + longest + "/x")}}));
  CHECK_FALSE(merge({{soft("x", std::string(5000, 't'))}}));
  CHECK_FALSE(merge({{file("/")}}));
  CHECK_FALSE(merge({{file("a/..")}}));
}

TEST_CASE("names that no file can have do not come in through links, paths or the directory above") {
  CHECK_FALSE(merge({{soft("l", std::string(256, 'n')), file("l/x")}}));
  CHECK_FALSE(merge({{soft("l", "d/" + std::string(4000, 'n') + "/e"), file("l/x")}}));
  CHECK_FALSE(merge({{soft("l", std::string("a\0b", 3)), file("l/x")}}));
  CHECK(merge({{soft("l", std::string(255, 'n')), file("l/x")}}));
  LayerTable table;
  RootTree tree(table);
  LayerEntry made;
  for (const size_t size : {size_t{256}, size_t{65536}, size_t{2} << 20U}) {
    const auto done = tree.make_directories("a/" + std::string(size, 'n') + "/b");
    REQUIRE_FALSE(done);
    CHECK(done.error().kind() == ErrorKind::corrupt);
    CHECK_THAT(done.error().text(), Catch::Contains(std::to_string(size) + " bytes, more than 255"));
    CHECK_FALSE(tree.place("a/" + std::string(size, 'n'), table.add_made(made)));
    CHECK_FALSE(tree.put(RootTree::kRoot, std::string(size, 'n'), table.add_made(made)));
  }
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("a\0b", 3)})
    CHECK_FALSE(tree.put(RootTree::kRoot, name, table.add_made(made)));
  CHECK_FALSE(tree.make_directories(std::string("a\0b", 3)));
  for (const uint32_t child : tree.children(RootTree::kRoot)) CHECK(tree.name(child) == "a");
}

TEST_CASE("The arena of names refuses what it cannot hold") {
  TextArena arena;
  CHECK(arena.get(TextArena::kEmpty).empty());
  const auto longest = arena.add(std::string(TextArena::kMaxText, 'x'));
  REQUIRE(longest);
  CHECK(arena.get(*longest).size() == TextArena::kMaxText);
  for (const size_t size : {TextArena::kMaxText + 1, size_t{1} << 20U, size_t{3} << 20U})
    CHECK_FALSE(arena.add(std::string(size, 'x')));
  CHECK_FALSE(arena.add(std::string_view("a\0b", 3)));
  const auto next = arena.add("next");
  REQUIRE(next);
  CHECK(arena.get(*next) == "next");
  CHECK(arena.get(*longest) == std::string(TextArena::kMaxText, 'x'));
}

TEST_CASE("what COMPAT.md 5 leaves out") {
  check({{dir("dev"), file("dev/null"), dir("dev/pts"), entry(EntryKind::device, "sda"), dir("x", 0), dir("y", 0555),
          dir("z", 0300)}},
        {"/dev d755", "/x d700", "/y d755", "/z d700"});
  check({{file("sda")}, {entry(EntryKind::device, "sda")}}, {});
}

TEST_CASE("as with enroot, the owner needs no capability for what distributions leave to root") {
  check({{dir("1", 0555), dir("1/2", 0111), dir("1/2/3", 0555), dir("1/2/3/4", 0555), dir("1/2/3/4/5", 0555),
          dir("1/2/3/4/5/6", 0555), file("shadow", 0), file("sudo", 0111), file("ping", 0711)}},
        {"/1 d755", "/1/2 d711", "/1/2/3 d755", "/1/2/3/4 d755", "/1/2/3/4/5 d755", "/1/2/3/4/5/6 d555", "/ping f711",
         "/shadow f400", "/sudo f511"});
  check({{entry(EntryKind::directory, ".wh..wh.plnk"), file(".wh..wh.plnk/89.12"), hard("x", ".wh..wh.plnk/89.12")}},
        {"/x f644"});
}

TEST_CASE("a very deep tree is no deep recursion") {
  std::vector<TarEntry> layer;
  for (int round = 0; round < 20; ++round) {
    std::string path = round == 0 ? "" : "l" + std::to_string(round - 1) + "/";
    for (int i = 0; i < 900; ++i) path += "d/";
    layer.push_back(dir(path));
    layer.push_back(soft("l" + std::to_string(round), path));
  }
  CHECK(merge({layer}));
}

TEST_CASE("which content need not be kept") {
  LayerTable table;
  HiddenPaths hidden;
  const auto hides = [&](std::string_view directory, std::string_view name) {
    return hidden.hides(table, table.intern_directory(directory).value(), name);
  };
  CHECK_FALSE(hides("", "a"));
  table.begin_layer();
  for (const auto& made : {file("a"), dir("d"), file("e/.wh.gone"), file("o/.wh..wh..opq"), hard("h", "t"), file("own"),
                           hard("h2", "own")})
    REQUIRE(table.add(made));
  table.end_layer();
  hidden.add_layer(table, 0);
  CHECK(hides("", "a"));
  CHECK(hides("a/b", "c"));
  CHECK_FALSE(hides("d", "x"));
  CHECK(hides("e", "gone"));
  CHECK(hides("e/gone/deep", "x"));
  CHECK_FALSE(hides("e", "kept"));
  CHECK(hides("o", "x"));
  CHECK_FALSE(hides("", "o"));
  CHECK_FALSE(hides("", "t"));
  CHECK(hides("", "own"));
  CHECK(hides("", "h"));
}

TEST_CASE("A directory that no layer names takes after a set-group-id one above it") {
  check({{dir("a", 02755), file("a/b/c/f")}, {file("a/x/f"), dir("a/b", 0755), file("a/b/y/f")}},
        // Modes in decimal, octal, octal digits: 02755 is "2355".
        {"/a d2355", "/a/b d755", "/a/b/c d2355", "/a/b/c/f f644", "/a/b/y d755", "/a/b/y/f f644", "/a/x d2355",
         "/a/x/f f644"});
}
