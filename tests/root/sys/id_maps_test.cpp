// What does a map of several groups give to its user? What group(5) says he may, and nothing else: plugin/broker's
// RootOperation::write_id_maps.
#include <csignal>

#include <fcntl.h>
#include <grp.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/process/seccomp.hpp"
#include "common/sys/socket.hpp"
#include "tests/support/as_user.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

constexpr gid_t kCrew = 64911, kPress = 64912, kForeign = 64913;
constexpr uid_t kOther = 64921;

/// Ids that nobody has on a machine that runs this.
constexpr IdRange kRange{3000000000, 3100000000};

/// As root, who writes the maps: a member of these groups in a user namespace with those maps.
std::string as_mapped(const std::vector<gid_t>& groups, const IdMaps& maps, const test::Body& body) {
  auto sockets = socket_pair();
  REQUIRE(sockets);
  return test::in_child([&]() -> Result<void> {
    TRY_ASSIGN(Child child, fork_child());
    if (!child) {
      const auto run = [&]() -> Result<void> {
        TRY(become({test::kTestUid, test::kTestGid, groups}));
        (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
        TRY(unshare_namespaces(kUserNs));
        TRY(send_packet(sockets->second.get(), "unshared"));
        TRY(receive_packet(sockets->second.get(), 100));
        return body();
      };
      const auto done = run();
      (void)send_packet(sockets->second.get(), done ? "ok" : done.error().text());
      _exit(0);
    }
    TRY_ASSIGN(const auto unshared, receive_packet(sockets->first.get(), 100));
    EXPECT(unshared && unshared->bytes == "unshared");
    TRY_ASSIGN(const UniqueFd proc, open_file("/proc/" + std::to_string(child.pid()), O_PATH | O_DIRECTORY));
    TRY(write_id_maps(proc.get(), maps));
    TRY(send_packet(sockets->first.get(), "go"));
    TRY_ASSIGN(const auto answer, receive_packet(sockets->first.get(), 65536));
    TRY(child.wait());
    if (!answer || answer->bytes != "ok") return fail(ErrorKind::failure, answer ? answer->bytes : "no answer");
    return {};
  });
}

/// Without a range.
std::string as_member(const std::vector<gid_t>& groups, bool as_root, const test::Body& body) {
  const std::string uid = std::to_string(as_root ? 0 : test::kTestUid);
  return as_mapped(groups,
                   {uid + " " + std::to_string(test::kTestUid) + " 1\n",
                    map_groups(as_root ? 0 : test::kTestGid, test::kTestGid, groups)},
                   body);
}

/// With one.
std::string with_range(const std::vector<gid_t>& groups, bool as_root, const test::Body& body) {
  return as_mapped(groups, map_range({test::kTestUid, test::kTestGid, groups}, as_root, kRange), body);
}

const std::vector<gid_t> kGroups = {test::kTestGid, kCrew, kPress};

gid_t group_of(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 ? status.st_gid : static_cast<gid_t>(-1);
}

mode_t mode_of(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 ? status.st_mode & 07777U : 0;
}

uid_t owner_of(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 ? status.st_uid : static_cast<uid_t>(-1);
}

/// A file that this process makes.
Result<void> make(const std::string& path) {
  TRY(open_file(path, O_WRONLY | O_CREAT | O_EXCL, 0640));
  return {};
}

bool fails(int result, int errnum) {
  return result != 0 && errno == errnum;
}

/// Places of other owners, in a directory where everybody may make files.
struct Project {
  test::TempDir dir;
  std::string shared = place("shared", 0, kCrew, 02770);             ///< of the group, setgid
  std::string closed = place("closed", 0, kForeign, 02770);          ///< of a group that the user is not in
  std::string text = file("text", 0, kCrew, 0640);                   ///< to be read by the group
  std::string colleague = file("his", kOther, kCrew, 0660);          ///< another member's
  std::string kept_off = file("kept off", 0, test::kTestGid, 0604);  ///< all but the user's own group may read it

  Project() { REQUIRE(chmod(dir.path().c_str(), 0777) == 0); }
  std::string place(const char* name, uid_t uid, gid_t gid, mode_t mode) {
    const std::string path = dir / name;
    REQUIRE(mkdir(path.c_str(), 0700) == 0);
    return owned(path, uid, gid, mode);
  }
  std::string file(const char* name, uid_t uid, gid_t gid, mode_t mode) {
    return owned(dir.write(name, "text"), uid, gid, mode);
  }
  static std::string owned(const std::string& path, uid_t uid, gid_t gid, mode_t mode) {
    REQUIRE(chown(path.c_str(), uid, gid) == 0);
    REQUIRE(chmod(path.c_str(), mode) == 0);
    return path;
  }
};

}  // namespace

