// From variables to a container that uses the driver: a machine that is not there, its plan, and the plan applied.
#include <filesystem>

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "hooks/inject/inventory/gather.hpp"
#include "hooks/inject/nvidia/plan.hpp"
#include "tests/unit/inject/fake_machine.hpp"
#include "tests/userns/inject/apply_support.hpp"

namespace fs = std::filesystem;
using namespace situla;
using namespace situla::nvidia;
using namespace situla::test;

namespace {

constexpr const char* kVersion = "999.88.77";

/// Variables of the job, the plan for the scene's root, and the plan applied.
Result<void> inject(const FakeMachine& machine, ApplyScene& scene, const std::vector<Environment::Entry>& variables) {
  const HostRoots roots = machine.roots();
  Environment host;
  for (const auto& [name, value] : variables) host.set(name, value);
  TRY_ASSIGN(const DriverRequest request, parse_request(host, {}));
  TRY_ASSIGN(const Inventory inventory, gather(roots, {}, scene.log));
  const DeviceSettings settings;
  TRY_ASSIGN(ContainerEdits edits,
             plan(request, inventory, PlanContext{roots, scene.root, host, settings, kernel_access(roots.devices)},
                  scene.log));
  // Users make no nodes; the machine has files for them.
  for (MountStep& step : edits.mounts)
    if (step.kind == StepKind::device) step.source = "/dev/null";
  return scene.apply(edits);
}

Result<std::string> text_of(const ApplyScene& scene, const std::string& path) {
  return scene.root.read_file(path);
}

bool is_there(const ApplyScene& scene, const std::string& path) {
  struct stat status {};
  return lstat(scene.in_root(path).c_str(), &status) == 0;
}

}  // namespace

TEST_CASE("One of two GPUs: its node, its directory in /proc, and the driver") {
  const FakeMachine machine("--gpus 2 --devices files");
  ApplyTest test;
  test.dir.write("root/etc/debian_version", "12.5");
  fs::create_directories(test.dir / "root/proc/driver/nvidia/gpus/0000:ff:00.0");
  test.run([&](ApplyScene& scene) -> Result<void> {
    TRY(inject(machine, scene, {{"NVIDIA_VISIBLE_DEVICES", "1"}, {"NVIDIA_DRIVER_CAPABILITIES", "compute,utility"}}));
    TRY_ASSIGN(const std::string params, text_of(scene, "/proc/driver/nvidia/params"));
    EXPECT(params.find("ModifyDeviceFiles: 0\n") != std::string::npos);
    EXPECT(params.find("ModifyDeviceFiles: 1") == std::string::npos);
    size_t gpus = 0;
    for (const auto& entry : fs::directory_iterator(scene.in_root("/proc/driver/nvidia/gpus"))) {
      ++gpus;
      EXPECT(fs::exists(entry.path() / "information"));
    }
    EXPECT(gpus == 1);
    // The second by PCI address has the first minor.
    EXPECT(is_there(scene, "/dev/nvidia0") && !is_there(scene, "/dev/nvidia1"));
    EXPECT(is_device(scene.in_root("/dev/nvidia0"), 1, 3));
    EXPECT(is_there(scene, "/dev/nvidiactl") && is_there(scene, "/dev/nvidia-uvm"));
    TRY_ASSIGN(const UniqueFd cuda, scene.root.open_at("/usr/lib/" SITULA_TRIPLET "/libcuda.so.1", O_RDONLY));
    struct stat status {};
    EXPECT(fstat(cuda.get(), &status) == 0 && status.st_size > 0);
    EXPECT(!is_there(scene, std::string("/usr/lib/" SITULA_TRIPLET "/libnvidia-encode.so.") + kVersion));
    EXPECT(access(scene.in_root("/usr/bin/nvidia-smi").c_str(), X_OK) == 0);
    TRY_ASSIGN(const std::string cache, text_of(scene, "/etc/ld.so.cache"));
    EXPECT(cache.find("libcuda.so.1") != std::string::npos);
    return {};
  });
}

TEST_CASE("A GPU whose node cannot be opened is not the job's") {
  const FakeMachine machine("--gpus 2 --devices files");
  machine.remove("dev/nvidia0");
  ApplyTest test;  // without /proc
  test.run([&](ApplyScene& scene) -> Result<void> {
    TRY(inject(machine, scene, {{"NVIDIA_VISIBLE_DEVICES", "all"}}));
    EXPECT(is_there(scene, "/dev/nvidia1") && !is_there(scene, "/dev/nvidia0"));
    EXPECT(fails_with(inject(machine, scene, {{"NVIDIA_VISIBLE_DEVICES", "1"}}),
                      {"device error: 1: unknown device", "this job may use 0 = GPU-"}));
    return {};
  });
}

TEST_CASE("A MIG device: its GPU, its two nodes and its two files") {
  const FakeMachine machine("--gpus 2 --mig --devices files");
  ApplyTest test;
  fs::create_directories(test.dir / "root/proc/driver/nvidia");
  test.run([&](ApplyScene& scene) -> Result<void> {
    TRY(inject(machine, scene, {{"NVIDIA_VISIBLE_DEVICES", "0:1"}}));
    size_t nodes = 0, files = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(scene.in_root("/dev/nvidia-caps"))) ++nodes;
    for (const auto& entry : fs::recursive_directory_iterator(scene.in_root("/proc/driver/nvidia/capabilities")))
      if (entry.path().filename() == "access") ++files;
    EXPECT(nodes == 2);
    EXPECT(files == 2);
    EXPECT(is_there(scene, "/dev/nvidia1") && !is_there(scene, "/dev/nvidia0"));
    return {};
  });
}
