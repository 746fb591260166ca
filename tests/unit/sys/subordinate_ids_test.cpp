// Who has a range of ids? Files of root's and a rule of the site's.
#include "common/sys/mount/subordinate_ids.hpp"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

constexpr uid_t kUser = 64901;  ///< whom no machine knows
const Identity kMember{kUser, kUser, {kUser, 64950}};

struct Node {
  test::TempDir dir;
  IdFiles files{dir / "subuid",        dir / "subgid",    dir / "passwd",   dir / "group",
                dir / "nsswitch.conf", dir / "newuidmap", dir / "newgidmap"};

  Node() {
    if (geteuid() != 0) return;
    for (const std::string& program : {files.newuidmap, files.newgidmap}) install(program, 04755);
  }
  void install(const std::string& program, mode_t mode) const {
    write(program, "");
    REQUIRE(chmod(program.c_str(), mode) == 0);
  }

  void write(const std::string& path, const std::string& text) const {
    (void)dir.write(path.substr(path.rfind('/') + 1), text);
    REQUIRE(chmod(path.c_str(), 0644) == 0);
  }
  void give(const std::string& line) const {
    write(files.subuid, line);
    write(files.subgid, line);
  }
};

}  // namespace

TEST_CASE("a line of subuid(5) gives ids by name or number, and the first one that is long enough counts") {
  const std::string text =
      "bob:100000:65536\nalice:5000:10\n# alice:1:65536\nalice:200000:65536\n1000:300000:65535\nalice:400000:65536\n";
  CHECK(find_subordinate(text, 1000, "alice") == 200000U);
  CHECK(find_subordinate(text, 1000, "carol") == 300000U);
  CHECK(find_subordinate(text, 1000, "") == 300000U);
  CHECK(find_subordinate(text, 2, "bob") == 100000U);
  CHECK_FALSE(find_subordinate(text, 2, "carol"));
}

TEST_CASE("what is not exactly a line of subuid(5) gives nobody anything") {
  for (const char* line : {"alice:100000",
                           "alice:100000:65536:1",
                           "alice: 100000:65536",
                           "alice:100000:65536 ",
                           " alice:100000:65536",
                           "alice:-1:65536",
                           "alice:0x100000:65536",
                           "alice:100000:",
                           "alice::65536",
                           ":100000:65536",
                           "alice:0:65536",
                           "alice:0100000:65536",
                           "alice:100000:065536",
                           "alice:100000:0",
                           "alice:4294967295:1",
                           "alice:4294901761:65536",
                           "alice:18446744073709551615:65536",
                           "alice:100000:18446744073709551615",
                           "alice:100000:65534",
                           "Alice:100000:65536",
                           "alicex:100000:65536",
                           "01000:100000:65536",
                           "+1000:100000:65536"}) {
    INFO(line);
    CHECK_FALSE(find_subordinate(line, 1000, "alice"));
    CHECK_FALSE(find_subordinate(std::string(line) + "\n", 1000, "alice"));
  }
  CHECK(find_subordinate("alice:4294901759:65536", 1, "alice") == 4294901759U);  // the last id is 4294967294
}

TEST_CASE("a rule of the site's gives each user 65536 ids, none twice and none beyond the last") {
  const IdArea area{1000000000, 1000, 30000};
  CHECK(area.problem().empty());
  CHECK(area.range_of(1000) == IdRange{1000000000, 1000000000});
  CHECK(area.range_of(1001) == IdRange{1000065536, 1000065536});
  CHECK(area.range_of(30999)->first_uid == 1000000000 + 29999U * 65536U);
  CHECK_FALSE(area.range_of(999));
  CHECK_FALSE(area.range_of(31000));
  CHECK(IdArea{4294967295 - 65536, 1000, 1}.problem().empty());
  for (const IdArea& wrong :
       {IdArea{4294967296 - 65536, 1000, 1}, IdArea{1000000000, 1000, 50278}, IdArea{1000000000, 0, 1},
        IdArea{1000000000, 1000, 0}, IdArea{65535, 1000, 1}, IdArea{100000, 1000, 100000}, IdArea{100000, 150000, 10},
        IdArea{100000, 99999, 2}, IdArea{UINT64_MAX, 1, 1}, IdArea{100000, 1, UINT64_MAX}}) {
    INFO(wrong.first << " " << wrong.first_uid << " " << wrong.users);
    CHECK_FALSE(wrong.problem().empty());
  }
}