TEST_CASE("A member of several groups works with their files, as himself and as root of his namespace") {
  for (const bool as_root : {false, true}) {
    const Project project;
    CHECK(as_member(kGroups, as_root, [&]() -> Result<void> {
            EXPECT(geteuid() == (as_root ? 0 : test::kTestUid));
            EXPECT(supplementary_groups() == (as_root ? std::vector<gid_t>{0, kCrew, kPress} : kGroups));
            const std::string made = project.shared + "/made";
            TRY(make(made));
            EXPECT(group_of(made) == kCrew);
            EXPECT(chown(made.c_str(), static_cast<uid_t>(-1), kPress) == 0 && group_of(made) == kPress);
            EXPECT(chmod(made.c_str(), 02750) == 0 && mode_of(made) == 02750);
            TRY(read_file(project.text));
            TRY(open_file(project.colleague, O_RDWR));
            return {};
          }) == "");
    CHECK(group_of(project.shared + "/made") == kPress);
  }
}

TEST_CASE("Nobody gets with a map what he does not have without it") {
  for (const bool as_root : {false, true}) {
    const Project project;
    CHECK(as_member(kGroups, as_root, [&]() -> Result<void> {
            constexpr auto kSame = static_cast<uid_t>(-1);
            const std::string own = project.dir / "own";
            TRY(make(own));
            // Groups that are not his, and those of the image: the namespace does not know them.
            for (const gid_t group : {kForeign, gid_t{1}, gid_t{100}}) {
              EXPECT(fails(chown(own.c_str(), kSame, group), EINVAL));
              EXPECT(fails(setgid(group), EINVAL));
            }
            EXPECT(fails(chown(own.c_str(), kOther, kSame), EINVAL));
            if (!as_root) EXPECT(fails(setgid(0), EINVAL));
            // Neither more groups nor fewer.
            EXPECT(fails(setgroups(kGroups.size(), kGroups.data()), EPERM));
            EXPECT(fails(setgroups(0, nullptr), EPERM));
            // Files of others, though their group is in the map: no capability counts.
            EXPECT(fails(chmod(project.text.c_str(), 0666), EPERM));
            EXPECT(fails(chown(project.text.c_str(), kSame, kPress), EPERM));
            EXPECT(fails(chmod(project.colleague.c_str(), 0666), EPERM));
            EXPECT(fails(unlink((project.closed + "/x").c_str()), EACCES));
            EXPECT(!open_file(project.text, O_WRONLY) && !open_file(project.closed, O_RDONLY | O_DIRECTORY));
            // What his own group may not read: not before he has taken another one, and not after.
            EXPECT(!read_file(project.kept_off));
            EXPECT(setgid(kPress) == 0 && getegid() == kPress);
            EXPECT(!read_file(project.kept_off));
            TRY(make(project.dir / "another"));
            EXPECT(group_of(project.dir / "another") == kPress);
            EXPECT(fails(setgid(kForeign), EINVAL));
            return {};
          }) == "");
  }
}

TEST_CASE("Who is not in his own group by his supplementary ones keeps it, and has no other in the map") {
  const Project project;
  CHECK(as_member({kCrew, kPress}, false, [&]() -> Result<void> {
          EXPECT(!read_file(project.kept_off));
          EXPECT(fails(setgid(kPress), EINVAL) && fails(setgid(kCrew), EINVAL));
          EXPECT(!read_file(project.kept_off));
          TRY(read_file(project.text));  // the group is his all the same
          return {};
        }) == "");
}

