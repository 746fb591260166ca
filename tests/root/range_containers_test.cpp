// Which range does a container begin with, who decides it, and what becomes of one whose root has given it away? By
// newuidmap(1), as on a login node.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "hooks/containers/container_store.hpp"
#include "hooks/containers/user_range.hpp"
#include "hooks/run/isolation.hpp"
#include "tests/support/as_ranger.hpp"
#include "tests/support/memory_log.hpp"

using namespace situla;

namespace {

constexpr const char* kOtherLine = "ranger:3100000000:65536\n";
constexpr uid_t kFirst = 3000000000;

/// A data directory of the test user's, and an image with a file of 101:102.
struct Scene {
  test::TempDir dir;
  test::MemoryLog log;
  EnrootConfig config;

  Scene() : config(load()) {
    REQUIRE(chmod(dir.path().c_str(), 0755) == 0);
    REQUIRE(mkdir((dir / "data").c_str(), 0700) == 0);
    test::give_to_user(dir / "data");
    dir.write("tree/etc/message", "hello");
    REQUIRE(std::system(("mksquashfs " + (dir / "tree") + " " + (dir / "i.sqsh") +
                         " -noappend -quiet -no-progress -p 'its f 600 101 102 echo secret' >/dev/null")
                            .c_str()) == 0);
  }

  EnrootConfig load() {
    Environment environment;
    environment.set("HOME", dir.path());
    environment.set("ENROOT_SYSCONF_PATH", dir / "etc");
    environment.set("ENROOT_DATA_PATH", dir / "data");
    return *EnrootConfig::load(environment, log);
  }

  Result<void> create(const std::optional<IdRangeRule>& owners) {
    TRY_ASSIGN(const UniqueFd image, open_file(dir / "i.sqsh", O_RDONLY));
    NewContainer request{dir / "data/c", true, StorageWish::tree, image.get(), false};
    if (owners) request.owners = [rule = *owners] { return rule; };
    TRY(create_container(config, request, log));
    return {};
  }

  [[nodiscard]] std::string range() const {
    return read_file(dir / "data/c/.situla-range").value_or("it is not there");
  }
  [[nodiscard]] uid_t owner(const std::string& path) const {
    struct stat status {};
    return lstat((dir / ("data/c/" + path)).c_str(), &status) == 0 ? status.st_uid : 0;
  }
  /// All that is in the data directory, one a line: where, type and mode, whose, and how long.
  [[nodiscard]] std::string all() const {
    std::vector<std::string> lines;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir / "data")) {
      struct stat status {};
      REQUIRE(lstat(entry.path().c_str(), &status) == 0);
      lines.push_back(entry.path().string() + ' ' + std::to_string(status.st_mode) + ' ' +
                      std::to_string(status.st_uid) + ':' + std::to_string(status.st_gid) + ' ' +
                      (S_ISREG(status.st_mode) ? std::to_string(status.st_size) : "") + '\n');
    }
    std::sort(lines.begin(), lines.end());
    return std::accumulate(lines.begin(), lines.end(), std::string());
  }
};

/// In the container's directory, as root of its range: one who became another user has left something there.
Result<void> work_in(const std::string& directory) {
  return in_own_range([&]() -> Result<void> {
    const std::string its = directory + "/its-directory";
    EXPECT(std::system(("install -d -m 700 " + its + "/deep && touch " + its + "/deep/file && chown -R 101:102 " + its)
                           .c_str()) == 0);
    return {};
  });
}

/// What a layered container has on disk, made by a user whose root has worked in it.
Result<void> make_layered(const std::string& directory) {
  EXPECT(std::system(("mkdir -p " + directory + "/.situla/upper " + directory + "/.situla/work/work && chmod 0 " +
                      directory + "/.situla/work/work && echo image >" + directory + "/.situla/image.sqsh")
                         .c_str()) == 0);
  TRY(write_file_atomically(directory + "/.situla-range", "3000000000 3000000000\n", 0644, Sync::no));
  return work_in(directory + "/.situla/upper");
}

}  // namespace

