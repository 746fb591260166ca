// Is a file shared or copied whole, whatever its size, and is what cannot be synced an error?
#include "common/sys/sync.hpp"

#include <array>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

TEST_CASE("a file is copied whole, in several pieces and in less than one") {
  const test::TempDir directory;
  for (const size_t size : {size_t{0}, size_t{5}, (size_t{32} << 20U) + 12345}) {
    CAPTURE(size);
    const std::string from = directory.write("from", std::string(size, 'x') + "end");
    const UniqueFd source = open_file(from, O_RDONLY).value();
    const UniqueFd copy = open_file(directory / "to", O_WRONLY | O_CREAT | O_TRUNC, 0600).value();
    REQUIRE(share_or_copy(source.get(), copy.get(), size + 3));
    CHECK(sync_file(copy.get(), "the copy"));
    CHECK(test::slurp(directory / "to") == test::slurp(from));
  }
}

TEST_CASE("a source that is shorter than it was is an error") {
  const test::TempDir directory;
  const UniqueFd source = open_file(directory.write("from", "abc"), O_RDONLY).value();
  // In memory: shared with nothing.
  const UniqueFd copy(memfd_create("copy", MFD_CLOEXEC));
  const auto copied = share_or_copy(source.get(), copy.get(), 4);
  REQUIRE_FALSE(copied);
  CHECK(copied.error().kind() == ErrorKind::corrupt);
}

TEST_CASE("what cannot be synced is named") {
  std::array<int, 2> ends{};
  REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
  const UniqueFd reader(ends[0]), writer(ends[1]);
  const auto synced = sync_file(writer.get(), "a pipe");
  REQUIRE_FALSE(synced);
  CHECK(synced.error().message() == "sync a pipe: Invalid argument");
  sync_directory("/no/such/directory");
}
