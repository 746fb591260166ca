// Does a container see the nodes of its own GPUs of AMD and Intel, and not those of others? The plan of
// hooks/inject/drm, applied.
#include "hooks/inject/drm/drm.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "tests/userns/inject/apply_support.hpp"

using namespace situla;
namespace fs = std::filesystem;

namespace {

using Names = std::vector<std::string>;

Result<void> bind_tree(const std::string& source, const std::string& target) {
  TRY_ASSIGN(const UniqueFd from, open_file(source, O_PATH));
  TRY_ASSIGN(const UniqueFd point, open_file(target, O_PATH));
  return bind_at(point.get(), from.get(), true, {}, target);
}

/// Character devices where no user can make any.
Result<void> make_devices(const std::string& machine) {
  std::vector<std::string> nodes = {machine + "/dev/kfd"};
  for (const fs::directory_entry& entry : fs::directory_iterator(machine + "/dev/dri"))
    if (!entry.is_directory()) nodes.push_back(entry.path().string());
  for (const std::string& node : nodes)
    if (fs::exists(node) && !fs::is_character_file(node)) TRY(bind_tree("/dev/null", node));
  return {};
}

/// In a directory, without by-path.
Names names(const std::string& directory) {
  Names all;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory))
    if (entry.path().filename() != "by-path") all.push_back(entry.path().filename().string());
  std::sort(all.begin(), all.end());
  return all;
}

bool can_be_opened(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status {};
  return fd && fstat(fd.get(), &status) == 0 && S_ISCHR(status.st_mode);
}

void make_machine(const std::string& machine, const std::string& gpus) {
  const std::string command = SITULA_SOURCE_DIR "/tests/gpu/make-drm-root " + shell_quote(machine) + " " + gpus;
  REQUIRE(std::system(command.c_str()) == 0);
}

Result<void> apply_plan(test::ApplyScene& scene, const std::string& machine, const gpu::Vendor& vendor,
                        const std::string& name) {
  TRY_ASSIGN(const HostRoots roots, HostRoots::open("/", machine));
  const drm::Wanted wanted{&vendor, {gpu::Asker::job, {name}, {}}, "test"};
  TRY_ASSIGN(const ContainerEdits edits,
             drm::edits({wanted}, {roots, scene.root, true, drm::kernel_access(roots.devices), scene.log}));
  return scene.apply(edits);
}

}  // namespace

TEST_CASE("a /dev of the container's own gets the nodes of one GPU of two") {
  const test::ApplyTest test;
  const std::string machine = test.dir / "host/machine";
  make_machine(machine, "amd,0000:05:00.0 amd,0000:26:00.0");
  test.run([&](test::ApplyScene& scene) -> Result<void> {
    TRY(make_devices(machine));
    fs::create_directories(scene.in_root("/dev"));
    TRY(apply_plan(scene, machine, gpu::kAmd, "1"));
    EXPECT((names(scene.in_root("/dev/dri")) == Names{"card1", "renderD129"}));
    EXPECT((names(scene.in_root("/dev/dri/by-path")) == Names{"pci-0000:26:00.0-card", "pci-0000:26:00.0-render"}));
    EXPECT(can_be_opened(scene.in_root("/dev/dri/by-path/pci-0000:26:00.0-render")));
    EXPECT(can_be_opened(scene.in_root("/dev/kfd")));
    return {};
  });
}

TEST_CASE("in the node's /dev the nodes of the other GPU are gone, a screen's stays") {
  const test::ApplyTest test;
  const std::string machine = test.dir / "host/machine";
  make_machine(machine, "intel,0000:18:00.0 intel,0000:2a:00.0 aspeed,0000:02:00.0");
  test.run([&](test::ApplyScene& scene) -> Result<void> {
    TRY(make_devices(machine));
    fs::create_directories(scene.in_root("/dev"));
    TRY(bind_tree(machine + "/dev", scene.in_root("/dev")));
    TRY(apply_plan(scene, machine, gpu::kIntel, "1"));
    EXPECT((names(scene.in_root("/dev/dri")) == Names{"card1", "card2", "renderD129"}));
    EXPECT((names(scene.in_root("/dev/dri/by-path")) ==
            Names{"pci-0000:02:00.0-card", "pci-0000:2a:00.0-card", "pci-0000:2a:00.0-render"}));
    for (const char* node : {"card1", "card2", "renderD129", "by-path/pci-0000:2a:00.0-render"})
      EXPECT(can_be_opened(scene.in_root("/dev/dri/") + node));
    EXPECT((names(machine + "/dev/dri") == Names{"card0", "card1", "card2", "renderD128", "renderD129"}));
    return {};
  });
}

TEST_CASE("GPUs that the job refuses are hidden in the node's /dev, and the screen's node stays") {
  const test::ApplyTest test;
  const std::string machine = test.dir / "host/machine";
  make_machine(machine, "amd,0000:05:00.0 amd,0000:26:00.0 aspeed,0000:02:00.0");
  test.run([&](test::ApplyScene& scene) -> Result<void> {
    TRY(make_devices(machine));
    fs::create_directories(scene.in_root("/dev"));
    TRY(bind_tree(machine + "/dev", scene.in_root("/dev")));
    gpu::Request request;
    request.refused = true;
    TRY_ASSIGN(const HostRoots roots, HostRoots::open("/", machine));
    TRY_ASSIGN(const ContainerEdits edits,
               drm::edits({{&gpu::kAmd, request, "test"}},
                          {roots, scene.root, true, drm::kernel_access(roots.devices), scene.log}));
    TRY(scene.apply(edits));
    EXPECT((names(scene.in_root("/dev/dri")) == Names{"card2"}));
    EXPECT(can_be_opened(scene.in_root("/dev/dri/card2")));
    EXPECT((names(scene.in_root("/dev/dri/by-path")) == Names{"pci-0000:02:00.0-card"}));
    return {};
  });
}

TEST_CASE("all GPUs in the node's /dev: nothing is mounted") {
  const test::ApplyTest test;
  const std::string machine = test.dir / "host/machine";
  make_machine(machine, "intel,0000:18:00.0 intel,0000:2a:00.0");
  test.run([&](test::ApplyScene& scene) -> Result<void> {
    TRY(make_devices(machine));
    fs::create_directories(scene.in_root("/dev"));
    TRY(bind_tree(machine + "/dev", scene.in_root("/dev")));
    TRY_ASSIGN(const size_t before, test::mount_count());
    TRY(apply_plan(scene, machine, gpu::kIntel, "all"));
    TRY_ASSIGN(const size_t after, test::mount_count());
    EXPECT(before == after);
    return {};
  });
}