TEST_CASE("A tree has its image's owners if the site gives the user ids for them, and he wants them") {
  Scene scene;
  struct Case {
    std::optional<IdRangeRule> owners;
    bool kept;
  };
  for (const Case& each :
       {Case{IdRangeRule{}, true}, Case{IdRangeRule{SubordinateFiles::never, {}}, false},
        Case{IdRangeRule{SubordinateFiles::never, {1000000000, 1, 10000}}, false}, Case{std::nullopt, false}}) {
    CHECK(test::as_ranger(test::kRangerLine, [&] { return scene.create(each.owners); }) == "");
    CHECK(scene.owner("its") == (each.kept ? kFirst + 100 : test::kTestUid));
    CHECK(scene.range() == (each.kept ? "3000000000 3000000000\n" : ""));
  }
}

TEST_CASE("A tree that its root has given away is found, has its range, and is removed") {
  Scene scene;
  const std::string container = scene.dir / "data/c";
  for (const char* mode : {"755", "700"}) {
    CHECK(test::as_ranger(test::kRangerLine, [&]() -> Result<void> {
            TRY(scene.create(IdRangeRule{}));
            return in_own_range([&]() -> Result<void> {
              EXPECT(std::system(("chown -R 101 " + container + " && chmod " + mode + " " + container).c_str()) == 0);
              return {};
            });
          }) == "");
    CHECK(scene.owner("") == kFirst + 100);
    CHECK(test::as_ranger(test::kRangerLine, [&]() -> Result<void> {
            TRY_ASSIGN(const NamedContainer found, find_container(scene.config, "c"));
            TRY_ASSIGN(const ContainerRange kept, range_of_container(found.directory->get()));
            EXPECT(kept.range == (IdRange{kFirst, kFirst}));
            TRY_ASSIGN(const auto all, list_containers(scene.config));
            EXPECT(all.size() == 1);
            return {};
          }) == "");
    // Who has another range, or none, is told whose it is, and removes nothing.
    const std::string before = scene.all();
    for (const char* line : {kOtherLine, ""})
      CHECK(test::as_ranger(line, [&]() -> Result<void> {
              EXPECT(find_container(scene.config, "c").error().kind() == ErrorKind::denied);
              TRY(find_container(scene.config, "c", OwnedBy::anybody));
              EXPECT(!remove_container(scene.config, "c", scene.log));
              return {};
            }) == "");
    CHECK(scene.all() == before);
    CHECK(test::as_ranger(test::kRangerLine, [&] { return remove_container(scene.config, "c", scene.log); }) == "");
    CHECK(access(container.c_str(), F_OK) != 0);
    CHECK(test::as_ranger(test::kRangerLine, [&]() -> Result<void> {
            TRY_ASSIGN(const auto names, list_containers(scene.config, OwnedBy::anybody));
            EXPECT(names.empty());
            return {};
          }) == "");
  }
}

TEST_CASE("A container whose range cannot be had is neither removed nor replaced, and stays whole") {
  Scene scene;
  const std::string container = scene.dir / "data/c";
  const auto check = [&](const Result<void>& done) -> Result<void> {
    EXPECT(!done && done.error().kind() == ErrorKind::denied && done.error().code() == ErrorCode::namespaces);
    EXPECT(done.error().message().find(container) != std::string::npos);
    EXPECT(done.error().message().find("have the range of ids from 3000000000") != std::string::npos);
    EXPECT(done.error().hint().find("newuidmap(1)") != std::string::npos);
    return {};
  };
  for (const char* kind : {"tree", "tree that its user may not search", "layers"}) {
    INFO(kind);
    CHECK(test::as_ranger(test::kRangerLine, [&]() -> Result<void> {
            if (kind == std::string_view("layers")) return make_layered(container);
            TRY(scene.create(IdRangeRule{}));
            TRY(work_in(container));
            EXPECT(chmod(container.c_str(), kind == std::string_view("tree") ? 0755 : 0) == 0);
            return {};
          }) == "");
    const std::string before = scene.all();
    for (const char* line : {kOtherLine, ""})
      CHECK(test::as_ranger(line, [&]() -> Result<void> {
              TRY(check(remove_container(scene.config, "c", scene.log)));
              TRY(check(scene.create(std::nullopt)));
              return {};
            }) == "");
    // Nobody gains privileges here: newuidmap does not, either.
    CHECK(test::as_ranger(test::kRangerLine, [&]() -> Result<void> {
            TRY(set_no_new_privileges());
            return check(remove_container(scene.config, "c", scene.log));
          }) == "");
    CHECK(scene.all() == before);
    // With the range both are done, and nothing is left.
    CHECK(test::as_ranger(test::kRangerLine, [&]() -> Result<void> {
            TRY(scene.create(std::nullopt));
            EXPECT(scene.log.count(LogLevel::warning, "") == 0);
            EXPECT(access((container + "/its-directory").c_str(), F_OK) != 0);
            TRY(work_in(container));
            return remove_container(scene.config, "c", scene.log);
          }) == "");
    CHECK(scene.all().empty());
  }
}

