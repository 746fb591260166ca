// Variables of a job or image, written where a test needs them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/base/text.hpp"

namespace situla::test {

using Variables = std::vector<std::pair<std::string, std::string>>;

inline Environment environment(const Variables& variables) {
  Environment all;
  for (const auto& [name, value] : variables) all.set(name, value);
  return all;
}

}  // namespace situla::test
