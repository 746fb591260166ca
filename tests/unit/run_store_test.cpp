// Do containers come and go whole, and does each kind keep what it promises? COMPAT.md 1 (names on disk) and 3.
#include <algorithm>
#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/base/scope_exit.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/process/process.hpp"
#include "hooks/containers/container_identity.hpp"
#include "hooks/containers/container_store.hpp"
#include "hooks/containers/extract_tree.hpp"
#include "hooks/containers/user_range.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

namespace fs = std::filesystem;
using namespace situla;

namespace {

struct Store {
  test::TempDir dir;
  test::MemoryLog log;
  EnrootConfig config;

  Store() : config(load()) {}

  EnrootConfig load() {
    Environment environment;
    environment.set("HOME", dir.path());
    environment.set("ENROOT_SYSCONF_PATH", dir / "etc");
    environment.set("ENROOT_DATA_PATH", dir / "data");
    return *EnrootConfig::load(environment, log);
  }

  [[nodiscard]] std::string image(const std::string& message, const std::string& mode = "0755") const {
    dir.write("tree/etc/message", message);
    const std::string path = dir / "i.sqsh";
    REQUIRE(std::system(("chmod " + mode + " " + (dir / "tree") + " && mksquashfs " + (dir / "tree") + " " + path +
                         " -all-root -noappend -quiet -no-progress >/dev/null")
                            .c_str()) == 0);
    return path;
  }

  Result<void> create(const std::string& name, const std::string& image, StorageWish wish, bool replace = false) {
    const UniqueFd file = std::move(*open_file(image, O_RDONLY));
    NewContainer request{dir / ("data/" + name), replace, wish, file.get(), false};
    return create_container(config, request, log).map([](const std::string&) {});
  }

  [[nodiscard]] std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir / "data")) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  [[nodiscard]] std::vector<NamedContainer> containers() const { return list_containers(config).value(); }

  [[nodiscard]] bool can_layer() { return makes_layers(config, StorageWish::automatic, log).value_or(false); }
};

std::string node_name() {
  char name[256] = {};
  REQUIRE(gethostname(name, sizeof name - 1) == 0);
  return name;
}

}  // namespace

TEST_CASE("a layered container holds a copy of its image and an empty layer with the image's root mode") {
  Store store;
  if (!store.can_layer()) SITULA_SKIP("no layered containers here: " + store.log.messages.back().text);
  const std::string image = store.image("hello", "0750");
  const std::string content = test::slurp(image);
  REQUIRE(store.create("a", image, StorageWish::automatic));
  const auto container = find_container(store.config, "a");
  REQUIRE(container);
  CHECK(container->kind == NamedContainer::Kind::layered);
  CHECK(container->name == "a");
  CHECK(container->path == store.dir / "data/a");
  struct stat original {
  }, copy{}, upper{};
  REQUIRE(stat(image.c_str(), &original) == 0);
  REQUIRE(stat(container->image().c_str(), &copy) == 0);
  CHECK(copy.st_ino != original.st_ino);
  store.dir.write("i.sqsh", "overwritten in place");
  CHECK(test::slurp(container->image()) == content);
  CHECK(fs::is_empty(container->upper()));
  CHECK(fs::is_empty(container->work()));
  REQUIRE(stat(container->upper().c_str(), &upper) == 0);
  CHECK((upper.st_mode & 07777U) == 0750);
}

TEST_CASE("an image without another name becomes the container's own") {
  Store store;
  if (!store.can_layer()) SITULA_SKIP("no layered containers here: " + store.log.messages.back().text);
  const UniqueFd unnamed = std::move(*open_file(store.dir / "data", O_TMPFILE | O_RDWR, 0600));
  const std::string content = test::slurp(store.image("hello"));
  REQUIRE(write_all(unnamed.get(), content));
  NewContainer request{store.dir / "data/a", false, StorageWish::layered, unnamed.get(), true};
  REQUIRE(create_container(store.config, request, store.log));
  struct stat file {
  }, kept{};
  REQUIRE(fstat(unnamed.get(), &file) == 0);
  REQUIRE(stat((store.dir / "data/a/.situla/image.sqsh").c_str(), &kept) == 0);
  CHECK(file.st_ino == kept.st_ino);
}