TEST_CASE("The kernel takes as many groups as are mapped") {
  std::vector<gid_t> many = {test::kTestGid};
  // Apart, so that each has a row: longer than a page; and a row of rows.
  for (gid_t group = 2000000000; many.size() < 400; group += 2) many.push_back(group);
  const GroupMap map = map_groups(0, test::kTestGid, many);
  REQUIRE(map.left_out > 0);
  const size_t kept = many.size() - 1 - map.left_out;
  CHECK(kept > 150);
  CHECK(as_member(many, true, [&]() -> Result<void> {
          EXPECT(supplementary_groups().size() == kept + 1);
          EXPECT(supplementary_groups().back() == many[kept]);  // the first ones
          return {};
        }) == "");
  std::vector<gid_t> together = {test::kTestGid};
  for (gid_t group = 70000; together.size() < 400; ++group) together.push_back(group);
  CHECK(map_groups(0, test::kTestGid, together).left_out == 0);
  CHECK(as_member(together, true, [&]() -> Result<void> {
          EXPECT(supplementary_groups().size() == together.size());
          return {};
        }) == "");
}

TEST_CASE("With the id filter a file is given to one of the user's groups, and all else is pretended") {
  for (const bool as_root : {false, true}) {
    const Project project;
    CHECK(as_member(kGroups, as_root, [&]() -> Result<void> {
            constexpr auto kSame = static_cast<uid_t>(-1);
            const std::string own = project.dir / "own";
            TRY(make(own));
            TRY(install_id_filter());
            const auto give = [&](uid_t uid, gid_t gid) { return chown(own.c_str(), uid, gid) == 0; };
            EXPECT(give(kSame, kCrew) && group_of(own) == kCrew);
            EXPECT(give(geteuid(), kPress) && group_of(own) == kPress);
            EXPECT(fchownat(AT_FDCWD, own.c_str(), kSame, kCrew, 0) == 0 && group_of(own) == kCrew);
            EXPECT(lchown(own.c_str(), kSame, kPress) == 0 && group_of(own) == kPress);
            EXPECT(give(kSame, getegid()) && group_of(own) == getegid());
            // As a package manager and tar(1) do it.
            EXPECT(give(33, kCrew) && give(kSame, 33) && give(33, 33) && give(geteuid(), kSame));
            EXPECT(group_of(own) == getegid());
            // "chown -R me:mine", over files of others, too.
            EXPECT(give(kSame, kCrew) && give(geteuid(), getegid()) && group_of(own) == kCrew);
            EXPECT(chown(project.text.c_str(), geteuid(), getegid()) == 0);
            EXPECT(fails(chown(project.text.c_str(), kSame, kPress), EPERM));  // the truth, as it can be told now
            EXPECT(chown(project.text.c_str(), 33, kPress) == 0 && group_of(project.text) == kCrew);
            EXPECT(setgid(kPress) == 0 && getegid() != kPress);
            return {};
          }) == "");
  }
}

TEST_CASE("The id filter holds as many groups as there can be") {
  std::vector<gid_t> apart = {test::kTestGid}, together = {test::kTestGid}, pairs = {test::kTestGid, 70000, 70010};
  for (gid_t group = 70000; apart.size() < 345; group += 2) apart.push_back(group);
  for (gid_t group = 70000; together.size() < 3000; ++group) together.push_back(group);
  for (gid_t group = 10000; pairs.size() < 800; group += 5) pairs.insert(pairs.end(), {group, group + 1});
  for (const auto& groups : {apart, together, pairs}) {
    const Project project;
    CHECK(as_member(groups, true, [&]() -> Result<void> {
            const std::string own = project.dir / "own";
            TRY(make(own));
            TRY(install_id_filter());
            for (const gid_t group : {gid_t{70000}, gid_t{70010}})
              EXPECT(chown(own.c_str(), static_cast<uid_t>(-1), group) == 0 && group_of(own) == group);
            EXPECT(chown(own.c_str(), static_cast<uid_t>(-1), 69999) == 0 && group_of(own) == 70010);
            return {};
          }) == "");
  }
}

