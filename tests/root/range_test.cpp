// What becomes of files that others of a user's range own: when he removes them, saves them and starts what he saved?
// By newuidmap(1), as on a login node: nothing here is root but what gives him a range.
#include <array>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "hooks/containers/container_store.hpp"
#include "hooks/containers/user_range.hpp"
#include "hooks/export/export.hpp"
#include "hooks/unpack/extract.hpp"
#include "hooks/unpack/read_image.hpp"
#include "tests/support/as_ranger.hpp"
#include "tests/support/memory_log.hpp"

using namespace situla;

namespace {

constexpr const char* kOtherLine = "ranger:3100000000:65536\n";

/// A directory of the user's.
struct Place {
  test::TempDir dir;
  Place() { test::give_to_user(dir.path()); }
};

struct Owned {
  const char* path;
  uid_t uid;
  gid_t gid;
};
constexpr std::array<Owned, 6> kOwned = {{{"bin", 0, 0},
                                          {"bin/program", 0, 5},
                                          {"var", 0, 0},
                                          {"var/data", 101, 102},
                                          {"var/data/1", 101, 102},
                                          {"var/data/2", 65534, 65535}}};

/// The number that this namespace has for one of an image's.
uid_t inside_uid(const NamespaceIds& ids, uid_t id) {
  return id == 0 ? geteuid() : ids.inside_uid(id);
}
gid_t inside_gid(const NamespaceIds& ids, gid_t id) {
  return id == 0 ? getegid() : ids.inside_gid(id);
}

/// As root of the range.
Result<void> make_tree(const std::string& tree) {
  for (const Owned& each : kOwned) {
    const std::string path = tree + "/" + each.path;
    if (path.find_last_of("12m") == path.size() - 1 || path.ends_with("program"))
      TRY(write_file_atomically(path, each.path, 0600, Sync::no));
    else if (mkdir(path.c_str(), 0700) != 0)
      return fail_errno(errno, "make " + path);
  }
  TRY_ASSIGN(const UniqueFd root, open_file(tree, O_RDONLY | O_DIRECTORY));
  if (symlinkat("data", root.get(), "var/link") != 0 ||
      fchownat(root.get(), "var/link", 101, 0, AT_SYMLINK_NOFOLLOW) != 0)
    return fail_errno(errno, "make a link");
  const NamespaceIds ids = NamespaceIds::own();
  for (const Owned& each : kOwned)
    if (chown((tree + "/" + each.path).c_str(), inside_uid(ids, each.uid), inside_gid(ids, each.gid)) != 0)
      return fail_errno(errno, "chown");
  return {};
}

/// The owners as this process sees them.
Result<void> check_owners(const std::string& tree, bool kept) {
  const NamespaceIds ids = NamespaceIds::own();
  for (const Owned& each : kOwned) {
    struct stat status {};
    if (lstat((tree + "/" + each.path).c_str(), &status) != 0)
      return fail_errno(errno, std::string("look at ") + each.path);
    const uid_t uid = inside_uid(ids, kept ? each.uid : 0);
    const gid_t gid = inside_gid(ids, kept ? each.gid : 0);
    if (status.st_uid != uid || status.st_gid != gid)
      return fail(ErrorKind::failure, std::string(each.path) + " belongs to " + std::to_string(status.st_uid) + ":" +
                                          std::to_string(status.st_gid));
  }
  return {};
}

std::string bytes_of(const std::string& path) {
  return read_file(path).value_or("it is not there");
}

/// lower: the image beneath it, if there is one.
Result<void> save(const std::string& tree, const std::string& image, const std::string& lower = "") {
  ExportSource source;
  source.name = "tree";
  TRY_ASSIGN(source.directory, open_file(tree, O_RDONLY | O_DIRECTORY));
  if (!lower.empty()) {
    TRY_ASSIGN(source.image, open_file(lower, O_RDONLY));
  }
  ExportOptions options;
  options.path = image;
  options.replace = true;
  options.all_time = 1;  // two of the same tree are the same file in whichever second they are made
  NullProgress progress;
  test::MemoryLog log;
  TRY(export_container(source, options, progress, log));
  return {};
}

Result<void> extract(const std::string& image, const std::string& tree, bool owners) {
  if (mkdir(tree.c_str(), 0700) != 0) return fail_errno(errno, "make " + tree);
  TRY_ASSIGN(const UniqueFd file, open_file(image, O_RDONLY));
  TRY_ASSIGN(const UniqueFd directory, open_file(tree, O_RDONLY | O_DIRECTORY));
  return extract_image(file.get(), directory.get(), {.owners = owners});
}

}  // namespace

