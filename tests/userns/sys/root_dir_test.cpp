// Nothing in a root file system may lead a resolver out of it: neither ".." nor links, nor somebody who renames
// meanwhile.
#include "common/sys/root_dir.hpp"

#include <chrono>

#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "tests/support/as_user.hpp"
#include "tests/support/kernel.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

/// <dir>/secret outside, <dir>/root with ways to try to get there.
class Trap {
 public:
  Trap() {
    dir.write("secret", "outside");
    dir.write("root/inside", "inside");
    dir.write("root/secret", "decoy");
    dir.write("root/a/b/file", "file");
    link("../../../../../../secret", "a/up");
    link("/secret", "absolute");
    link("loop2", "loop1");
    link("loop1", "loop2");
    link("self/x", "self");
    link("/a", "dir");
    link("b/../b/./file", "a/winding");
    link("/new/place", "dangling");
    link((dir / "secret").c_str(), "host");
  }
  void link(const char* target, const char* name) const {
    REQUIRE(symlink(target, (dir.path() + "/root/" + name).c_str()) == 0);
  }
  [[nodiscard]] RootDir root(ResolveMode mode) const {
    return RootDir::from_fd(UniqueFd(open((dir / "root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)), mode);
  }

  test::TempDir dir;
};

const std::vector<ResolveMode> kModes = test::resolve_modes();

std::string content(const RootDir& root, const std::string& path) {
  auto text = root.read_file(path);
  return text ? *text : "errno " + std::to_string(text.error().errnum());
}

}  // namespace

TEST_CASE("Paths resolve as in a chroot, in both modes alike") {
  const Trap trap;
  for (const ResolveMode mode : kModes) {
    CAPTURE(mode == ResolveMode::walk);
    const RootDir root = trap.root(mode);
    CHECK(content(root, "inside") == "inside");
    CHECK(content(root, "/inside") == "inside");
    CHECK(content(root, "../../../../secret") == "decoy");
    CHECK(content(root, "a/../../../secret") == "decoy");
    CHECK(content(root, "a/up") == "decoy");
    CHECK(content(root, "absolute") == "decoy");
    CHECK(content(root, "dir/winding") == "file");
    CHECK(content(root, "dir/b/../../a//b/./file") == "file");
    CHECK(content(root, "host") == "errno " + std::to_string(ENOENT));
    CHECK(content(root, "loop1") == "errno " + std::to_string(ELOOP));
    CHECK(content(root, "self") == "errno " + std::to_string(ELOOP));
    CHECK(content(root, "inside/x") == "errno " + std::to_string(ENOTDIR));
    CHECK(content(root, "inside/") == "errno " + std::to_string(ENOTDIR));
    CHECK(content(root, "missing/../inside") == "errno " + std::to_string(ENOENT));
    CHECK(content(root, std::string(5000, 'x')) == "errno " + std::to_string(ENAMETOOLONG));
    CHECK(content(root, std::string("in\0side", 7)) == "errno " + std::to_string(EINVAL));
    CHECK(root.exists("dir"));
    CHECK(root.exists(""));
    CHECK(root.exists("/"));
    CHECK_FALSE(root.exists("dangling"));
  }
}

TEST_CASE("without descriptors nothing is there, and it is remembered that nobody knows") {
  const Trap trap;
  for (const ResolveMode mode : kModes) {
    CAPTURE(mode == ResolveMode::walk);
    const RootDir root = trap.root(mode);
    CHECK_FALSE(root.exists("missing"));
    CHECK(root.all_answered());
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const rlimit none{0, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
    const bool there = root.exists("inside");
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK_FALSE(there);
    CHECK(root.exists("inside"));
    const auto answered = root.all_answered();
    REQUIRE_FALSE(answered);
    CHECK(answered.error().errnum() == EMFILE);
  }
}

TEST_CASE("Flags mean what they mean for open(2), in both modes alike") {
  const Trap trap;
  for (const ResolveMode mode : kModes) {
    CAPTURE(mode == ResolveMode::walk);
    const RootDir root = trap.root(mode);
    CHECK(root.open_at("dir", O_RDONLY | O_NOFOLLOW).error().errnum() == ELOOP);
    const auto link = root.open_at("dir", O_PATH | O_NOFOLLOW);
    REQUIRE(link);
    struct stat status {};
    REQUIRE(fstat(link->get(), &status) == 0);
    CHECK(S_ISLNK(status.st_mode));
    CHECK(root.open_at("inside", O_RDONLY | O_DIRECTORY).error().errnum() == ENOTDIR);
    CHECK(root.open_at("inside", O_WRONLY | O_CREAT | O_EXCL, 0600).error().errnum() == EEXIST);
    CHECK(root.open_at("dir", O_WRONLY | O_CREAT | O_EXCL, 0600).error().errnum() == EEXIST);
    CHECK(root.open_at("dir", O_WRONLY | O_CREAT, 0600).error().errnum() == EISDIR);
    CHECK(root.open_at("x/", O_WRONLY | O_CREAT, 0600).error().errnum() == EISDIR);
    CHECK(root.open_at("no/x", O_WRONLY | O_CREAT, 0600).error().errnum() == ENOENT);
    const auto made = root.open_at("/../made", O_WRONLY | O_CREAT | O_EXCL, 0640);
    REQUIRE(made);
    CHECK((fcntl(made->get(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(std::filesystem::exists(trap.dir / "root/made"));
    std::filesystem::remove(trap.dir / "root/made");
    // Creating through a dangling link that points "outside" creates inside.
    REQUIRE(symlink("/../../fresh", (trap.dir / "root/f").c_str()) == 0);
    REQUIRE(root.open_at("f", O_WRONLY | O_CREAT, 0600));
    CHECK(std::filesystem::exists(trap.dir / "root/fresh"));
    CHECK_FALSE(std::filesystem::exists(trap.dir / "fresh"));
    std::filesystem::remove(trap.dir / "root/fresh");
    std::filesystem::remove(trap.dir / "root/f");
  }
}

TEST_CASE("Missing directories and files are made inside, through links, dangling ones included") {
  for (const ResolveMode mode : kModes) {
    CAPTURE(mode == ResolveMode::walk);
    const Trap trap;
    const RootDir root = trap.root(mode);
    REQUIRE(root.make_directories("dir/x/y/", 0755));
    CHECK(std::filesystem::is_directory(trap.dir / "root/a/x/y"));
    REQUIRE(root.make_directories("dangling/z", 0755));
    CHECK(std::filesystem::is_directory(trap.dir / "root/new/place/z"));
    REQUIRE(root.make_directories("../../p", 0755));
    CHECK(std::filesystem::is_directory(trap.dir / "root/p"));
    CHECK(root.make_directories("inside/x", 0755).error().errnum() == ENOTDIR);
    CHECK(root.make_directories("loop1/x", 0755).error().errnum() == ELOOP);
    REQUIRE(root.make_file("q/r/file", 0644));
    CHECK(std::filesystem::is_regular_file(trap.dir / "root/q/r/file"));
    CHECK(root.make_file("q/r/file", 0644));
    CHECK(root.make_file("q/r", 0644));  // what is there, is there
    trap.link("/etc/target", "filelink");
    REQUIRE(root.make_file("filelink", 0644));
    CHECK(std::filesystem::is_regular_file(trap.dir / "root/etc/target"));
    CHECK_FALSE(root.make_file("loop1", 0644));
    CHECK_FALSE(root.make_file("q/", 0644));
  }
}

TEST_CASE("A file is written by replacing it, links included, and only regular files are read") {
  for (const ResolveMode mode : kModes) {
    CAPTURE(mode == ResolveMode::walk);
    const Trap trap;
    const RootDir root = trap.root(mode);
    REQUIRE(root.write_file("dir/b/file", "new", 0640));
    CHECK(test::slurp(trap.dir / "root/a/b/file") == "new");
    REQUIRE(root.write_file("host", "replaced", 0644));
    CHECK(test::slurp(trap.dir / "secret") == "outside");
    CHECK(test::slurp(trap.dir / "root/host") == "replaced");
    CHECK_FALSE(root.write_file("no/file", "x", 0644));
    CHECK_FALSE(root.write_file("a", "x", 0644));
    CHECK(std::distance(std::filesystem::directory_iterator(trap.dir / "root"),
                        std::filesystem::directory_iterator()) == 10);
    REQUIRE(mkfifo((trap.dir / "root/fifo").c_str(), 0600) == 0);
    CHECK(root.read_file("fifo").error().kind() == ErrorKind::corrupt);
    CHECK(root.read_file("a").error().kind() == ErrorKind::corrupt);
    CHECK(root.read_file("inside", 3).error().kind() == ErrorKind::corrupt);
  }
}

TEST_CASE("Magic links of /proc are not followed, its ordinary links are") {
  const std::string answer = test::in_child([]() -> Result<void> {
    const UniqueFd host(open("/etc", O_RDONLY | O_DIRECTORY));
    for (const ResolveMode mode : kModes) {
      const RootDir root = RootDir::from_fd(UniqueFd(open("/", O_PATH | O_DIRECTORY)), mode);
      EXPECT(root.read_file("/proc/self/status"));
      EXPECT(root.read_file("/proc/mounts", 10 << 20));
      for (const std::string& link :
           {std::string("/proc/self/root/etc/passwd"), std::string("/proc/self/cwd/."), std::string("/proc/self/exe"),
            "/proc/self/fd/" + std::to_string(host.get()) + "/passwd", std::string("/proc/self/ns/mnt")}) {
        const auto opened = root.open_at(link, O_RDONLY);
        EXPECT(!opened);
        EXPECT(opened.error().errnum() == ELOOP || opened.error().errnum() == EXDEV);
      }
    }
    return {};
  });
  CHECK(answer == "");
}

TEST_CASE("Somebody who renames while we resolve gains nothing") {
  for (const ResolveMode mode : kModes) {
    CAPTURE(mode == ResolveMode::walk);
    const Trap trap;
    const std::string base = trap.dir / "root";
    // The attacker moves a directory in and out of the root, and swaps a directory for a link, as fast as possible.
    std::filesystem::create_directories(base + "/deep/1/2/3");
    std::filesystem::create_directories(base + "/swap");
    trap.dir.write("root/swap/secret", "decoy");
    std::filesystem::create_directories(trap.dir / "elsewhere");
    trap.dir.write("elsewhere/secret", "outside");
    REQUIRE(symlink((trap.dir / "elsewhere").c_str(), (base + "/swap2").c_str()) == 0);
    auto attacker = fork_child();
    REQUIRE(attacker);
    if (!*attacker) {
      const std::string in = base + "/deep/1";
      const std::string out = trap.dir / "moved";
      for (;;) {
        (void)rename(in.c_str(), out.c_str());
        (void)rename(out.c_str(), in.c_str());
        (void)renameat2(AT_FDCWD, (base + "/swap").c_str(), AT_FDCWD, (base + "/swap2").c_str(), RENAME_EXCHANGE);
      }
    }
    const RootDir root = trap.root(mode);
    int decoys = 0;
    int refused = 0;
    int escapes = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
    while (std::chrono::steady_clock::now() < end)
      for (const char* path : {"deep/1/2/3/../../../../../secret", "deep/1/2/../../../secret", "swap/secret",
                               "deep/1/2/3/../../../../../../secret"}) {
        const std::string text = content(root, path);
        if (text == "outside")
          ++escapes;
        else if (text == "decoy")
          ++decoys;
        else
          ++refused;
      }
    (void)attacker->signal(SIGKILL);
    (void)attacker->wait();
    CHECK(escapes == 0);
    CHECK(decoys > 100);
    CHECK(refused > 0);  // or the attacker never got in between and the test shows nothing
  }
}

TEST_CASE("Links that somebody replaces by equal ones while we resolve are no circle") {
  // Linux counts links twice when it begins a walk again.
  for (const ResolveMode mode : kModes) {
    CAPTURE(mode == ResolveMode::walk);
    const Trap trap;
    const auto name = [&](int i) { return trap.dir / ("root/chain" + std::to_string(i)); };
    std::filesystem::create_directory(name(0));
    trap.dir.write("root/chain0/file", "found");
    for (int i = 1; i <= 30; ++i) std::filesystem::create_symlink("chain" + std::to_string(i - 1), name(i));
    auto other = fork_child();
    REQUIRE(other);
    if (!*other) {
      for (int i = 0;; i = (i + 1) % 30)
        if (symlink(("chain" + std::to_string(i)).c_str(), name(31).c_str()) == 0)
          (void)rename(name(31).c_str(), name(i + 1).c_str());
    }
    const RootDir root = trap.root(mode);
    int lost = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (std::chrono::steady_clock::now() < end) lost += content(root, "chain30/file") == "found" ? 0 : 1;
    (void)other->signal(SIGKILL);
    (void)other->wait();
    CHECK(lost == 0);
  }
}
