// Which rows does a map with a range have, and what is an owner called in an image?
#include "common/sys/mount/id_maps.hpp"

#include <catch2/catch.hpp>

#include "common/base/text.hpp"

using namespace situla;

namespace {

constexpr IdRange kRange{100000, 200000};

Identity member(std::vector<gid_t> groups) {
  return {1000, 1000, std::move(groups)};
}

/// Of the ids outside, how many the map has; each once, or the kernel refuses it.
uint64_t ids_of(const std::string& map) {
  uint64_t sum = 0;
  for (const std::string_view line : split_nonempty(map, '\n')) sum += *parse_unsigned(split_words(line)[2]);
  return sum;
}

}  // namespace

TEST_CASE("with a range the user is root, and 1 to 65535 are the range's") {
  const IdMaps maps = map_range(member({1000}), true, kRange);
  CHECK(maps.uids == "0 1000 1\n1 100000 65535\n");
  CHECK(maps.groups.text == "0 1000 1\n1 200000 65535\n");
  CHECK(maps.setgroups);
}

TEST_CASE("who is not root keeps his number, and what it covers comes behind") {
  const IdMaps maps = map_range(member({1000}), false, kRange);
  CHECK(maps.uids == "1 100000 999\n1000 1000 1\n1001 101000 64535\n65536 100999 1\n");
  CHECK(ids_of(maps.uids) == 65536);
  CHECK(map_range({70000, 70000, {70000}}, false, kRange).uids == "1 100000 65535\n70000 70000 1\n");
}

TEST_CASE("groups from 1000 on keep their numbers beside a range, and those of packages are the image's") {
  const IdMaps maps = map_range(member({1000, 27, 100, 2000, 2001, 70000, 0, 65534, 65535}), true, kRange);
  CHECK(maps.groups.text == "0 1000 1\n1 200000 1999\n2000 2000 2\n2002 202001 63534\n70000 70000 1\n65536 201999 2\n");
  CHECK(maps.groups.left_out == 0);
  // A group whose number is one of the range's has a place there already.
  CHECK(map_range(member({1000, 200005}), true, kRange).groups.text == "0 1000 1\n1 200000 65535\n");
  // A number behind the range may be taken.
  CHECK(map_range(member({1000, 2000, 65536}), true, kRange).groups.text ==
        "0 1000 1\n1 200000 1999\n2000 2000 1\n2001 202000 63535\n65536 65536 1\n65537 201999 1\n");
}

TEST_CASE("the row of the user's own group has no other group in it: newgidmap(1) lets nobody map that") {
  const std::string groups = map_range({1001, 1001, {1000, 1001, 1002, 1003}}, false, kRange).groups.text;
  CHECK(groups == "1 200000 999\n1000 1000 1\n1001 1001 1\n1002 1002 2\n1004 201003 64532\n65536 200999 4\n");
  CHECK(ids_of(groups) == 65536 + 3);
}

TEST_CASE("a range that begins behind the user's own id is one all the same") {
  const IdMaps maps = map_range({99999, 199999, {199999}}, true, kRange);
  CHECK(maps.uids == "0 99999 1\n1 100000 65535\n");
  CHECK(maps.groups.text == "0 199999 1\n1 200000 65535\n");
  CHECK(NamespaceIds(maps.uids, maps.groups.text).range() == kRange);
}

TEST_CASE("a map with a range has as many groups as the kernel takes") {
  std::vector<gid_t> many = {1000};
  for (gid_t group = 3000; many.size() < 400; group += 2) many.push_back(group);
  const GroupMap map = map_range(member(many), true, kRange).groups;
  CHECK(map.left_out > 0);
  CHECK(map.text.size() < 4096);
  CHECK(split_nonempty(map.text, '\n').size() <= 340);
  CHECK(ids_of(map.text) == 65536 + (many.size() - 1 - map.left_out));
}

TEST_CASE("a helper's map has all ids, and nobody's number is only that of ids which it lacks") {
  const IdMaps root = map_range(member({1000}), true, kRange, Nobody::unmapped);
  CHECK(root.uids == "0 1000 1\n1 100000 65533\n65535 165534 1\n65536 165533 1\n");
  CHECK(root.groups.text == "0 1000 1\n1 200000 65533\n65535 265534 1\n65536 265533 1\n");
  const IdMaps user = map_range(member({1000, 2000, 65536}), false, kRange, Nobody::unmapped);
  CHECK(user.uids == "1 100000 999\n1000 1000 1\n1001 101000 64533\n65535 165534 1\n65536 100999 1\n65537 165533 1\n");
  CHECK(ids_of(user.uids) == 65536);
  CHECK(ids_of(user.groups.text) == 65536 + 2);
  for (const IdMaps& maps : {root, user}) {
    const NamespaceIds ids(maps.uids, maps.groups.text);
    REQUIRE(ids.range() == kRange);
    CHECK(ids.image_uid(65534) == 0);
    CHECK(ids.image_gid(65534) == 0);
    CHECK(ids.inside_uid(65534) > 65535);
    CHECK(ids.image_uid(ids.inside_uid(65534)) == 65534);
    CHECK(ids.image_gid(ids.inside_gid(65534)) == 65534);
    // What an image calls by a number that no range has.
    CHECK(ids.inside_uid(70000) == ids.inside_uid(65534));
  }
}

TEST_CASE("owners in an image are those of the range, whatever map they are looked at through") {
  for (const bool as_root : {true, false}) {
    const IdMaps maps = map_range(member({1000, 2000, 70000}), as_root, kRange);
    const NamespaceIds ids(maps.uids, maps.groups.text);
    REQUIRE(ids.range() == kRange);
    CHECK(ids.image_uid(as_root ? 0 : 1000) == 0);
    CHECK(ids.image_uid(101) == 101);
    CHECK(ids.image_uid(65534) == 65534);
    CHECK(ids.image_uid(65535) == 65535);
    CHECK(ids.image_uid(as_root ? 1000 : 65536) == 1000);
    CHECK(ids.image_gid(as_root ? 0 : 1000) == 0);
    CHECK(ids.image_gid(999) == 999);
    // Groups that the user has on this machine are nobody's business in an image.
    CHECK(ids.image_gid(2000) == 0);
    CHECK(ids.image_gid(70000) == 0);
    for (const uint32_t id : {1U, 101U, 999U, 1000U, 2000U, 65534U, 65535U}) {
      CHECK(ids.image_uid(ids.inside_uid(id)) == id);
      CHECK(ids.image_gid(ids.inside_gid(id)) == id);
    }
    CHECK(ids.inside_uid(65536) == 65534);
  }
}

TEST_CASE("a namespace with single ids has no range, and neither has the node's") {
  for (const char* map : {"0 1000 1\n", "1000 1000 1\n70000 70000 1\n", "0 0 4294967295\n", "0 100000 65536\n", "",
                          "1 2\n", "0 1000 1\n1 100000 1000\n"}) {
    INFO(map);
    const NamespaceIds ids(map, map);
    CHECK_FALSE(ids.range());
    CHECK(ids.image_uid(1000) == 0);
    CHECK(ids.image_gid(7) == 0);
  }
}
