// SITULA_RACE_SECONDS=60 for a long one; in each of the two modes half of the time.
#include "tests/userns/inject/race.hpp"

#include <catch2/catch.hpp>

using namespace situla;
using namespace situla::test;

TEST_CASE("Whoever renames in the root while edits are applied gains nothing of the host") {
  ApplyTest().run([](ApplyScene& scene) -> Result<void> {
    TRY_ASSIGN(const RaceReport report, race(scene, std::chrono::milliseconds(race_time()) / 2));
    std::cout << report.rounds << " rounds: " << report.applied << " applied, " << report.noticed << " noticed, "
              << report.refused << " refused" << std::endl;
    // A race in which nothing collides, or nothing works, shows nothing.
    EXPECT(report.noticed + report.refused > 0);
    EXPECT(report.rounds > 10);
    return {};
  });
}