TEST_CASE("With a range root gives files to every id of it, and outside they are the range's") {
  for (const bool as_root : {true, false}) {
    const Project project;
    CHECK(with_range(kGroups, as_root, [&]() -> Result<void> {
            const std::string file = project.dir / "file", directory = project.dir / "directory";
            TRY(make(file));
            EXPECT(chown(file.c_str(), 101, 102) == 0 && owner_of(file) == 101 && group_of(file) == 102);
            EXPECT(chown(file.c_str(), 65535, 65535) == 0 && owner_of(file) == 65535);
            EXPECT(chown(file.c_str(), 33, kCrew) == 0 && group_of(file) == kCrew);
            EXPECT(mkdir(directory.c_str(), 0700) == 0 && chown(directory.c_str(), 33, 33) == 0);
            TRY(make(directory + "/inner"));
            // As su(1) does it: other groups, then another user, for good.
            const std::vector<gid_t> daemons = {33, 5};
            EXPECT(setgroups(daemons.size(), daemons.data()) == 0 && setresgid(33, 33, 33) == 0);
            EXPECT(setresuid(33, 33, 33) == 0 && geteuid() == 33);
            if (as_root) EXPECT(fails(setresuid(0, 0, 0), EPERM));
            TRY(make(directory + "/its"));
            EXPECT(owner_of(directory + "/its") == 33);
            return {};
          }) == "");
    CHECK(owner_of(project.dir / "file") == kRange.first_uid + 32);
    CHECK(group_of(project.dir / "file") == kCrew);
    CHECK(owner_of(project.dir / "directory/its") == kRange.first_uid + 32);
    CHECK(group_of(project.dir / "directory/its") == kRange.first_gid + 32);
    CHECK(owner_of(project.dir / "directory/inner") == test::kTestUid);
  }
}

TEST_CASE("With a range a user reaches nothing of others that he does not reach without") {
  for (const bool as_root : {true, false}) {
    const Project project;
    const std::string neighbour = Project::owned(project.dir.write("neighbour", "text"), kRange.first_uid + 65535,
                                                 kRange.first_gid + 65535, 0600);
    const std::string before =
        Project::owned(project.dir.write("before", "text"), kRange.first_uid - 1, kRange.first_gid - 1, 0600);
    const std::string of_root = Project::owned(project.dir.write("of root", "text"), 0, 0, 0640);
    CHECK(with_range(kGroups, as_root, [&]() -> Result<void> {
            constexpr auto kSame = static_cast<uid_t>(-1);
            const std::string own = project.dir / "own";
            TRY(make(own));
            // Ids that are neither his nor the range's: the namespace does not know them.
            for (const uid_t uid : {kOther + 65536, kRange.first_uid, kRange.first_uid - 1, kRange.first_uid + 65535}) {
              EXPECT(fails(chown(own.c_str(), uid, kSame), EINVAL) && fails(setuid(uid), EINVAL));
              EXPECT(fails(chown(own.c_str(), kSame, uid), EINVAL) && fails(setgid(uid), EINVAL));
              const gid_t group = uid;
              EXPECT(fails(setgroups(1, &group), EINVAL));
            }
            // Inside it is a number of the range's; outside it is not that group.
            EXPECT(chown(own.c_str(), kOther, kForeign) == 0);
            EXPECT(chown(own.c_str(), geteuid(), getegid()) == 0);
            // Files of others: of the range next to his, of root, of a colleague.
            for (const std::string& file : {neighbour, before, of_root, project.colleague, project.text}) {
              EXPECT(fails(chmod(file.c_str(), 0666), EPERM));
              EXPECT(fails(chown(file.c_str(), geteuid(), kSame), EPERM));
              EXPECT(fails(chown(file.c_str(), kSame, getegid()), EPERM));
            }
            for (const std::string& file : {neighbour, before, of_root}) EXPECT(!open_file(file, O_RDONLY));
            EXPECT(fails(unlink((project.closed + "/x").c_str()), EACCES));
            EXPECT(!open_file(project.text, O_WRONLY) && !open_file(project.closed, O_RDONLY | O_DIRECTORY));
            EXPECT(!read_file(project.kept_off));
            // A number of the range that is called as his group is outside does not make him a member.
            const gid_t crew = 65536;
            EXPECT(setgroups(1, &crew) == 0);
            EXPECT(!open_file(project.text, O_RDONLY) && !open_file(project.shared, O_RDONLY | O_DIRECTORY));
            return {};
          }) == "");
    CHECK(owner_of(project.dir / "own") == test::kTestUid);
    CHECK(group_of(project.dir / "own") == test::kTestGid);
    CHECK(mode_of(of_root) == 0640);
  }
}

