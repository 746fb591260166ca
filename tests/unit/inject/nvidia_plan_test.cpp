// Which edits follow from variables, machine and image? Each file of plans/ is one case: lines that describe it, "---",
// and what comes out. SITULA_UPDATE_PLANS=1 writes what comes out into the files, and fails where that changed them;
// review with git diff.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "nvidia_machines.hpp"
#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "hooks/inject/ldcache/forward_compat.hpp"
#include "hooks/inject/nvidia/plan.hpp"
#include "tests/support/elf_library.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/plan_text.hpp"
#include "tests/support/temp_dir.hpp"

namespace fs = std::filesystem;
using namespace situla;
using namespace situla::nvidia;

namespace {

constexpr const char* kSeparator = "---\n";

std::string told(const test::MemoryLog& log) {
  std::string text;
  for (const auto& [level, message] : log.messages)
    text += (level == LogLevel::warning ? "warning: " : "info: ") + message + "\n";
  return text;
}

/// A directory with the files that a case speaks of: beneath it the host's root and the image's.
class Files {
 public:
  Files() {
    fs::create_directories(base_ / "image/etc");
    fs::create_directories(base_ / "host/etc");
  }

  /// "/tmp/nvidia-mps/" is a directory, "/proc/modules nvidia_uvm 1 2" a file with a line.
  void add(const std::string& where, const std::string& words) const {
    const auto pieces = cut(words, ' ');
    const std::string path = base_.path() + where + std::string(pieces ? pieces->first : words);
    if (path.ends_with('/')) {
      fs::create_directories(path);
      return;
    }
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path, std::ios::app) << (pieces ? pieces->second : "") << "\n";
  }
  [[nodiscard]] RootDir open(const std::string& where) const { return std::move(*RootDir::open(base_.path() + where)); }

 private:
  test::TempDir base_;
};

/// What the lines of a case say.
class Case {
 public:
  explicit Case(const std::string& text) {
    for (const std::string_view line : split_nonempty(text, '\n'))
      if (!line.starts_with('#')) read(std::string(line));
    if (machine_ == "none") return;
    files_.add("/host", "/proc/driver/nvidia/version NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15");
    files_.add("/host", "/proc/driver/nvidia/params ModifyDeviceFiles: 1");
    files_.add("/host", "/proc/driver/nvidia/params EnableMSI: 1");
    files_.add("/image", image_proc_ ? "/proc/driver/nvidia/" : "/proc/driver/");
  }

  [[nodiscard]] std::string run() {
    HostRoots roots{driver_root_, device_root_, files_.open("/host"), files_.open("/host")};
    const RootDir root = files_.open("/image");
    DeviceAccess access = [this](const Node& node, NodeUse) {
      return std::find(denied_.begin(), denied_.end(), node.path) == denied_.end();
    };
    test::MemoryLog log;
    auto edits = parse_request(host_, container_).and_then([&](const DriverRequest& request) {
      return plan(request, machine(machine_), PlanContext{roots, root, host_, settings_, access}, log);
    });
    if (!edits) return told(log) + "error: " + edits.error().text() + "\n";
    return told(log) + outcome(*edits, library_places(root).directory);
  }

 private:
  void read(const std::string& line) {
    const auto pieces = cut(line, ' ');
    REQUIRE(pieces);
    const std::string word(pieces->first), rest(pieces->second);
    const auto variable = cut(rest, '=');
    INFO(line);
    if (word == "machine")
      machine_ = rest;
    else if (word == "job" && variable)
      host_.set(variable->first, variable->second);
    else if (word == "image" && variable)
      container_.set(variable->first, variable->second);
    else if (word == "host-has")
      files_.add("/host", rest);
    else if (line == "image-has no-proc")
      image_proc_ = false;
    else if (word == "image-has")
      files_.add("/image", rest);
    else if (word == "image-cuda")
      files_.add("/image", std::string(kCudaCompatDirectory) + "/libcuda.so." + rest + " " +
                               test::elf_library(test::ElfLibrary{.soname = "libcuda.so.1"}));
    else if (word == "deny")
      denied_.push_back(rest);
    else if (word == "driver_root")
      driver_root_ = rest;
    else if (word == "device_root")
      device_root_ = rest;
    else if (line == "hide_gpus false")
      settings_.hide_gpus = false;
    else if (line == "cuda_compat false")
      settings_.cuda_compat = false;
    else
      FAIL("not understood");
  }

  /// The edits, and what is in the files; the directory of Debian's libraries goes by the name of its architecture.
  static std::string outcome(const ContainerEdits& edits, const std::string& directory) {
    std::string text = test::without_origins(describe(edits));
    for (const FileChange& file : edits.files) {
      if (file.kind != FileChange::Kind::write) continue;
      text += "in " + file.path + ":\n";
      for (const std::string_view line : split_nonempty(file.content, '\n')) text += "  " + std::string(line) + "\n";
    }
    const std::string ours = "/usr/lib/ARCHITECTURE";
    if (directory.find("-linux-gnu") == std::string::npos) return text;
    for (size_t at = text.find(directory); at != std::string::npos; at = text.find(directory, at))
      text.replace(at, directory.size(), ours);
    return text;
  }

  Files files_;
  Environment host_, container_;
  DeviceSettings settings_;
  bool image_proc_ = true;
  std::vector<std::string> denied_;
  std::string machine_, driver_root_ = "/", device_root_ = "/";
};

std::string read_text(const fs::path& path) {
  std::ifstream stream(path);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("plans are as the files of plans/ say") {
  const fs::path directory = fs::path(SITULA_SOURCE_DIR) / "tests/unit/inject/plans";
  const bool update = std::getenv("SITULA_UPDATE_PLANS") != nullptr;
  size_t cases = 0;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() != ".plan") continue;
    ++cases;
    const std::string text = read_text(entry.path());
    const size_t separator = text.find(kSeparator);
    INFO(entry.path().filename().string());
    REQUIRE((separator != std::string::npos || update));
    const std::string input = text.substr(0, separator);
    const std::string expected = separator == std::string::npos ? "" : text.substr(separator + 4);
    const std::string actual = Case(input).run();
    if (update && actual != expected) std::ofstream(entry.path()) << input << kSeparator << actual;
    CHECK(actual == expected);
  }
  CHECK(cases >= 40);
}