TEST_CASE("both files have to give a user ids, and only files of root's count") {
  if (geteuid() != 0) return;
  const Node node;
  const std::string line = std::to_string(kUser) + ":100000:65536\n";
  CHECK(find_id_range(kMember, {}, node.files).error().kind() == ErrorKind::not_found);
  node.give(line);
  CHECK(find_id_range(kMember, {}, node.files).value() == IdRange{100000, 100000});
  node.write(node.files.subgid, "other:100000:65536\n");
  CHECK_FALSE(find_id_range(kMember, {}, node.files));
  node.give(line);
  CHECK_FALSE(find_id_range(kMember, {SubordinateFiles::never, {}}, node.files));
  for (const auto& spoil : {+[](const std::string& path) { return chmod(path.c_str(), 0664); },
                            +[](const std::string& path) { return chown(path.c_str(), kUser, 0); }}) {
    node.give(line);
    REQUIRE(spoil(node.files.subuid) == 0);
    CHECK(find_id_range(kMember, {}, node.files).error().kind() == ErrorKind::denied);
    REQUIRE(chown(node.files.subuid.c_str(), 0, 0) == 0);
  }
}

TEST_CASE("a user without his own group among his groups, or with an id of his own in the range, has none") {
  if (geteuid() != 0) return;
  const Node node;
  node.give(std::to_string(kUser) + ":100000:65536\n0:200000:65536\n");
  CHECK_FALSE(find_id_range({kUser, kUser, {64950}}, {}, node.files));
  CHECK_FALSE(find_id_range({kUser, kUser, {}}, {}, node.files));
  CHECK_FALSE(find_id_range({0, 0, {0}}, {}, node.files));
  CHECK_FALSE(find_id_range({kUser, 0, {0}}, {}, node.files));
  node.give(std::to_string(kUser) + ":60000:65536\n");
  CHECK(find_id_range(kMember, {}, node.files).error().kind() == ErrorKind::denied);
}

TEST_CASE("an area that somebody's ids lie in gives nobody a range") {
  if (geteuid() != 0) return;
  const Node node;
  const IdRangeRule rule{SubordinateFiles::automatic, {1000000000, 64000, 2000}};
  node.write(node.files.passwd, "root:x:0:0::/:/bin/sh\nbob:x:5000:5000::/:/bin/sh\n");
  node.write(node.files.group, "root:x:0:\nbroken\n");
  const IdRange own{1000000000 + 901 * 65536, 1000000000 + 901 * 65536};
  CHECK(find_id_range(kMember, rule, node.files).value() == own);
  CHECK_FALSE(find_id_range({63999, 63999, {63999}}, rule, node.files));
  // The files' own line comes first.
  node.give(std::to_string(kUser) + ":100000:65536\n");
  CHECK(find_id_range(kMember, rule, node.files)->first_uid == 100000);
  node.give("bob:200000:65536\n");
  CHECK(find_id_range(kMember, rule, node.files).value() == own);

  const auto refused = [&](const Identity& user) {
    return find_id_range(user, rule, node.files).error().kind() == ErrorKind::denied;
  };
  CHECK(refused({kUser, kUser, {kUser, 1000000005}}));
  CHECK(refused({kUser, 1000000005, {1000000005}}));
  node.give("bob:999999999:65536\n");
  CHECK(refused(kMember));
  node.give("bob:1100000000:1\n");
  CHECK(refused(kMember));
  node.give("");
  node.write(node.files.passwd, "eve:x:1000000000:1::/:/bin/sh\n");
  CHECK(refused(kMember));
  node.write(node.files.passwd, "eve:x:5:1::/:/bin/sh\n");
  node.write(node.files.group, "crew:x:1131071999:\n");
  CHECK(refused(kMember));
  node.write(node.files.group, "crew:x:1131072000:\n");  // the first one behind it
  CHECK(find_id_range(kMember, rule, node.files));
}