TEST_CASE("both kinds: refused, replaced, listed, removed") {
  Store store;
  const bool layers = store.can_layer();
  const std::string image = store.image("new");
  REQUIRE(store.create("tree", image, StorageWish::tree));
  CHECK(find_container(store.config, "tree")->kind == NamedContainer::Kind::tree);
  if (layers) REQUIRE(store.create("layers", image, StorageWish::layered));
  fs::create_directories(store.dir / "data/by enroot/etc");
  for (const NamedContainer& container : store.containers()) {
    INFO(container.name);
    const auto refused = store.create(container.name, image, StorageWish::tree);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::exists);
    CHECK(refused.error().message() == "File already exists: " + container.path);
    CHECK(refused.error().code() == ErrorCode::container_exists);
    CHECK(store.create(container.name, image, StorageWish::tree, true));
    CHECK(test::slurp(container.path + "/etc/message") == "new");
    if (layers) {
      CHECK(store.create(container.name, image, StorageWish::layered, true));
      CHECK(find_container(store.config, container.name)->kind == NamedContainer::Kind::layered);
    }
  }
  CHECK(store.entries().size() == (layers ? 3 : 2));
  for (const NamedContainer& container : store.containers())
    CHECK(remove_container(store.config, container.name, store.log));
  CHECK(store.entries().empty());
  CHECK(remove_container(store.config, "tree", store.log).error().kind() == ErrorKind::not_found);
  CHECK(remove_container(store.config, "tree", store.log).error().code() == ErrorCode::container_not_found);
  CHECK(find_container(store.config, "tree").error().code() == ErrorCode::container_not_found);
  CHECK(find_container(store.config, "../tree").error().code() == ErrorCode::container_name);
}

TEST_CASE("what is no image becomes no container of either kind") {
  Store store;
  const std::string image = store.image(std::string(100000, 'a'));
  fs::resize_file(image, 200);
  const std::string garbage = store.dir.write("garbage", std::string(8192, 'x'));
  for (const StorageWish wish : {StorageWish::automatic, StorageWish::tree})
    for (const std::string& file : {image, garbage}) {
      const auto created = store.create("a", file, wish);
      REQUIRE_FALSE(created);
      CHECK(created.error().kind() == ErrorKind::corrupt);
    }
  CHECK(store.entries().empty());
}

TEST_CASE("what a killed create or removal left goes with the next one; others' work stays") {
  Store store;
  const std::string image = store.image("hello");
  const std::string own = node_name() + "-0123456789abcdef";
  const std::string running = ".situla-create-" + node_name() + "-fedcba9876543210";
  const std::string elsewhere = ".situla-create-elsewhere.example-0123456789abcdef";
  const std::string alike = ".situla-create-" + node_name() + "-2-0123456789abcdef";
  // Of a replacement where names cannot be exchanged: the new one has not got its name.
  const std::string replaced = ".situla-create-" + own + ".replaced.b";
  for (const std::string& name :
       {".situla-create-" + own, ".situla-remove-" + own, ".situla-create-" + own + ".old", running, elsewhere, alike})
    store.dir.write("data/" + name + "/x", "");
  store.dir.write("data/" + replaced + "/x", "");
  const UniqueFd busy = std::move(*open_file(store.dir / ("data/" + running), O_RDONLY));
  REQUIRE(flock(busy.get(), LOCK_EX) == 0);
  REQUIRE(store.create("a", image, StorageWish::tree));
  std::vector<std::string> left = {running, elsewhere, alike, "a", "b"};
  std::sort(left.begin(), left.end());
  CHECK(store.entries() == left);
  REQUIRE(flock(busy.get(), LOCK_UN) == 0);
  REQUIRE(remove_container(store.config, "a", store.log));
  left = {elsewhere, alike, "b"};
  std::sort(left.begin(), left.end());
  CHECK(store.entries() == left);
}

TEST_CASE("kill -9 at any moment of create, replacement and removal: whole or not there, and the next one cleans up") {
  Store store;
  const std::string image = store.image(std::string(3000000, 'a'));
  REQUIRE(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
  const ScopeExit no_reaper([] { (void)prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); });
  for (int round = 0; round < 40; ++round) {
    const StorageWish wish = round % 2 == 0 ? StorageWish::tree : StorageWish::automatic;
    Child child = std::move(*fork_child());
    if (!child) {
      for (;;) {
        (void)store.create("a", image, wish, true);
        if (round % 4 < 2) (void)remove_container(store.config, "a", store.log);
      }
    }
    usleep(static_cast<useconds_t>(500 + (round * 7919) % 30000));
    REQUIRE(child.signal(SIGKILL));
    REQUIRE(child.wait());
    if (const auto found = find_container(store.config, "a")) {
      if (found->kind == NamedContainer::Kind::tree)
        CHECK(fs::file_size(found->path + "/etc/message") > 0);
      else
        CHECK(fs::file_size(found->image()) == fs::file_size(image));
    }
  }
  // What the killed ones had started keeps their locks until it has ended.
  while (waitpid(-1, nullptr, 0) > 0) continue;
  REQUIRE(store.create("a", image, StorageWish::tree, true));
  CHECK(store.entries() == std::vector<std::string>{"a"});
}

