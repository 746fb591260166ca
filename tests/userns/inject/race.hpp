// Does the applier stay in the root while somebody else renames in it as fast as a process can?
#pragma once

#include <chrono>

#include "tests/userns/inject/apply_support.hpp"

namespace situla::test {

struct RaceReport {
  unsigned rounds = 0;   ///< applications, each in a mount namespace of its own
  unsigned applied = 0;  ///< that succeeded
  unsigned noticed = 0;  ///< that found the target moved after mounting
  unsigned refused = 0;  ///< that failed otherwise
};

/// Another process exchanges /usr/race, a directory of the root, with links to the host's canary, and moves directories
/// in and out of the root. An error as soon as anything of the host was changed, read or mounted on.
Result<RaceReport> race(const ApplyScene& scene, std::chrono::milliseconds time);

/// SITULA_RACE_SECONDS, 5 without.
std::chrono::seconds race_time();

}  // namespace situla::test
