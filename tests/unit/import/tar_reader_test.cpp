// Are entries read with the names, attributes and content that the archive has?
#include "hooks/sources/tar_reader.hpp"

#include <locale.h>

#include <catch2/catch.hpp>

#include "tests/unit/import/tar.hpp"

using namespace situla;
using test::Tar;

namespace {

TarReader::Source source_of(const std::string& bytes, size_t step) {
  return [bytes, step, at = size_t{0}]() mutable -> Result<std::string_view> {
    const std::string_view piece = std::string_view(bytes).substr(at, step);
    at += piece.size();
    return piece;
  };
}

struct Read {
  TarEntry entry;
  std::string content;
};

Result<std::vector<Read>> read_all_of(const std::string& bytes, size_t step = 100000) {
  TarReader reader(source_of(bytes, step));
  std::vector<Read> all;
  while (true) {
    TRY_ASSIGN(auto entry, reader.next());
    if (!entry) return all;
    Read read{*entry, {}};
    TRY(reader.read_data([&](std::string_view piece) -> Result<void> {
      read.content += piece;
      return {};
    }));
    all.push_back(std::move(read));
  }
}

}  // namespace

TEST_CASE("entries of every kind") {
  const std::string long_name = std::string(150, 'd') + "/" + std::string(200, 'n');
  const std::string binary("\x01\x00\xff", 3);
  Tar tar;
  tar.directory("./d/", 01777)
      .file("/d/f", std::string(3000, 'x'), 04755)
      .symlink("d/s", "../x")
      .hardlink("d/h", "d/f");
  tar.add("fifo", "", {'6', 0600, {}, {}}).add("null", "", {'3', 0666, {}, {}});
  tar.add("x", "1", {'0', 0644, {}, {{"SCHILY.xattr.user.b", binary}, {"SCHILY.xattr.security.capability", "cap"}}});
  tar.file(long_name, "2");
  for (const size_t step : {size_t{1}, size_t{513}, size_t{1} << 20U}) {
    const auto all = read_all_of(tar.bytes(), step);
    REQUIRE(all);
    REQUIRE(all->size() == 8);
    CHECK((*all)[0].entry.kind == EntryKind::directory);
    CHECK((*all)[0].entry.mode == 01777);
    CHECK((*all)[1].content == std::string(3000, 'x'));
    CHECK((*all)[1].entry.mode == 04755);
    CHECK((*all)[1].entry.mtime == 1700000000);
    CHECK((*all)[2].entry.target == "../x");
    CHECK((*all)[3].entry.kind == EntryKind::hardlink);
    CHECK((*all)[3].entry.target == "d/f");
    CHECK((*all)[4].entry.kind == EntryKind::fifo);
    CHECK((*all)[5].entry.kind == EntryKind::device);
    CHECK((*all)[6].entry.xattrs ==
          std::vector<std::pair<std::string, std::string>>{{"security.capability", "cap"}, {"user.b", binary}});
    CHECK((*all)[7].entry.path == long_name);
  }
}

TEST_CASE("names are bytes, in every locale") {
  const std::string decomposed = "e\xcc\x81";
  const std::string composed = "\xc3\xa9";
  const std::string invalid = "bad\xff\xfe";
  Tar tar;
  for (const auto& name : {decomposed, composed, invalid}) tar.add("p", "", {'0', 0644, {}, {{"path", name}}});
  tar.add("l", "", {'2', 0777, "l", {{"linkpath", invalid}, {"SCHILY.xattr.user.x", "1"}}});
  for (const char* locale : {"C", "C.UTF-8"}) {
    const std::string before = setlocale(LC_ALL, nullptr);
    setlocale(LC_ALL, locale);
    const auto all = read_all_of(tar.bytes());
    setlocale(LC_ALL, before.c_str());
    REQUIRE(all);
    CHECK((*all)[0].entry.path == decomposed);
    CHECK((*all)[1].entry.path == composed);
    CHECK((*all)[2].entry.path == invalid);
    CHECK((*all)[3].entry.target == invalid);
    CHECK((*all)[3].entry.xattrs.size() == 1);
  }
}

TEST_CASE("GNU sparse files have their holes") {
  Tar tar;
  // pax sparse format 1.0: a map of (offset, size) pairs before the data.
  std::string content = "1\n1000000\n3\n";
  content.resize(512, '\0');
  content += "abc";
  tar.add("GNUSparseFile.0/s", content,
          {'0',
           0644,
           {},
           {{"GNU.sparse.major", "1"},
            {"GNU.sparse.minor", "0"},
            {"GNU.sparse.name", "s"},
            {"GNU.sparse.realsize", "2000000"}}});
  const auto all = read_all_of(tar.bytes());
  REQUIRE(all);
  CHECK((*all)[0].entry.path == "s");
  CHECK((*all)[0].entry.size == 2000000);
  REQUIRE((*all)[0].content.size() == 2000000);
  CHECK((*all)[0].content.substr(1000000, 3) == "abc");
  CHECK((*all)[0].content.find_first_not_of('\0') == 1000000);
}

TEST_CASE("empty and damaged archives") {
  CHECK(read_all_of("")->empty());
  CHECK(read_all_of(std::string(1024, '\0'))->empty());
  for (const std::string& bytes :
       {std::string(2000, 'x'), Tar().file("a", std::string(5000, 'y')).bytes().substr(0, 2000)}) {
    const auto all = read_all_of(bytes);
    REQUIRE_FALSE(all);
    CHECK(all.error().kind() == ErrorKind::corrupt);
  }
  TarReader reader([]() -> Result<std::string_view> { return fail(ErrorKind::network, "layer 1: gone"); });
  const auto entry = reader.next();
  REQUIRE_FALSE(entry);
  CHECK(entry.error().message() == "layer 1: gone");
}

TEST_CASE("an archive may end right behind its last content, as umoci's and others' do, but not before") {
  const std::string bytes = Tar().file("first", std::string(700, 'a')).file("last", std::string(1000, 'b')).bytes();
  const size_t content_end = 512 + 1024 + 512 + 1000;
  for (const size_t step : {size_t{1}, size_t{511}, size_t{100000}}) {
    for (const size_t size : {content_end, content_end + 1, content_end + 24, content_end + 24 + 512}) {
      INFO(step << " " << size);
      const auto all = read_all_of(bytes.substr(0, size), step);
      REQUIRE(all);
      REQUIRE(all->size() == 2);
      CHECK((*all)[1].content == std::string(1000, 'b'));
    }
    for (const size_t size : {content_end - 1, content_end - 1000, size_t{512 + 1024 + 400}, size_t{512 + 699}}) {
      INFO(step << " " << size);
      CHECK_FALSE(read_all_of(bytes.substr(0, size), step));
    }
  }
}
