// Does a node fulfil what NVIDIA_REQUIRE_* demands? "cuda>=12.4 brand=tesla,driver>=470,driver<471": clauses between
// blanks of which one must hold, each made of conditions between commas which must all hold.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.hpp"

namespace situla::nvidia {

/// What conditions speak of; an empty one is unknown, and every condition about it holds.
struct Properties {
  std::string cuda;          ///< "12.4"
  std::string driver;        ///< "550.54.15"
  std::string architecture;  ///< "9.0"
  std::string brand;         ///< "Tesla"
};

/// Conditions are read until the outcome is known, as NVIDIA's tool does: nonsense behind a clause that holds harms
/// nobody. `requirement error: ...` (ErrorKind::unsupported: unsatisfied, usage: no such condition).
Result<void> check_requirement(std::string_view expression, const Properties& properties);

}  // namespace situla::nvidia
