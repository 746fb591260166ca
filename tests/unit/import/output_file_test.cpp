// Does a file appear whole or not at all, and does what a killed writer left go with the next one?
#include "hooks/squashfs/output_file.hpp"

#include <algorithm>
#include <filesystem>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
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

}  // namespace

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
