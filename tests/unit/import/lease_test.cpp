// Is a lease held by one at a time, and free again when its owner is gone?
#include "hooks/import/lease.hpp"

#include <filesystem>
#include <fstream>

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "hooks/import/output_file.hpp"

using namespace situla;
namespace fs = std::filesystem;

namespace {

struct Directory {
  fs::path path = fs::temp_directory_path() / ("situla-lease-" + std::to_string(getpid()));
  Directory() { fs::create_directories(path); }
  ~Directory() { fs::remove_all(path); }
};

const auto kSilent = [](const std::string&) {};
const auto kNever = [] { return false; };

}  // namespace

TEST_CASE("free, held, done, released") {
  const Directory directory;
  const std::string path = directory.path / "l";
  {
    auto first = Lease::acquire(path, {}, kSilent, kNever);
    REQUIRE((first && *first));
    std::string owner;
    int asked = 0;
    auto second = Lease::acquire(
        path, {}, [&](const std::string& line) { owner = line; }, [&] { return ++asked > 1; });
    REQUIRE(second);
    CHECK_FALSE(second->has_value());
    CHECK(owner.find("pid " + std::to_string(getpid())) != std::string::npos);
  }
  CHECK(fs::is_empty(directory.path));
}

TEST_CASE("a dead owner on this node holds nothing") {
  const Directory directory;
  const std::string path = directory.path / "l";
  const pid_t child = fork();
  if (child == 0) {
    auto lease = Lease::acquire(path, {}, kSilent, kNever);
    _exit(lease ? 0 : 1);  // no destructor: as SIGKILL
  }
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(fs::exists(path));
  auto lease = Lease::acquire(path, {}, kSilent, kNever);
  CHECK((lease && *lease));
}

TEST_CASE("a heartbeat of another node that stops is taken over, one that goes on is not") {
  const Directory directory;
  const std::string path = directory.path / "l";
  std::ofstream(path) << "other-node 0000 pid 1\n";
  Lease::Options options;
  options.stale = std::chrono::milliseconds(300);
  options.poll = std::chrono::milliseconds(20);
  int beats = 0;
  auto lease = Lease::acquire(path, options, kSilent, [&] {
    if (++beats < 30) fs::last_write_time(path, fs::file_time_type::clock::now());
    return false;
  });
  REQUIRE((lease && *lease));
  CHECK(beats >= 30);
}

TEST_CASE("a file appears whole, once, and not at all when given up") {
  const Directory directory;
  const std::string path = directory.path / "f";
  { REQUIRE(OutputFile::create(path)); }
  CHECK(fs::is_empty(directory.path));
  auto file = OutputFile::create(path);
  REQUIRE(file);
  REQUIRE(write(file->fd(), "x", 1) == 1);
  CHECK_FALSE(fs::exists(path));
  REQUIRE(file->publish(0444));
  CHECK(fs::file_size(path) == 1);
  auto other = OutputFile::create(path);
  REQUIRE(other);
  const auto again = other->publish(0444);
  REQUIRE_FALSE(again);
  CHECK(again.error().kind() == ErrorKind::exists);
  CHECK(again.error().message() == "File already exists: " + path);
  CHECK_FALSE(OutputFile::create(directory.path.string() + "/"));
  CHECK_FALSE(OutputFile::create(directory.path.string() + "/no/file"));
}
