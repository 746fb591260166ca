// Do CDI devices work in a container's root? Specifications in the form of AMD's, Intel's and NVIDIA's generators,
// with devices that every machine has in place of GPUs.
#include <filesystem>

#include <fcntl.h>
#include <unistd.h>

#include "common/sys/file.hpp"
#include "hooks/inject/cdi/resolve.hpp"
#include "tests/userns/inject/apply_support.hpp"

using namespace situla;
using namespace situla::test;

namespace {

/// A directory of specifications, which others cannot write to.
struct Specified {
  TempDir dir;

  Specified(const std::string& name, const std::string& text) {
    dir.write("cdi/" + name, text);
    REQUIRE(std::system(("chmod -R a+rX,go-w " + dir.path()).c_str()) == 0);
  }
  /// Resolves and applies in the scene.
  Result<void> inject(ApplyScene& scene, const std::vector<std::string>& names) const {
    TRY_ASSIGN(const HostRoots host, HostRoots::open("/", "/"));
    const DeviceSettings settings;
    const auto registry = CdiRegistry::load({dir / "cdi"});
    TRY_ASSIGN(const ContainerEdits edits, cdi_edits(names, registry, {scene.root, host, settings, {}}, scene.log));
    return scene.apply(edits);
  }
};

bool can_be_read(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char byte = 1;
  return fd && read(fd.get(), &byte, 1) == 1;
}

}  // namespace

TEST_CASE("AMD: the nodes of a GPU can be opened, and no others are there") {
  const ApplyTest test;
  const Specified specified("amd.json", R"({"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "devices": [
    {"name": "0", "containerEdits": {"deviceNodes": [
      {"path": "/dev/kfd", "hostPath": "/dev/zero", "type": "c", "major": 1, "minor": 5, "fileMode": 432, "permissions": "rwm", "uid": 0, "gid": 0},
      {"path": "/dev/dri/card1", "hostPath": "/dev/null", "type": "c", "major": 1, "minor": 3, "fileMode": 432, "permissions": "rwm", "uid": 0, "gid": 0},
      {"path": "/dev/dri/renderD128", "hostPath": "/dev/urandom", "type": "c", "major": 1, "minor": 9, "fileMode": 432, "permissions": "rwm", "uid": 0, "gid": 0}]}},
    {"name": "1", "containerEdits": {"deviceNodes": [{"path": "/dev/dri/card2", "hostPath": "/dev/null", "type": "c", "major": 1, "minor": 3}]}}]})");
  test.run([&](ApplyScene& scene) -> Result<void> {
    TRY(specified.inject(scene, {"amd.com/gpu=0"}));
    EXPECT(is_device(scene.in_root("/dev/kfd"), 1, 5));
    EXPECT(can_be_read(scene.in_root("/dev/kfd")));
    EXPECT(is_device(scene.in_root("/dev/dri/card1"), 1, 3));
    EXPECT(can_be_read(scene.in_root("/dev/dri/renderD128")));
    EXPECT(!std::filesystem::exists(scene.in_root("/dev/dri/card2")));
    return {};
  });
}

TEST_CASE("Intel: links to devices become devices that can be opened, whatever the options say") {
  const ApplyTest test;
  std::filesystem::create_directories(test.dir / "host/by-path");
  std::filesystem::create_symlink("/dev/zero", test.dir / "host/by-path/card");
  const Specified specified(
      "intel.yaml",
      "cdiVersion: 0.5.0\nkind: intel.com/gpu\ndevices:\n- name: card0\n  containerEdits:\n"
      "    deviceNodes:\n    - {path: /dev/dri/card0, hostPath: /dev/zero, type: c}\n"
      "    mounts:\n    - {hostPath: " +
          test.dir / "host/by-path/card" +
          ", containerPath: '/dev/dri/by-path/pci-0000:03:00.0-card', options: [bind, rw, nodev]}\n");
  test.run([&](ApplyScene& scene) -> Result<void> {
    TRY(specified.inject(scene, {"intel.com/gpu=card0"}));
    EXPECT(is_device(scene.in_root("/dev/dri/card0"), 1, 5));
    EXPECT(is_device(scene.in_root("/dev/dri/by-path/pci-0000:03:00.0-card"), 1, 5));
    EXPECT(can_be_read(scene.in_root("/dev/dri/by-path/pci-0000:03:00.0-card")));
    return {};
  });
}

TEST_CASE("NVIDIA: libraries, links and nodes; a link that the host's /dev has already stays") {
  const ApplyTest test;
  std::filesystem::create_directories(test.dir / "host/dev/dri/by-path");
  std::filesystem::create_symlink("../card1", test.dir / "host/dev/dri/by-path/card");
  test.dir.write("host/dev/null", "");  // a place for the device: nothing is made among the host's files
  const Specified specified(
      "nvidia.yaml",
      "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ncontainerEdits:\n  mounts:\n  - containerPath: "
      "/usr/lib/libcuda.so.560.35.03\n    hostPath: " +
          test.dir / "host/libcuda.so.560.35.03" +
          "\n    options: [ro, nosuid, nodev, rbind, rprivate]\n  hooks:\n"
          "  - {hookName: createContainer, path: /usr/bin/nvidia-cdi-hook, args: [x, create-symlinks, "
          "--link, 'libcuda.so.1::/usr/lib/libcuda.so', --link, '../card1::/dev/dri/by-path/card']}\n"
          "devices:\n- {name: all, containerEdits: {deviceNodes: [{path: /dev/null}]}}\n");
  test.run([&](ApplyScene& scene) -> Result<void> {
    // As a container without a /dev of its own has it.
    const UniqueFd dev(open(scene.in_root("/dev").c_str(), O_PATH | O_CLOEXEC));
    const UniqueFd host_dev(open((scene.host + "/dev").c_str(), O_PATH | O_CLOEXEC));
    TRY(bind_at(dev.get(), host_dev.get(), true, {}, "/dev"));
    TRY(specified.inject(scene, {"nvidia.com/gpu=all"}));
    EXPECT(read_file(scene.in_root("/usr/lib/libcuda.so.560.35.03")).value_or("") == "the driver");
    EXPECT(std::filesystem::read_symlink(scene.in_root("/usr/lib/libcuda.so")) == "libcuda.so.1");
    EXPECT(is_device(scene.in_root("/dev/null"), 1, 3));
    return {};
  });
}

TEST_CASE("a node that is another one than the specification says is not put in") {
  const ApplyTest test;
  const Specified specified(
      "a.yaml",
      "cdiVersion: 0.5.0\nkind: a.com/b\ndevices:\n- name: one\n  containerEdits:\n    deviceNodes:\n"
      "    - {path: /dev/one, hostPath: /dev/zero, type: c, major: 1, minor: 3}\n");
  CHECK(test.run_once([&](ApplyScene& scene) -> Result<void> {
    EXPECT(fails_with(specified.inject(scene, {"a.com/b=one"}),
                      {"/dev/zero is c 1:5 on this host, and c 1:3 in the file"}));
    EXPECT(!std::filesystem::exists(scene.in_root("/dev/one")));
    return {};
  }) == "");
}