TEST_CASE("an image's own .situla makes no layered container of a tree") {
  Store store;
  store.dir.write("tree/.situla/image.sqsh", "hsqs");
  fs::create_directory_symlink("/proc/self/cwd", store.dir / "tree/.situla/upper");
  fs::create_directories(store.dir / "tree/.situla/work");
  REQUIRE(store.create("a", store.image("hello"), StorageWish::tree));
  CHECK(find_container(store.config, "a")->kind == NamedContainer::Kind::tree);
  CHECK_FALSE(fs::exists(store.dir / "data/a/.situla"));
  // What programs of the container put there later.
  fs::create_directories(store.dir / "data/a/.situla/work");
  store.dir.write("data/a/.situla/image.sqsh", "hsqs");
  fs::create_directory_symlink("/proc/self/cwd", store.dir / "data/a/.situla/upper");
  CHECK(find_container(store.config, "a")->kind == NamedContainer::Kind::tree);
}

TEST_CASE("every container has an identity of its own, whatever its image says") {
  Store store;
  store.dir.write("tree/.situla-id/planted", "");
  const std::string image = store.image("hello");
  std::vector<std::string> seen;
  for (const StorageWish wish : {StorageWish::tree, StorageWish::automatic, StorageWish::automatic}) {
    REQUIRE(store.create("a", image, wish, true));
    const auto container = find_container(store.config, "a");
    REQUIRE(container);
    seen.push_back(identity_of(container->directory->get()));
    CHECK(is_container_identity(seen.back()));
    CHECK(ensure_identity(container->directory->get()) == seen.back());
  }
  std::sort(seen.begin(), seen.end());
  CHECK(std::unique(seen.begin(), seen.end()) == seen.end());
}

TEST_CASE("a container made by hand gets an identity once; what is none is not taken for one") {
  const test::TempDir dir;
  const UniqueFd directory = std::move(*open_file(dir.path(), O_PATH | O_DIRECTORY));
  CHECK(identity_of(directory.get()).empty());
  const std::string identity = ensure_identity(directory.get());
  CHECK(is_container_identity(identity));
  CHECK(ensure_identity(directory.get()) == identity);
  CHECK(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()) == 1);
  for (const std::string text :
       {"", "short", "0123456789ABCDEF0123456789ABCDEF", "0123456789abcdef0123456789abcdef\n"}) {
    fs::remove(dir / ".situla-id");
    dir.write(".situla-id", text);
    CHECK(identity_of(directory.get()).empty());
    CHECK(ensure_identity(directory.get()).empty());
  }
  fs::remove(dir / ".situla-id");
  fs::create_symlink(dir.write("elsewhere", identity), dir / ".situla-id");
  CHECK(identity_of(directory.get()).empty());
}

TEST_CASE("what a step keeps on disk is no container; a container may have such a name") {
  Store store;
  for (const char* name : {"pyxis_12.0/upper", "pyxis_12.0/work", "pyxis_12.1/rootfs", "pyxis_12.2", "pyxis_24.10/etc",
                           "pyxis_x/upper", "pyxis_12.0.0123456789abcdef/upper"})
    fs::create_directories(store.dir / (std::string("data/") + name));
  std::vector<std::string> names;
  for (const NamedContainer& container : store.containers()) names.push_back(container.name);
  CHECK(names == std::vector<std::string>{"pyxis_24.10", "pyxis_x"});
  CHECK(find_container(store.config, "pyxis_12.0").error().kind() == ErrorKind::not_found);
}

TEST_CASE("what is another user's is found by who removes it only") {
  if (geteuid() != 0) SITULA_SKIP("only root has files of two users");
  Store store;
  fs::create_directories(store.dir / "data/other/etc");
  REQUIRE(chown((store.dir / "data/other").c_str(), 12345, 12345) == 0);
  const auto found = find_container(store.config, "other");
  REQUIRE_FALSE(found);
  CHECK(found.error().kind() == ErrorKind::denied);
  CHECK(store.containers().empty());
  CHECK(find_container(store.config, "other", OwnedBy::anybody));
  CHECK(list_containers(store.config, OwnedBy::anybody)->size() == 1);
  CHECK(remove_container(store.config, "other", store.log));
  CHECK(store.entries().empty());
}

