// Trees and their judges are other programs' here: command lines, which must succeed.
#pragma once

#include <cstdlib>
#include <string>

#include <catch2/catch.hpp>

namespace situla::test {

inline void shell(const std::string& command) {
  INFO(command);
  REQUIRE(std::system(command.c_str()) == 0);
}

}  // namespace situla::test
