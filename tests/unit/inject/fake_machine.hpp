// A machine with NVIDIA GPUs for a test: what tests/gpu/make-driver-root writes, in a directory that goes away with it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "../../support/temp_dir.hpp"

#include "hooks/inject/edits/host_roots.hpp"

namespace situla::test {

class FakeMachine {
 public:
  /// Options as make-driver-root takes them.
  explicit FakeMachine(const std::string& options) {
    // The management library is asked by somebody else, where the test is root.
    std::filesystem::permissions(directory_.path(), std::filesystem::perms(0755));
    const std::string command = SITULA_SOURCE_DIR "/tests/gpu/make-driver-root " + options + " '" + path() + "'";
    REQUIRE(std::system(command.c_str()) == 0);
  }

  [[nodiscard]] std::string path() const { return directory_ / "machine"; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path() + "/" + name; }
  [[nodiscard]] HostRoots roots() const {
    auto driver = RootDir::open(path()), devices = RootDir::open(path());
    REQUIRE(driver);
    REQUIRE(devices);
    return {path(), path(), std::move(*driver), std::move(*devices)};
  }
  void write(const std::string& name, const std::string& text) const {
    const std::string file = *this / name;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    std::filesystem::remove(file);
    std::ofstream(file) << text;
  }
  void append(const std::string& name, const std::string& text) const {
    std::ofstream(*this / name, std::ios::app) << text;
  }
  void remove(const std::string& name) const { std::filesystem::remove_all(*this / name); }

 private:
  TempDir directory_;
};

}  // namespace situla::test
