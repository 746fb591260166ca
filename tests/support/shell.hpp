// How is a script run by the functions under test? As a program with its options, which a test may change.
#pragma once

#include <string>

#include "common/sys/process/process.hpp"

namespace situla::test {

inline SpawnOptions shell(const std::string& script) {
  SpawnOptions options;
  options.program = "/bin/sh";
  options.arguments = {"sh", "-c", script};
  options.environment = {"PATH=/usr/bin:/bin"};
  return options;
}

}  // namespace situla::test