TEST_CASE("What others of the range own is removed by their user, and by nobody without a range") {
  const Place place;
  const std::string tree = place.dir / "tree";
  const auto remove = [&](bool whole) -> Result<void> {
    TRY_ASSIGN(const UniqueFd parent, open_file(place.dir.path(), O_RDONLY | O_DIRECTORY));
    return whole ? remove_whole_tree_at(parent.get(), "tree") : remove_tree_at(parent.get(), "tree");
  };
  CHECK(test::as_ranger(test::kRangerLine, [&]() -> Result<void> {
          EXPECT(mkdir(tree.c_str(), 0700) == 0);
          TRY(in_own_range([&] { return make_tree(tree); }));
          struct stat status {};
          EXPECT(stat((tree + "/var/data").c_str(), &status) == 0 && status.st_uid == 3000000100);
          EXPECT(!remove(false));
          return {};
        }) == "");
  for (const char* line : {"", "other:3000000000:65536\n", kOtherLine})
    CHECK(test::as_ranger(line, [&]() -> Result<void> {
            const auto removed = remove(true);
            EXPECT(!removed && removed.error().message().find("ermi") != std::string::npos);
            return {};
          }) == "");
  CHECK(test::as_ranger(test::kRangerLine, [&] { return remove(true); }) == "");
  CHECK(access(tree.c_str(), F_OK) != 0);
}

TEST_CASE("An image has the owners that the container's programs see, and shows them to every user with a range") {
  const Place place;
  const std::string tree = place.dir / "tree", image = place.dir / "i.sqsh";
  CHECK(test::as_ranger(test::kRangerLine, [&]() -> Result<void> {
          EXPECT(mkdir(tree.c_str(), 0700) == 0);
          return in_own_range([&]() -> Result<void> {
            TRY(make_tree(tree));
            return save(tree, image);
          });
        }) == "");
  const auto file = open_file(image, O_RDONLY);
  REQUIRE(file);
  auto access = ImageAccess::open(file->get());
  REQUIRE(access);
  const auto ids = access->owners();
  REQUIRE(ids);
  const auto owner = [&](const char* path) {
    const auto inode = find_in_image(*access, path);
    REQUIRE(inode);
    return std::pair(ids->at(inode->owner), ids->at(inode->group));
  };
  for (const Owned& each : kOwned) CHECK(owner(each.path) == std::pair(each.uid, each.gid));
  // Somewhere else, with another range.
  CHECK(test::as_ranger(kOtherLine, [&]() -> Result<void> {
          return in_own_range([&]() -> Result<void> {
            TRY(extract(image, place.dir / "there", true));
            TRY(check_owners(place.dir / "there", true));
            struct stat link {};
            EXPECT(lstat((place.dir / "there/var/link").c_str(), &link) == 0 && link.st_uid == 101);
            return save(place.dir / "there", place.dir / "again.sqsh");
          });
        }) == "");
  CHECK(bytes_of(image) == bytes_of(place.dir / "again.sqsh"));
  // Without one all is the user's.
  CHECK(test::as_ranger("", [&]() -> Result<void> {
          TRY(extract(image, place.dir / "plain", true));
          return check_owners(place.dir / "plain", false);
        }) == "");
}