TEST_CASE("a range of the files is nobody else's: no account's, no group's, no other line's") {
  if (geteuid() != 0) return;
  const Node node;
  const std::string own = std::to_string(kUser) + ":100000:65536\n";
  const auto denied = [&] { return find_id_range(kMember, {}, node.files).error().kind() == ErrorKind::denied; };
  for (const char* other : {"bob:165534:10\n", "bob:99999:2\n", "bob:1:4294967294\n", "bob:1:18446744073709551615\n",
                            "bob:100000:65536\n", "bob:0x10000:65536\n", "bob:0100000:5\n", "bob\n"}) {
    INFO(other);
    node.give(own + other);
    CHECK(denied());
    node.give(other + own);
    CHECK(denied());
  }
  // A rule of the site's does not come in place of what is wrong.
  CHECK(find_id_range(kMember, {SubordinateFiles::always, {1000000000, 60000, 10000}}, node.files).error().kind() ==
        ErrorKind::denied);
  node.give("# who has what\n\nbob:165535:65536\ncarol:1000:99000\n" + own + std::to_string(kUser) +
            ":100000:100000\n");
  CHECK(find_id_range(kMember, {}, node.files).value() == IdRange{100000, 100000});
  node.give(own);
  node.write(node.files.passwd, "dave:x:123456:64901::/:/bin/sh\n");
  CHECK(denied());
  node.write(node.files.passwd, "dave:x:5000:123456::/:/bin/sh\n");
  CHECK(denied());  // his own group, of which group(5) says nothing
  node.write(node.files.passwd, "");
  node.write(node.files.group, "staff:x:123456:\n");
  CHECK(denied());
  node.write(node.files.group, "staff:x:165535:\n");
  CHECK(find_id_range(kMember, {}, node.files));
  CHECK(find_id_range({kUser, kUser, {kUser, 100007}}, {}, node.files).error().kind() == ErrorKind::denied);
}

TEST_CASE("where a directory answers for subordinate ids the files count for nobody") {
  if (geteuid() != 0) return;
  const Node node;
  node.give(std::to_string(kUser) + ":100000:65536\n");
  for (const char* text :
       {"subid: sss\n", "passwd: files\n  subid:\tsss # files\n", "subid:\n", "subid: sss files\n"}) {
    INFO(text);
    node.write(node.files.nsswitch, text);
    CHECK(find_id_range(kMember, {}, node.files).error().kind() == ErrorKind::not_found);
    CHECK(find_id_range(kMember, {SubordinateFiles::always, {1000000000, 60000, 10000}}, node.files));
  }
  for (const char* text : {"subid: files\n", "# subid: sss\n", "passwd: sss\n", "subid: files sss\n"}) {
    INFO(text);
    node.write(node.files.nsswitch, text);
    CHECK(find_id_range(kMember, {}, node.files));
  }
}

TEST_CASE("the files count where newuidmap and newgidmap would give as much, or where the site says so") {
  if (geteuid() != 0) return;
  const Node node;
  node.give(std::to_string(kUser) + ":100000:65536\n");
  const auto kind = [&](SubordinateFiles files) {
    const auto range = find_id_range(kMember, {files, {}}, node.files);
    return range ? std::nullopt : std::optional(range.error().kind());
  };
  CHECK_FALSE(kind(SubordinateFiles::automatic));
  for (const mode_t mode : {0755U, 04750U, 04775U, 04757U}) {
    INFO(mode);
    node.install(node.files.newgidmap, mode);
    CHECK(kind(SubordinateFiles::automatic) == ErrorKind::not_found);
    CHECK_FALSE(kind(SubordinateFiles::always));
  }
  // setcap cap_setgid=ep
  constexpr std::string_view kCapability("\1\0\0\2\100\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
  node.install(node.files.newgidmap, 0755);
  REQUIRE(setxattr(node.files.newgidmap.c_str(), "security.capability", kCapability.data(), kCapability.size(), 0) ==
          0);
  CHECK_FALSE(kind(SubordinateFiles::automatic));
  REQUIRE(chown(node.files.newuidmap.c_str(), kUser, 0) == 0);
  CHECK(kind(SubordinateFiles::automatic) == ErrorKind::not_found);
  REQUIRE(unlink(node.files.newuidmap.c_str()) == 0);
  CHECK(kind(SubordinateFiles::automatic) == ErrorKind::not_found);
}

TEST_CASE("a user's name is the one that passwd(5) has") {
  if (geteuid() != 0) return;
  const Node node;
  node.give("alice:100000:65536\nbob:200000:65536\n64901:300000:65536\n");
  node.write(node.files.passwd, "alice:x:" + std::to_string(kUser) + ":1::/:/bin/sh\nbob:x:5000:1::/:/bin/sh\n");
  CHECK(find_id_range(kMember, {}, node.files).value() == IdRange{100000, 100000});
  node.write(node.files.passwd, "alice:x:4000:1::/:/bin/sh\nbob:x:5000:1::/:/bin/sh\n");
  CHECK(find_id_range(kMember, {}, node.files).value() == IdRange{300000, 300000});
}