TEST_CASE("What another user owns beside a container is not touched, and no range is spoken of") {
  Scene scene;
  const std::string container = scene.dir / "data/c";
  for (const char* line : {test::kRangerLine, ""}) {
    REQUIRE(std::system(("mkdir -p " + container + "/open && touch " + container + "/open/file && chmod -R 777 " +
                         container + " && chown -R 12345 " + container)
                            .c_str()) == 0);
    const std::string before = scene.all();
    CHECK(test::as_ranger(line, [&]() -> Result<void> {
            for (const Result<void>& refused : {find_container(scene.config, "c").map([](const auto&) {}),
                                                remove_container(scene.config, "c", scene.log)})
              EXPECT(!refused && refused.error().message() == container + " belongs to uid 12345");
            return {};
          }) == "");
    CHECK(scene.all() == before);
    // In a directory of his own: as ever.
    test::give_to_user(container);
    REQUIRE(chmod((container + "/open").c_str(), 0755) == 0);
    CHECK(test::as_ranger(line, [&]() -> Result<void> {
            const auto refused = remove_container(scene.config, "c", scene.log);
            EXPECT(!refused && refused.error().errnum() == EACCES && refused.error().hint().empty());
            return {};
          }) == "");
    std::filesystem::remove_all(container);
  }
}

TEST_CASE("Who would begin a container with a range is told if another has begun it without; nothing is left in it") {
  Scene scene;
  ContainerRequest request;
  request.uid = test::kTestUid;
  request.gid = test::kTestGid;
  request.root.kind = RootSource::Kind::directory;
  request.root.path = scene.dir / "data/c";
  request.remap_root = request.writable = true;
  const std::string file = request.root.path + "/.situla-range";
  for (const bool meanwhile : {true, false})
    CHECK(test::as_ranger(test::kRangerLine, [&]() -> Result<void> {
            TRY(scene.create(std::nullopt));
            TRY_ASSIGN(request.range, range_wish(request));
            EXPECT(request.range.wanted);
            if (meanwhile) EXPECT(unlink(file.c_str()) == 0);
            return in_own_range([&]() -> Result<void> {
              const auto kept = keep_range(request, request.root.path);
              EXPECT(meanwhile != kept.has_value());
              if (meanwhile) EXPECT(kept.error().message().find("meanwhile") != std::string::npos);
              for (const auto& entry : std::filesystem::directory_iterator(request.root.path))
                EXPECT(!entry.path().filename().string().starts_with(".situla-range.") &&
                       (!meanwhile || entry.path() != file));
              return {};
            });
          }) == "");
  CHECK(scene.range() == "3000000000 3000000000\n");
}

TEST_CASE("A command whose ids newuidmap or newgidmap refuses has its user's own") {
  for (const char* program : {"/usr/bin/newuidmap", "/usr/bin/newgidmap"}) {
    INFO(program);
    Scene scene;
    ContainerRequest request;
    request.uid = test::kTestUid;
    request.gid = test::kTestGid;
    request.remap_root = true;
    request.range.wanted = true;
    request.id_ranges.files = SubordinateFiles::always;
    request.config = scene.config;
    request.config.set("ENROOT_RUNTIME_PATH", scene.dir / "data/run");
    const auto refuse = [&](const std::string& directory) {
      return test::put_file(directory, program, "#!/bin/sh\nexit 1\n", 0755);
    };
    CHECK(test::as_ranger(
              test::kRangerLine,
              [&]() -> Result<void> {
                TRY(enter_own_namespaces(request, scene.log));
                EXPECT(geteuid() == 0 && getegid() == 0 && !own_id_range());
                return {};
              },
              refuse) == "");
  }
}