TEST_CASE("A container without a range is saved as ever, by a user who has one") {
  const Place place;
  const std::string tree = place.dir / "tree";
  CHECK(test::as_ranger(test::kRangerLine, [&]() -> Result<void> {
          EXPECT(mkdir(tree.c_str(), 0700) == 0);
          TRY(write_file_atomically(tree + "/file", "text", 0600, Sync::no));
          TRY(in_own_range([&] { return save(tree, place.dir / "a.sqsh"); }));
          return save(tree, place.dir / "b.sqsh");
        }) == "");
  CHECK(bytes_of(place.dir / "a.sqsh") == bytes_of(place.dir / "b.sqsh"));
}

TEST_CASE("The owners of an image are in what is saved of it where the saver has the range, and only there") {
  const Place place;
  const std::string tree = place.dir / "tree", upper = place.dir / "upper", image = place.dir / "i.sqsh";
  const auto names_owners_in = [&](const char* name) {
    const auto file = open_file(place.dir / name, O_RDONLY);
    const auto info = file ? read_image_info(file->get()) : fail(file.error());
    return info && info->names_owners;
  };
  CHECK(test::as_ranger(test::kRangerLine, [&]() -> Result<void> {
          EXPECT(mkdir(tree.c_str(), 0700) == 0 && mkdir(upper.c_str(), 0700) == 0);
          const auto save_with_range = [&]() -> Result<void> {
            TRY(make_tree(tree));
            TRY(save(tree, image));
            return save(upper, place.dir / "with.sqsh", image);
          };
          TRY(in_own_range(save_with_range));
          // As the saver does it of a container without a range.
          TRY(become_root_of_own_files());
          return save(upper, place.dir / "without.sqsh", image);
        }) == "");
  CHECK(names_owners_in("with.sqsh"));
  CHECK_FALSE(names_owners_in("without.sqsh"));
  CHECK(access((place.dir / "without.sqsh").c_str(), F_OK) == 0);
}

TEST_CASE("A container in which nobody has been root is exported with its image's owners, or with a warning") {
  const Place place;
  const std::string tree = place.dir / "tree", image = place.dir / "i.sqsh", container = place.dir / "c";
  const auto make_container = [&]() -> Result<void> {
    EXPECT(mkdir(tree.c_str(), 0700) == 0);
    const auto make_image = [&]() -> Result<void> {
      TRY(make_tree(tree));
      return save(tree, image);
    };
    TRY(in_own_range(make_image));
    for (const char* part : {"", "/.situla", "/.situla/upper", "/.situla/work"})
      EXPECT(mkdir((container + part).c_str(), 0700) == 0);
    EXPECT(rename(image.c_str(), (container + "/.situla/image.sqsh").c_str()) == 0);
    TRY_ASSIGN(const UniqueFd directory, open_file(container, O_RDONLY | O_DIRECTORY));
    return write_range(directory.get(), std::nullopt);
  };
  CHECK(test::as_ranger(test::kRangerLine, make_container) == "");
  const auto export_as = [&](const char* line, bool warned, const test::Body& before) {
    return test::as_ranger(line, [&]() -> Result<void> {
      const NamedContainer exported{"c", container, NamedContainer::Kind::layered};
      test::MemoryLog log;
      TRY(before());
      TRY(become_root_of(exported, log));
      EXPECT(geteuid() == 0);
      EXPECT(log.count(LogLevel::warning, "all files become root's") == (warned ? 1 : 0));
      return save(exported.upper(), place.dir / "out.sqsh", exported.image());
    });
  };
  const auto has_owners = [&] {
    const auto file = open_file(place.dir / "out.sqsh", O_RDONLY);
    const auto info = file ? read_image_info(file->get()) : fail(file.error());
    REQUIRE(info);
    return info->names_owners;
  };
  const auto nothing = [] { return Result<void>(); };
  CHECK(export_as(test::kRangerLine, false, nothing) == "");
  CHECK(has_owners());
  // There are ids for him, and newuidmap(1) may not give them.
  CHECK(export_as(test::kRangerLine, true, set_no_new_privileges) == "");
  CHECK_FALSE(has_owners());
  // To his programs all files are his own.
  CHECK(export_as("", false, nothing) == "");
  CHECK_FALSE(has_owners());
}

