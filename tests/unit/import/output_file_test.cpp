// Does a file appear whole or not at all, and does what a killed writer left go with the next one?
#include "hooks/squashfs/output_file.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <filesystem>

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "tests/support/temp_dir.hpp"

namespace fs = std::filesystem;
using namespace situla;
using namespace situla::test;

namespace {

std::vector<std::string> names(const TempDir& directory) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(directory.path())) found.push_back(entry.path().filename());
  std::sort(found.begin(), found.end());
  return found;
}

using Names = std::vector<std::string>;

/// As on NFS: no file is without a name, and no name is given on condition that it is free. For this process, for good.
/// links: whether a file may have two.
bool behave_as_nfs(bool links) {
  constexpr uint32_t kTmpFile = O_TMPFILE & ~O_DIRECTORY;
  std::array<sock_filter, 12> code = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 4, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, links ? ~0U : SYS_linkat, 7, 6),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + 2 * sizeof(uint64_t)),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kTmpFile, 0, 4),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + 4 * sizeof(uint64_t)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
  }};
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// How a child ends that does this to two files, of which the first is published.
int interrupted(const TempDir& directory, void (*at_last)()) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) (void)std::signal(number, SIG_DFL);  // Catch2 has its own
    remove_parts_when_interrupted();
    if (!behave_as_nfs(true)) _exit(90);
    auto whole = OutputFile::create(directory / "whole");
    if (!whole || !whole->publish(0644)) _exit(91);
    auto file = OutputFile::create(directory / "f");
    if (!file || names(directory).size() != 2) _exit(92);
    at_last();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("who interrupts a command finds nothing of what it was writing, also where every file has a name") {
  const TempDir directory;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    static int sent = 0;
    sent = number;
    fs::remove(directory / "whole");
    const int status = interrupted(directory, [] { (void)raise(sent); });
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == number);
    CHECK(names(directory) == Names{"whole"});
  }
  // A child of it ends alone.
  fs::remove(directory / "whole");
  const int status = interrupted(directory, [] {
    if (const pid_t child = fork(); child == 0)
      (void)raise(SIGTERM);
    else
      waitpid(child, nullptr, 0);
    (void)raise(SIGKILL);
  });
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
  CHECK(names(directory).size() == 2);
}

TEST_CASE("a file appears whole, once, and not at all when given up") {
  const TempDir directory;
  const std::string path = directory / "f";
  { REQUIRE(OutputFile::create(path)); }
  CHECK(names(directory).empty());
  auto file = OutputFile::create(path);
  REQUIRE(file);
  REQUIRE(write(file->fd(), "x", 1) == 1);
  CHECK_FALSE(fs::exists(path));
  REQUIRE(file->publish(0444));
  CHECK(slurp(path) == "x");
  auto other = OutputFile::create(path);
  REQUIRE(other);
  const auto again = other->publish(0444);
  REQUIRE_FALSE(again);
  CHECK(again.error().kind() == ErrorKind::exists);
  CHECK(again.error().message() == "File already exists: " + path);
  CHECK_FALSE(OutputFile::create(directory.path() + "/"));
  CHECK_FALSE(OutputFile::create(directory / "no/file"));
}

TEST_CASE("what only has one name is renamed where no name can be given otherwise, and takes no place") {
  const TempDir directory;
  const auto publish_twice = [&] {
    if (!behave_as_nfs(false)) return 90;
    auto file = OutputFile::create(directory / "f");
    if (!file || !file->publish_as(directory / "whole", 0400)) return 91;
    auto other = OutputFile::create(directory / "f");
    if (!other) return 92;
    const auto again = other->publish_as(directory / "whole", 0400);
    return !again && again.error().kind() == ErrorKind::exists ? 0 : 93;
  };
  const pid_t child = fork();
  if (child == 0) _exit(publish_twice());
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(names(directory) == Names{"whole"});
}

TEST_CASE("a file is replaced, and nothing is beside it") {
  const TempDir directory;
  const std::string path = directory.write("f", "old");
  auto file = OutputFile::create(path);
  REQUIRE(file);
  REQUIRE(write(file->fd(), "new", 3) == 3);
  CHECK(slurp(path) == "old");
  REQUIRE(file->publish_over(0644));
  CHECK(slurp(path) == "new");
  CHECK(names(directory) == Names{"f"});
}

TEST_CASE("a part without a writer goes with the next file of its directory, whatever becomes of that") {
  const TempDir directory;
  const std::string part = directory.write(".situla-0123456789abcdef.part", "");
  const Names alike = {".situla-01234567.part", ".situla-0123456789ABCDEF.part", ".situla-fedcba9876543210.part",
                       ".situla-notes.part"};
  for (const std::string& name : alike)
    if (name != alike[2]) (void)directory.write(name, "");
  fs::create_directory(directory / alike[2]);
  {
    const UniqueFd writer = open_file(part, O_RDWR).value();
    REQUIRE(flock(writer.get(), LOCK_EX) == 0);
    { REQUIRE(OutputFile::create(directory / "f")); }
    CHECK(fs::exists(part));
  }
  REQUIRE(chmod(part.c_str(), 0400) == 0);
  { REQUIRE(OutputFile::create(directory / "f")); }
  CHECK(names(directory) == alike);
}

TEST_CASE("a file that has a link in its place is written where that leads") {
  const TempDir directory;
  fs::create_directory(directory / "scratch");
  fs::create_symlink("scratch/f", directory / "to");
  fs::create_symlink(directory / "to", directory / "f");
  fs::create_symlink("loop", directory / "loop");
  CHECK(followed(directory / "f") == directory / "scratch/f");
  CHECK(followed(directory / "none") == directory / "none");
  CHECK(followed(directory / "loop") == directory / "loop");
  // As in /tmp: what somebody else has put there leads nowhere.
  fs::create_directory(directory / "tmp");
  fs::create_symlink("../scratch/f", directory / "tmp/f");
  REQUIRE(chmod((directory / "tmp").c_str(), 01777) == 0);
  CHECK(followed(directory / "tmp/f") == directory / "tmp/../scratch/f");
  if (geteuid() == 0) {
    REQUIRE(lchown((directory / "tmp/f").c_str(), 12345, 12345) == 0);
    CHECK(followed(directory / "tmp/f") == directory / "tmp/f");
  }
  auto file = OutputFile::create(followed(directory / "f"));
  REQUIRE(file);
  REQUIRE(file->publish(0644));
  CHECK(fs::is_symlink(directory / "f"));
  CHECK(fs::exists(directory / "scratch/f"));
}
