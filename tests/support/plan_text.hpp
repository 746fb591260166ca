// A plan as describe() has it, without who asked for each step: for tests that compare what is done.
#pragma once

#include <string>

namespace situla::test {

inline std::string without_origins(std::string text) {
  for (size_t from = 0; (from = text.find("  (", from)) != std::string::npos;)
    text.erase(from, text.find('\n', from) - from);
  return text;
}

}  // namespace situla::test