TEST_CASE("a container in which only its user has written is replaced and removed whatever range it has") {
  Store store;
  const std::string image = store.image("hello");
  for (const bool readable : {true, false}) {
    REQUIRE(store.create("a", image, StorageWish::tree));
    store.dir.write("data/a/.situla-range", "3000000000 3000000000\n");
    store.dir.write("data/a/srv/its", "");
    if (!readable) fs::permissions(store.dir / "data/a/srv", fs::perms::none);
    if (!readable) fs::permissions(store.dir / "data/a", fs::perms::none);
    CHECK(store.create("a", image, StorageWish::tree, true));
    CHECK_FALSE(fs::exists(store.dir / "data/a/srv"));
    store.dir.write("data/a/.situla-range", "3000000000 3000000000\n");
    CHECK(remove_container(store.config, "a", store.log));
    CHECK(store.entries().empty());
  }
  CHECK(store.log.count(LogLevel::warning, "") == 0);
}

TEST_CASE("a container that its user may not search has no range, and one that says nonsense is an error") {
  const test::TempDir dir;
  dir.write("c/.situla-range", "");
  const UniqueFd held = std::move(*open_file(dir / "c", O_PATH | O_DIRECTORY));
  fs::permissions(dir / "c", fs::perms::none);
  const auto kept = [&] {
    std::optional<FileUser> ordinary;
    if (geteuid() == 0) ordinary.emplace(65534);  // root may search every directory
    return range_of_container(held.get());
  }();
  fs::permissions(dir / "c", fs::perms::owner_all);
  REQUIRE(kept);
  CHECK_FALSE(kept->undecided);
  CHECK_FALSE(kept->range);
  dir.write("c/.situla-range", "1 2 3");
  CHECK(range_of_container(open_file(dir / "c", O_PATH | O_DIRECTORY)->get()).error().kind() == ErrorKind::corrupt);
}

TEST_CASE("a tree whose files cannot have their owners is begun again, and all of it is the user's") {
  const test::TempDir dir;
  test::MemoryLog log;
  dir.write("source/a", "text");
  REQUIRE(
      std::system(("mksquashfs " + (dir / "source") + " " + (dir / "i.sqsh") +
                   " -noappend -quiet -no-progress -p 'roots f 644 0 0 true' -p 'its f 644 101 102 true' >/dev/null")
                      .c_str()) == 0);
  const UniqueFd image = std::move(*open_file(dir / "i.sqsh", O_RDONLY));
  const auto extract = [&](const std::string& name, const RunAsRoot& as_root) {
    fs::create_directories(dir / name);
    const UniqueFd target = std::move(*open_file(dir / name, O_RDONLY | O_DIRECTORY));
    return extract_tree(image.get(), target.get(), {.log = &log, .owners = true}, as_root);
  };
  // When it fails, all is there, and the directory may not be written any more.
  const auto refused = extract("a", [&](const std::function<Result<void>()>& body) -> Result<void> {
    TRY(body());
    fs::permissions(dir / "a", fs::perms::owner_read);
    return fail_errno(EPERM, "set owner");
  });
  REQUIRE(refused);
  CHECK_FALSE(*refused);
  CHECK(log.count(LogLevel::warning, "set owner") == 1);
  CHECK(test::slurp(dir / "a/a") == "text");
  CHECK(fs::exists(dir / "a/its"));
  // The error of the child that did it: an errno does not come along.
  for (const int errnum : {ENOSPC, EDQUOT}) {
    const auto full = extract("b", [&](const auto&) -> Result<void> {
      return fail(SentError::of(Error::from_errno(errnum, "write")).error());
    });
    REQUIRE_FALSE(full);
    CHECK(full.error().kind() == ErrorKind::no_space);
    CHECK(fs::is_empty(dir / "b"));
  }
  const auto kept = extract("c", [](const auto& body) { return body(); });
  REQUIRE(kept);
  CHECK(*kept);
}

TEST_CASE("who is root wants a range, unless the site or he himself says no") {
  ContainerRequest request;
  request.uid = 1000;
  request.gid = 1000;
  const auto wanted = [&] { return range_wish(request)->wanted; };
  const auto new_one = [&] { return static_cast<bool>(owners_wish(request.host, request.remap_root)); };
  CHECK_FALSE(wanted());
  CHECK_FALSE(new_one());
  request.remap_root = true;
  CHECK(wanted());
  CHECK(new_one());
  request.id_ranges = {SubordinateFiles::never, {}};
  CHECK_FALSE(wanted());
  request.id_ranges = {};
  request.host.set("SITULA_ID_RANGE", "no");
  CHECK_FALSE(wanted());
  CHECK_FALSE(new_one());
}