TEST_CASE("What a range takes from the node's root: members of a group can leave it") {
  const Project project;
  CHECK(with_range(kGroups, true, [&]() -> Result<void> {
          EXPECT(!read_file(project.kept_off));
          EXPECT(setgroups(0, nullptr) == 0);
          EXPECT(!read_file(project.kept_off));  // his own group is that of the file, and the process's still
          EXPECT(setgid(33) == 0);
          TRY(read_file(project.kept_off));  // situla.toml(5), id_ranges: whoever relies on that writes "off"
          return {};
        }) == "");
}

TEST_CASE("Whoever is root in one map of a range removes what was made in another") {
  Project project;
  const std::string tree = project.dir / "tree";
  const auto make_files = [&](const std::vector<gid_t>& owners) {
    return [&tree, owners]() -> Result<void> {
      for (const gid_t id : owners) {
        const std::string place = tree + "/" + std::to_string(id);
        EXPECT(mkdir(place.c_str(), 0700) == 0);
        TRY(make(place + "/file"));
        EXPECT(chown((place + "/file").c_str(), id, id) == 0);
        EXPECT(chown(place.c_str(), id, id) == 0);
      }
      return {};
    };
  };
  (void)project.place("tree", test::kTestUid, test::kTestGid, 0700);
  CHECK(with_range({test::kTestGid}, true, make_files({1, 101, test::kTestUid, kCrew, 65534, 65535})) == "");
  CHECK(with_range(kGroups, false, make_files({2})) == "");
  CHECK(test::as_user([&]() -> Result<void> {
          EXPECT(!remove_tree(tree));
          return {};
        }) == "");
  CHECK(with_range(kGroups, false, [&]() -> Result<void> { return remove_tree(tree); }) == "");
  CHECK(owner_of(tree) == static_cast<uid_t>(-1));
}

TEST_CASE("Directories of the range are removed whatever their group is, and those of others are not") {
  for (const bool as_root : {false, true}) {
    Project project;
    const std::string tree = project.place("tree", test::kTestUid, test::kTestGid, 0700);
    const uid_t one = kRange.first_uid + 32, other = kRange.first_uid + 65534;
    for (const char* name : {"tree/a", "tree/a/inner", "tree/b", "tree/c"}) (void)project.place(name, 0, 0, 0700);
    std::string deep = "tree/deep";
    for (int i = 0; i < 100; ++i, deep += "/d") (void)project.place(deep.c_str(), one, kForeign, 0700);
    for (const char* name : {"tree/a/file", "tree/a/inner/file", "tree/b/file", "tree/c/file"})
      (void)project.file(name, other, kForeign, 0600);
    Project::owned(tree + "/a/inner", other, kForeign, 0000);
    Project::owned(tree + "/a", one, kForeign, 0700);
    Project::owned(tree + "/b", one, 0, 01755);
    Project::owned(tree + "/c", test::kTestUid, kForeign, 0500);
    const std::string foreign = project.place("foreign", kOther, kForeign, 0700);
    (void)project.file("foreign/file", kOther, kForeign, 0600);
    CHECK(test::as_user([&]() -> Result<void> {
            EXPECT(!remove_tree(tree + "/a"));
            return {};
          }) == "");
    CHECK(with_range(kGroups, as_root, [&]() -> Result<void> {
            EXPECT(prctl(PR_SET_PDEATHSIG, SIGUSR1) == 0);
            TRY(remove_tree(tree));
            EXPECT(!remove_tree(foreign));
            // The rights, and what a process loses with them, are as before.
            EXPECT(static_cast<uid_t>(setfsuid(static_cast<uid_t>(-1))) == geteuid());
            int signal = 0;
            EXPECT(prctl(PR_GET_PDEATHSIG, &signal) == 0 && signal == SIGUSR1);
            EXPECT(prctl(PR_GET_DUMPABLE) == 1);
            TRY(read_file(project.text));
            return {};
          }) == "");
    CHECK(owner_of(tree) == static_cast<uid_t>(-1));
    CHECK(owner_of(foreign + "/file") == kOther);
  }
}

TEST_CASE("The maps of a range serve a namespace for id-mapped mounts, and the kernel takes no id twice") {
  CHECK(make_mapping_namespace(map_range({test::kTestUid, test::kTestGid, kGroups}, true, kRange)));
  CHECK_FALSE(make_mapping_namespace({"0 5 1\n0 6 1\n", map_groups(0, 5), false}));
}
