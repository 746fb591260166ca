// Do imports of one user wait for each other, and know of each other's bytes?
#include "hooks/turn/limits.hpp"

#include <filesystem>

#include <catch2/catch.hpp>

#include "common/sys/identity.hpp"
#include "hooks/turn/lease.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

TEST_CASE("so many imports of one user at a time, and nothing left of them") {
  const test::TempDir directory;
  const auto silent = [] {};
  const auto at_once = [] { return true; };
  {
    const auto first = ImportSlot::acquire(directory.path(), 1000, "7.0", 2, silent, at_once);
    auto second = ImportSlot::acquire(directory.path(), 1000, "7.0", 2, silent, at_once);
    REQUIRE((first && *first && second && *second));
    const auto third = ImportSlot::acquire(directory.path(), 1000, "7.0", 2, silent, at_once);
    REQUIRE(third);
    CHECK_FALSE(*third);
    const auto other = ImportSlot::acquire(directory.path(), 1001, "8.0", 2, silent, at_once);
    CHECK((other && *other));
    bool told = false;
    const auto later = ImportSlot::acquire(
        directory.path(), 1000, "7.0", 2, [&] { told = true; },
        [&] {
          second->reset();
          return false;
        });
    CHECK((later && *later));
    CHECK(told);
    CHECK(sweep_free_slots(directory.path()));
    CHECK_FALSE(sweep_free_slots(directory.path(), "8.0"));  // whoever has it is still there
    CHECK(sweep_free_slots(directory.path(), "9.0"));
    CHECK_FALSE(std::filesystem::is_empty(directory.path()));
  }
  CHECK(std::filesystem::is_empty(directory.path()));
  // Of imports that were killed; another node's lock may not be seen, so that only time tells.
  const std::string killed = directory.write(host_name() + ".1000.0", "");
  const std::string foreign = directory.write("node.1000.0", "");
  sweep_free_slots(directory.path(), "", std::chrono::seconds(30));
  CHECK(std::filesystem::exists(killed));  // it may just have been taken
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(killed, now - std::chrono::seconds(32));
  sweep_free_slots(directory.path(), "", std::chrono::seconds(30));
  CHECK_FALSE(std::filesystem::exists(killed));
  CHECK(std::filesystem::exists(foreign));
  std::filesystem::last_write_time(foreign, now - std::chrono::hours(25));
  sweep_free_slots(directory.path());
  CHECK(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("what a user's imports write is known to his others, as long as they live") {
  const test::TempDir directory;
  const auto silent = [] {};
  const auto at_once = [] { return true; };
  const auto first = ImportSlot::acquire(directory.path(), 1000, "7.0", 0, silent, at_once);
  auto second = ImportSlot::acquire(directory.path(), 1000, "7.0", 0, silent, at_once);
  const auto other = ImportSlot::acquire(directory.path(), 1001, "8.0", 0, silent, at_once);
  REQUIRE((first && *first && second && *second && other && *other));
  (*second)->report(UINT64_MAX - 1);
  (*second)->report(12);
  CHECK((*first)->others().of_user == 12);
  CHECK((*second)->others().of_user == 0);
  CHECK((*other)->others().of_user == 0);
  CHECK((*other)->others().of_all == 12);
  const std::string foreign = directory.write("other.node.1000.7", "99");
  CHECK((*first)->others().of_user == 111);
  // Of an import that was killed.
  std::filesystem::last_write_time(foreign, std::filesystem::file_time_type::clock::now() - std::chrono::minutes(1));
  CHECK((*first)->others().of_user == 12);
  second->reset();
  CHECK((*first)->others().of_user == 0);
}
