// Do imports of one user wait for each other, and does the disk keep its reserve?
#include "hooks/store/limits.hpp"

#include <filesystem>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.hpp"

using namespace situla;

TEST_CASE("so many imports of one user at a time, and nothing left of them") {
  const test::TempDir directory;
  const auto silent = [] {};
  const auto at_once = [] { return true; };
  {
    const auto first = ImportSlot::acquire(directory.path(), 1000, 2, silent, at_once);
    auto second = ImportSlot::acquire(directory.path(), 1000, 2, silent, at_once);
    REQUIRE((first && *first && second && *second));
    const auto third = ImportSlot::acquire(directory.path(), 1000, 2, silent, at_once);
    REQUIRE(third);
    CHECK_FALSE(*third);
    const auto other = ImportSlot::acquire(directory.path(), 1001, 2, silent, at_once);
    CHECK((other && *other));
    bool told = false;
    const auto later = ImportSlot::acquire(
        directory.path(), 1000, 2, [&] { told = true; },
        [&] {
          second->reset();
          return false;
        });
    CHECK((later && *later));
    CHECK(told);
    sweep_free_slots(directory.path());
    CHECK_FALSE(std::filesystem::is_empty(directory.path()));
  }
  CHECK(std::filesystem::is_empty(directory.path()));
  (void)directory.write("node.1000.0", "");  // of an import that was killed
  sweep_free_slots(directory.path());
  CHECK(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("the error of a full disk has both numbers") {
  CHECK(StoreReserve{0}.check("/tmp"));
  const auto full = StoreReserve{UINT64_MAX / 2}.check("/tmp");
  REQUIRE_FALSE(full);
  CHECK(full.error().kind() == ErrorKind::no_space);
  CHECK_THAT(full.error().message(), Catch::Matches("the image store /tmp has .*iB free, and .*iB have to stay so"));
}
