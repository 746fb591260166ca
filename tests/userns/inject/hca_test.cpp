// Does a container see the chosen network adapters, whole, and no other? The plan of hooks/inject/hca, applied.
#include "hooks/inject/hca/hca.hpp"

#include <cstdlib>
#include <filesystem>

#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "tests/userns/inject/apply_support.hpp"

using namespace situla;
namespace fs = std::filesystem;

namespace {

/// Binds source on target, which exists.
Result<void> bind(const std::string& source, const std::string& target, const MountFlags& flags) {
  TRY_ASSIGN(const UniqueFd from, open_file(source, O_PATH));
  TRY_ASSIGN(const UniqueFd point, open_file(target, O_PATH));
  return bind_at(point.get(), from.get(), false, flags, target);
}

/// Character devices where no user can make any.
Result<void> make_hca_devices(const std::string& directory) {
  for (const fs::directory_entry& entry : fs::directory_iterator(directory))
    if (!entry.is_character_file()) TRY(bind("/dev/null", entry.path().string(), {}));
  return {};
}

std::vector<std::string> file_names(const std::string& directory) {
  std::vector<std::string> all;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) all.push_back(entry.path().filename());
  std::sort(all.begin(), all.end());
  return all;
}

bool is_device(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISCHR(status.st_mode);
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("one adapter of two: its class entries lead to /sys/devices, the other has none") {
  const test::ApplyTest test;
  const std::string machine = test.dir / "host/machine";
  const std::string command = SITULA_SOURCE_DIR "/tests/gpu/make-hca-root " + shell_quote(machine) +
                              " mlx5_0,mlx5_core,0000:3b:00.0 mlx5_1,mlx5_core,0000:86:00.0";
  REQUIRE(std::system(command.c_str()) == 0);
  test.run([&](test::ApplyScene& scene) -> Result<void> {
    TRY(make_hca_devices(machine + "/dev/infiniband"));
    fs::create_directories(scene.in_root("/sys"));
    TRY(bind(machine + "/sys", scene.in_root("/sys"), {.read_only = true}));
    TRY_ASSIGN(const HostRoots roots, HostRoots::open("/", machine));
    Environment host;
    host.set("MELLANOX_VISIBLE_DEVICES", "1");
    TRY_ASSIGN(const ContainerEdits edits, hca::edits_by_variable({roots, host, {}, false, scene.log}));
    TRY(scene.apply(edits));

    const std::string classes = scene.in_root("/sys/class/");
    EXPECT((file_names(classes + "infiniband") == Names{"mlx5_1"}));
    EXPECT((file_names(classes + "infiniband_verbs") == Names{"abi_version", "uverbs1"}));
    EXPECT((file_names(classes + "infiniband_mad") == Names{"abi_version"}));
    EXPECT(*read_file(classes + "infiniband_verbs/abi_version") == "6\n");
    EXPECT(*read_file(classes + "infiniband/mlx5_1/ports/1/link_layer") == "InfiniBand\n");
    EXPECT(*read_file(classes + "infiniband_verbs/uverbs1/ibdev") == "mlx5_1\n");
    // By these links programs find the function, and so the topology.
    EXPECT(fs::canonical(classes + "infiniband/mlx5_1/device").filename() == "0000:86:00.0");
    EXPECT(fs::exists(scene.in_root("/sys/bus/pci/devices/0000:3b:00.0/infiniband/mlx5_0")));
    EXPECT(is_device(scene.in_root("/dev/infiniband/uverbs1")));
    EXPECT(is_device(scene.in_root("/dev/infiniband/rdma_cm")));
    EXPECT(!fs::exists(scene.in_root("/dev/infiniband/uverbs0")));
    return {};
  });
}

TEST_CASE("by name: nodes only, sysfs as it is") {
  const test::ApplyTest test;
  const std::string machine = test.dir / "host/machine";
  const std::string command = SITULA_SOURCE_DIR "/tests/gpu/make-hca-root " + shell_quote(machine) +
                              " rdmap0s6,efa,0000:00:06.0,eth bnxt_re0,bnxt_en,0000:01:00.0,eth";
  REQUIRE(std::system(command.c_str()) == 0);
  test.run([&](test::ApplyScene& scene) -> Result<void> {
    TRY(make_hca_devices(machine + "/dev/infiniband"));
    TRY_ASSIGN(const HostRoots roots, HostRoots::open("/", machine));
    TRY_ASSIGN(const ContainerEdits edits, hca::edits_by_name({"situla.dev/hca=rdmap0s6"}, roots, scene.log));
    TRY(scene.apply(edits));
    EXPECT((file_names(scene.in_root("/dev/infiniband")) == Names{"rdma_cm", "uverbs0"}));
    EXPECT(is_device(scene.in_root("/dev/infiniband/uverbs0")));
    EXPECT(!fs::exists(scene.in_root("/sys/class")));
    return {};
  });
}