TEST_CASE("Capabilities of files are in an image for the root of whatever container is made of it") {
  const Place place;
  const std::string tree = place.dir / "tree", image = place.dir / "i.sqsh";
  // cap_net_raw+ep, as setcap(8) writes it.
  const std::string capability("\1\0\0\2\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
  const auto in_range = [&](bool as_root, const test::Body& body) {
    return test::as_ranger(test::kRangerLine, [&]() -> Result<void> {
      TRY_ASSIGN(RangeHelpers helpers, RangeHelpers::begin(as_root));
      TRY(unshare_namespaces(kUserNs));
      TRY(helpers.map());
      return body();
    });
  };
  CHECK(in_range(true, [&]() -> Result<void> {
          EXPECT(mkdir(tree.c_str(), 0700) == 0);
          TRY(write_file_atomically(tree + "/ping", "text", 0700, Sync::no));
          if (setxattr((tree + "/ping").c_str(), "security.capability", capability.data(), capability.size(), 0) != 0)
            return fail_errno(errno, "set capabilities");
          return {};
        }) == "");
  // As situla-saver is: the kernel shows another user the number of that root.
  CHECK(in_range(false, [&] { return save(tree, image); }) == "");
  const auto file = open_file(image, O_RDONLY);
  REQUIRE(file);
  auto access = ImageAccess::open(file->get());
  REQUIRE(access);
  const auto ping = find_in_image(*access, "ping");
  REQUIRE(ping);
  CHECK(access->attributes(*ping).value() ==
        std::vector<std::pair<std::string, std::string>>{{"security.capability", capability}});
}

TEST_CASE("A container is begun with a range once, and entered with no other") {
  const Place place;
  const std::string container = place.dir / "c";
  ContainerRequest request;
  request.uid = test::kTestUid;
  request.gid = test::kTestGid;
  request.root.kind = RootSource::Kind::directory;
  request.root.path = container;
  const auto wish = [&](bool root, bool writable) {
    request.remap_root = root;
    request.writable = writable;
    return range_wish(request);
  };
  const auto enter = [&](const char* line) {
    return test::as_ranger(line, [&]() -> Result<void> {
      TRY_ASSIGN(request.range, wish(true, true));
      TRY_ASSIGN(RangeHelpers helpers, RangeHelpers::begin(true));
      TRY(unshare_namespaces(kUserNs));
      TRY(helpers.map());
      TRY(check_range(request));
      return keep_range(request, container);
    });
  };
  CHECK(test::as_ranger("", [&]() -> Result<void> {
          EXPECT(mkdir(container.c_str(), 0700) == 0);
          // Made by an older release, or by enroot: nobody decides any more.
          TRY_ASSIGN(const RangeWish old, wish(true, true));
          EXPECT(!old.wanted);
          TRY_ASSIGN(const UniqueFd directory, open_file(container, O_RDONLY | O_DIRECTORY));
          TRY(write_range(directory.get(), std::nullopt));
          TRY_ASSIGN(const RangeWish fresh, wish(true, true));
          EXPECT(fresh.wanted && !fresh.exactly);
          TRY_ASSIGN(const RangeWish user, wish(false, true));
          EXPECT(!user.wanted);
          request.host.set("SITULA_ID_RANGE", "no");
          TRY_ASSIGN(const RangeWish unwanted, wish(true, true));
          EXPECT(!unwanted.wanted);
          return {};
        }) == "");
  request.host.unset("SITULA_ID_RANGE");
  CHECK(enter(test::kRangerLine) == "");
  CHECK(bytes_of(container + "/" + std::string(kRangeFile)) == "3000000000 3000000000\n");
  CHECK(enter(test::kRangerLine) == "");
  CHECK_THAT(enter(kOtherLine), Catch::Contains("the container has files of ids from 3000000000 (uids) and 3000000000 "
                                                "(gids), and here you have those from 3100000000"));
  // Who is not root wants it as well.
  request.host.set("SITULA_ID_RANGE", "no");
  const auto later = wish(false, false);
  REQUIRE(later);
  CHECK(later->wanted);
  CHECK(later->exactly == IdRange{3000000000, 3000000000});
}
