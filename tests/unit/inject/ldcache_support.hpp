// glibc's own ldconfig as the judge.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "tests/support/elf_library.hpp"

namespace situla::test {

inline std::string output_of(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "re");
  REQUIRE(pipe != nullptr);
  std::string text(1 << 20, '\0');
  text.resize(fread(text.data(), 1, text.size(), pipe));
  INFO(command + "\n" + text);
  REQUIRE(pclose(pipe) == 0);
  return text;
}

/// "SONAME PATH" of each line of `ldconfig -p`.
inline std::vector<std::string> ldconfig_prints(const std::string& cache) {
  std::vector<std::string> entries;
  const std::string text = output_of("PATH=$PATH:/sbin ldconfig -p -C " + shell_quote(cache));
  for (const std::string_view line : split(text, '\n')) {
    const size_t arrow = line.find(" => ");
    if (!line.starts_with('\t') || arrow == std::string_view::npos) continue;
    entries.push_back(std::string(split_words(line)[0]) + " " + std::string(line.substr(arrow + 4)));
  }
  return entries;
}

/// As root, if only of a namespace: whom chroot(2) is denied, ldconfig reads no configuration with relative names for.
inline void run_ldconfig(const std::string& root) {
  output_of("mkdir -p " + shell_quote(root) + "/etc && PATH=$PATH:/sbin " +
            (geteuid() == 0 ? "" : "unshare --user --map-root-user ") + "ldconfig -r " + shell_quote(root));
}

}  // namespace situla::test
