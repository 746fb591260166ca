// Does a plan for a whole machine hold together? Nothing is mounted that is not there, nothing twice, and every library
// that the linker is told of is one of those that are mounted.
#include <filesystem>
#include <map>
#include <set>

#include "fake_machine.hpp"
#include <catch2/catch.hpp>

#include "hooks/inject/inventory/gather.hpp"
#include "hooks/inject/nvidia/plan.hpp"
#include "tests/support/temp_dir.hpp"

namespace fs = std::filesystem;
using namespace situla;
using namespace situla::nvidia;
using situla::test::FakeMachine;
using situla::test::TempDir;

namespace {

constexpr const char* kVersion = "999.88.77";

ContainerEdits plan_for(const FakeMachine& machine, const TempDir& image, const std::string& capabilities) {
  const HostRoots roots = machine.roots();
  const auto root = RootDir::open(image.path());
  REQUIRE(root);
  NullLog log;
  const auto inventory = gather(roots, {}, log);
  REQUIRE(inventory);
  CHECK(inventory->gpus.size() == 2);
  Environment host;
  host.set("NVIDIA_VISIBLE_DEVICES", "all");
  host.set("NVIDIA_DRIVER_CAPABILITIES", capabilities);
  const auto request = parse_request(host, {});
  REQUIRE(request);
  const DeviceSettings settings;
  const DeviceAccess all = [](const Node&, NodeUse) { return true; };
  auto edits = plan(*request, *inventory, PlanContext{roots, *root, host, settings, all}, log);
  if (!edits) FAIL(edits.error().text());
  return *edits;
}

/// Place -> where it leads: links to their targets, mounted files nowhere.
std::map<std::string, std::string> places(const ContainerEdits& edits) {
  std::map<std::string, std::string> all;
  const auto add = [&](const std::string& place, const std::string& target) {
    INFO(place);
    CHECK(all.emplace(place, target).second);
  };
  for (const MountStep& step : edits.mounts)
    if (step.kind != StepKind::cover) add(step.target, "");
  for (const FileChange& file : edits.files)
    add(file.path, file.kind != FileChange::Kind::link
                       ? ""
                       : (fs::path(file.path).parent_path() / file.content).lexically_normal().string());
  return all;
}

bool leads_to_a_file(const std::map<std::string, std::string>& places, std::string path) {
  for (size_t links = 0; links < 8; ++links) {
    const auto found = places.find(path);
    if (found == places.end()) return false;
    if (found->second.empty()) return true;
    path = found->second;
  }
  return false;
}

void check_plan(const ContainerEdits& edits, const std::string& libraries) {
  for (const MountStep& step : edits.mounts) {
    INFO(step.source);
    CHECK((step.kind == StepKind::cover || fs::exists(step.source)));
  }
  const auto all = places(edits);
  for (const auto& [place, target] : all) {
    INFO(place + " -> " + target);
    CHECK(leads_to_a_file(all, place));
  }
  for (const CachedLibrary& library : edits.libraries.libraries) {
    INFO(library.soname + " " + library.path);
    CHECK(leads_to_a_file(all, library.path));
    if (!library.is_32bit) CHECK_THAT(library.path, Catch::StartsWith(libraries + "/"));
  }
  CHECK(leads_to_a_file(all, libraries + "/libcuda.so"));
  CHECK(leads_to_a_file(all, libraries + "/libcuda.so.1"));
  CHECK(all.contains(libraries + "/libcuda.so." + kVersion));
  CHECK(all.contains("/usr/bin/nvidia-smi"));
}

}  // namespace

TEST_CASE("a plan for a whole machine holds together, whoever packaged the driver and the image") {
  const std::string options = GENERATE("--gpus 2", "--gpus 2 --layout lib64 --mps", "--gpus 2 --mig=0,1 --no-32bit");
  const std::string capabilities = GENERATE("compute,utility", "all");
  const FakeMachine machine("--devices files " + options);
  TempDir rocky, alpine;
  fs::create_directories(rocky / "usr/lib64");
  fs::create_directories(rocky / "proc/driver/nvidia");
  alpine.write("etc/alpine-release", "3.20");
  INFO(options + " " + capabilities);
  check_plan(plan_for(machine, rocky, capabilities), "/usr/lib64");
  check_plan(plan_for(machine, alpine, capabilities), "/usr/lib");
}
