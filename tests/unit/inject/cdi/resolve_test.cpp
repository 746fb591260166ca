// What do CDI devices change in a container? Golden plans of specifications as the vendors' tools write them, on
// machines that only exist here.
#include "hooks/inject/cdi/resolve.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "tests/support/elf_library.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/plan_text.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;
using cdi::HostNode;
using cdi::look_at_host;

namespace {

const std::string kFixtures = SITULA_SOURCE_DIR "/tests/unit/inject/cdi/";

/// A node with specifications and devices. Every path but those beneath /dev exists, unless it is said to be missing.
struct Node {
  test::TempDir dir;
  std::map<std::string, HostNode> devices;
  std::set<std::string> missing;
  DeviceSettings settings;
  std::vector<gid_t> groups;
  test::MemoryLog log;

  Node() {
    std::filesystem::create_directories(dir / "cdi");
    std::filesystem::create_directories(dir / "root");
    std::filesystem::create_directories(dir / "host");
  }

  Node& with(const std::string& path, char type, uint32_t major, uint32_t minor) {
    devices[path] = {DeviceNumber{type, major, minor}, false, false};
    return *this;
  }
  void deny(const std::string& path) { devices[path].denied = true; }
  void specify(const std::string& fixture) {
    std::filesystem::copy_file(kFixtures + fixture, dir / "cdi/" + fixture);
    std::filesystem::permissions(dir / "cdi/" + fixture, std::filesystem::perms(0644));
  }

  Result<ContainerEdits> edits(const std::vector<std::string>& names) {
    const HostRoots host = {"/", "/", *RootDir::open("/"), *RootDir::open(dir / "host")};
    const RootDir root = *RootDir::open(dir / "root");
    CdiContext context{root, host, settings, groups, [this](const std::string& path) -> Result<HostNode> {
                         if (const auto found = devices.find(path); found != devices.end()) return found->second;
                         const bool is_node = path.starts_with("/dev/") && path != "/dev/dri/by-path";
                         if (is_node || missing.contains(path)) return fail_errno(ENOENT, "look at " + path);
                         return HostNode{};
                       }};
    return cdi_edits(names, CdiRegistry::load({dir / "cdi"}), context, log);
  }
  std::string plan(const std::vector<std::string>& names) {
    const auto made = edits(names);
    return made ? test::without_origins(describe(*made)) : local(made.error().text());
  }
  /// Without where the test keeps its files.
  [[nodiscard]] std::string local(std::string text) const {
    for (size_t at = 0; (at = text.find(dir.path(), at)) != std::string::npos;) text.erase(at, dir.path().size());
    return text;
  }
  [[nodiscard]] std::string messages() const {
    std::string text;
    for (const auto& message : log.messages)
      if (message.level != LogLevel::debug)
        text += std::string(message.level == LogLevel::info ? "info: " : "warning: ") + local(message.text) + "\n";
    return text;
  }
};

void add_nvidia(Node& node) {
  node.specify("nvidia.yaml");
  node.with("/dev/nvidiactl", 'c', 195, 255).with("/dev/nvidia-modeset", 'c', 195, 254);
  node.with("/dev/nvidia-uvm", 'c', 510, 0).with("/dev/nvidia-uvm-tools", 'c', 510, 1);
  node.with("/dev/nvidia0", 'c', 195, 0).with("/dev/nvidia1", 'c', 195, 1);
  node.with("/dev/dri/card1", 'c', 226, 1).with("/dev/dri/renderD128", 'c', 226, 128);
  node.with("/dev/nvidia-caps/nvidia-cap66", 'c', 237, 66).with("/dev/nvidia-caps/nvidia-cap67", 'c', 237, 67);
}

void add_amd(Node& node, const std::string& file = "amd.json") {
  node.specify(file);
  node.with("/dev/kfd", 'c', 511, 0);
  node.with("/dev/dri/card1", 'c', 226, 1).with("/dev/dri/renderD128", 'c', 226, 128);
  node.with("/dev/dri/card2", 'c', 226, 2).with("/dev/dri/renderD129", 'c', 226, 129);
}

/// A specification with one device "one" and these edits.
std::string one(const std::string& edits, const std::string& version = "1.1.0") {
  return "cdiVersion: " + version + "\nkind: a.com/b\ndevices:\n- name: one\n  containerEdits: " + edits + "\n";
}

const std::string kNvidiaShared =
    "env NVIDIA_CTK_LIBCUDA_DIR=/usr/lib/x86_64-linux-gnu\n"
    "env NVIDIA_VISIBLE_DEVICES=void\n"
    "mount /run/nvidia-persistenced/socket on /run/nvidia-persistenced/socket [nosuid, nodev, noexec, if possible]\n"
    "mount /usr/bin/nvidia-smi on /usr/bin/nvidia-smi [ro, nosuid, nodev]\n"
    "mount /usr/lib/x86_64-linux-gnu/libcuda.so.999.88.77 on /usr/lib/x86_64-linux-gnu/libcuda.so.999.88.77 [ro, "
    "nosuid, "
    "nodev]\n"
    "mount /usr/lib/x86_64-linux-gnu/vdpau/libvdpau_nvidia.so.999.88.77 on "
    "/usr/lib/x86_64-linux-gnu/vdpau/libvdpau_nvidia.so.999.88.77 [ro, nosuid, nodev]\n"
    "mount /lib/firmware/nvidia/999.88.77/gsp_ga10x.bin on /lib/firmware/nvidia/999.88.77/gsp_ga10x.bin [ro, nosuid, "
    "nodev, if possible]\n"
    "device /dev/nvidia-modeset on /dev/nvidia-modeset (c 195:254)\n"
    "device /dev/nvidia-uvm on /dev/nvidia-uvm (c 510:0)\n"
    "device /dev/nvidia-uvm-tools on /dev/nvidia-uvm-tools (c 510:1)\n"
    "device /dev/nvidiactl on /dev/nvidiactl (c 195:255)\n";

const std::string kNvidiaFirst =
    "device /dev/nvidia0 on /dev/nvidia0 (c 195:0)\n"
    "device /dev/dri/card1 on /dev/dri/card1 (c 226:1)\n"
    "device /dev/dri/renderD128 on /dev/dri/renderD128 (c 226:128)\n";

const std::string kNvidiaLinks =
    "link /usr/lib/x86_64-linux-gnu/gbm/nvidia-drm_gbm.so -> ../libnvidia-allocator.so.1\n"
    "link /usr/lib/x86_64-linux-gnu/libcuda.so -> libcuda.so.1\n"
    "link /usr/lib/x86_64-linux-gnu/libnvidia-opticalflow.so -> libnvidia-opticalflow.so.1\n";

const std::string kNvidiaByPath =
    "link /dev/dri/by-path/pci-0000:41:00.0-card -> ../card1\n"
    "link /dev/dri/by-path/pci-0000:41:00.0-render -> ../renderD128\n";

const std::string kNvidiaLibraries =
    "libraries in /usr/lib/x86_64-linux-gnu\n"
    "libraries in /usr/lib/x86_64-linux-gnu/vdpau\n";

}  // namespace

TEST_CASE("NVIDIA's specification: driver files once, the GPU, and its hooks done here") {
  Node node;
  add_nvidia(node);
  CHECK(node.plan({"nvidia.com/gpu=0"}) ==
        kNvidiaShared + kNvidiaFirst + kNvidiaLinks + kNvidiaByPath + kNvidiaLibraries);
  CHECK(node.messages() == "");

  SECTION("two GPUs, one of them twice") {
    CHECK(node.plan({"nvidia.com/gpu=0", "nvidia.com/gpu=1", "nvidia.com/gpu=0",
                     "nvidia.com/gpu=GPU-11111111-2222-3333-4444-555555555555"}) ==
          kNvidiaShared + kNvidiaFirst + "device /dev/nvidia1 on /dev/nvidia1 (c 195:1)\n" + kNvidiaLinks +
              kNvidiaByPath + kNvidiaLibraries);
  }
  SECTION("a MIG instance") {
    CHECK(node.plan({"nvidia.com/gpu=1:0"}) ==
          kNvidiaShared +
              "device /dev/nvidia1 on /dev/nvidia1 (c 195:1)\n"
              "device /dev/nvidia-caps/nvidia-cap66 on /dev/nvidia-caps/nvidia-cap66 (c 237:66)\n"
              "device /dev/nvidia-caps/nvidia-cap67 on /dev/nvidia-caps/nvidia-cap67 (c 237:67)\n" +
              kNvidiaLinks + kNvidiaLibraries);
  }
}

TEST_CASE("nvidia-ctk as it was before nvidia-cdi-hook") {
  Node node;
  add_nvidia(node);
  std::filesystem::remove(node.dir / "cdi/nvidia.yaml");
  node.specify("nvidia-1.14.yaml");
  CHECK(node.plan({"nvidia.com/gpu=all"}) ==
        "mount /usr/lib/x86_64-linux-gnu/libcuda.so.999.88.77 on /usr/lib/x86_64-linux-gnu/libcuda.so.999.88.77 [ro, "
        "nosuid, nodev]\n"
        "device /dev/nvidia-uvm on /dev/nvidia-uvm (c 510:0)\n"
        "device /dev/nvidiactl on /dev/nvidiactl (c 195:255)\n"
        "device /dev/nvidia0 on /dev/nvidia0 (c 195:0)\n"
        "link /usr/lib/x86_64-linux-gnu/libGLX_indirect.so.0 -> libGLX_nvidia.so.999.88.77\n"
        "libraries in /usr/lib/x86_64-linux-gnu\n");
  CHECK(node.messages() == "");
}

TEST_CASE("AMD's specification, also when it was written before the last boot") {
  Node node;
  add_amd(node, GENERATE(as<std::string>(), "amd.json", "amd.yaml"));
  const std::string first =
      "device /dev/dri/card1 on /dev/dri/card1 (c 226:1)\n"
      "device /dev/dri/renderD128 on /dev/dri/renderD128 (c 226:128)\n";
  CHECK(node.plan({"amd.com/gpu=0"}) == first + "device /dev/kfd on /dev/kfd (c 511:0)\n");
  CHECK(node.plan({"amd.com/gpu=all"}) == first +
                                              "device /dev/dri/card2 on /dev/dri/card2 (c 226:2)\n"
                                              "device /dev/dri/renderD129 on /dev/dri/renderD129 (c 226:129)\n"
                                              "device /dev/kfd on /dev/kfd (c 511:0)\n"
                                              "link /opt/rocm -> /opt/rocm-6.4.0\n");
  CHECK(node.messages() == "");
  node.with("/dev/kfd", 'c', 508, 0);
  CHECK(node.plan({"amd.com/gpu=0"}) == first + "device /dev/kfd on /dev/kfd (c 508:0)\n");
  CHECK(node.log.count(LogLevel::info, "/dev/kfd is c 508:0 now, and was c 511:0 when the file was written") == 1);
}

TEST_CASE("Intel's specification: its links to devices can be opened") {
  Node node;
  node.specify("intel.yaml");
  node.with("/dev/dri/card0", 'c', 226, 0).with("/dev/dri/renderD128", 'c', 226, 128);
  node.with("/dev/dri/by-path/pci-0000:03:00.0-card", 'c', 226, 0);
  node.with("/dev/dri/by-path/pci-0000:03:00.0-render", 'c', 226, 128);
  CHECK(node.plan({"intel.com/gpu=0000-03-00-0-0x56c0"}) ==
        "mount /dev/dri/by-path/pci-0000:03:00.0-card on /dev/dri/by-path/pci-0000:03:00.0-card\n"
        "mount /dev/dri/by-path/pci-0000:03:00.0-render on /dev/dri/by-path/pci-0000:03:00.0-render\n"
        "device /dev/dri/card0 on /dev/dri/card0 (c 226:0)\n"
        "device /dev/dri/renderD128 on /dev/dri/renderD128 (c 226:128)\n");
  CHECK(node.plan({"intel.com/gpu=card0"}) ==
        "mount /dev/dri/by-path on /dev/dri/by-path\n"
        "device /dev/dri/card0 on /dev/dri/card0 (c 226:0)\n");
  CHECK(node.messages() == "");
}

TEST_CASE("everything that a file can say: what needs privilege is told, the rest is done in CDI's order") {
  Node node;
  node.specify("everything.yaml");
  node.with("/dev/host-one", 'c', 10, 16);
  node.devices["/run/one.fifo"] = {std::nullopt, true, false};
  node.groups = {1000, 44};
  CHECK(node.plan({"example.com/class.with.dots=one"}) ==
        "env SHARED=2\nenv EMPTY=\nenv WITH=a=b\n"
        "cover /scratch [nosuid, nodev]\n"
        "mount /opt/one on /opt [noexec]\n"
        "mount /run/one.fifo on /run/one.fifo\n"
        "mount /opt/one/a/b on /opt/a/b [ro, nosymfollow]\n"
        "device /dev/host-one on /dev/one (c 10:16)\n"
        "run /opt/one/bin/early early\n"
        "run /opt/one/bin/late late --now\n");
  CHECK(
      node.messages() ==
      "warning: /cdi/everything.yaml: ignoring the option idmap of the mount at /opt\n"
      "warning: /cdi/everything.yaml: leaving out the proc at /extra/proc: only files and directories of the host, and "
      "tmpfs, are mounted\n"
      "warning: /cdi/everything.yaml: leaving out the hook /opt/one/bin/bye: hooks of poststop are not run\n"
      "warning: /cdi/everything.yaml: example.com/class.with.dots=one wants group 109, in which the job's user is not, "
      "and nobody can be added to groups here\n"
      "warning: /cdi/everything.yaml: leaving out the network interface eth5: moving it needs privilege\n"
      "warning: /cdi/everything.yaml: leaving out intelRdt: resctrl groups need privilege\n");
  const auto edits = node.edits({"example.com/class.with.dots=one"});
  REQUIRE(edits);
  CHECK(edits->mounts[0].kind == StepKind::cover);
  CHECK(edits->mounts[0].parameters == MountParameters{{"mode", "1777"}, {"size", "64m"}});
  CHECK(edits->mounts[1].recursive);
  CHECK(edits->programs[1].environment == std::vector<std::string>{"A=1"});
  CHECK(edits->programs[1].limit == std::chrono::seconds(5));
  CHECK(edits->programs[1].origin == node.dir / "cdi/everything.yaml");
}

TEST_CASE("a site that runs no programs of CDI files") {
  Node node;
  node.settings.cdi_hooks = false;
  node.dir.write("cdi/a.yaml", one("{hooks: [{hookName: createRuntime, path: /opt/hook, args: [hook]}]}"));
  CHECK(node.plan({"a.com/b=one"}) == "");
  CHECK(node.messages() ==
        "warning: /cdi/a.yaml: leaving out the hook /opt/hook: this site runs none (cdi_hooks in situla.toml)\n");
}

TEST_CASE("devices that are not there") {
  Node node;
  CHECK(node.plan({"nvidia.com/gpu=0"}) ==
        "unresolvable CDI devices nvidia.com/gpu=0 [cdi]\n"
        "hint: no specification in /cdi; vendors' tools write them (nvidia-ctk cdi generate, amd-ctk cdi generate)");
  add_amd(node);
  CHECK(node.plan({"amd.com/gpu=0", "amd.com/gpu=7", "nvidia.com/gpu=0"}) ==
        "unresolvable CDI devices amd.com/gpu=7, nvidia.com/gpu=0 [cdi]\n"
        "hint: devices of amd.com/gpu: 0, 1, all; kinds on this node: amd.com/gpu");
  CHECK(node.plan({"gpu"}) == "\"gpu\" is no name of a device [cdi]\nhint: names look like nvidia.com/gpu=0");

  SECTION("because their file is broken") {
    node.dir.write("cdi/nvidia.yaml", "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: []\n");
    node.dir.write("cdi/other.json", "nothing");
    node.dir.write("cdi/third.yaml", "cdiVersion: 0.5.0\nkind: third.com/gpu\n");
    CHECK(node.plan({"nvidia.com/gpu=0"}) ==
          "unresolvable CDI devices nvidia.com/gpu=0 (/cdi/other.json: line 1: not JSON near \"no\") "
          "(/cdi/nvidia.yaml: devices: missing: there has to be one at least) [cdi]\n"
          "hint: kinds on this node: amd.com/gpu");
    CHECK(node.plan({"amd.com/gpu=0"}).starts_with("device "));
    CHECK(node.messages() == "");
  }
  SECTION("because two files claim them; the others come with a warning") {
    node.dir.write("cdi/more.yaml",
                   "cdiVersion: 0.5.0\nkind: amd.com/gpu\ndevices: [{name: 1, containerEdits: {env: [A=1]}}]\n");
    CHECK_THAT(node.plan({"amd.com/gpu=1"}),
               Catch::StartsWith("unresolvable CDI devices amd.com/gpu=1 (amd.com/gpu=1 is in /cdi/amd.json and in "
                                 "/cdi/more.yaml: it is taken from neither)"));
    CHECK(node.plan({"amd.com/gpu=0"}).starts_with("device "));
    CHECK(node.log.count(LogLevel::warning, "CDI: leaving out amd.com/gpu=1 is in ") == 1);
  }
}

TEST_CASE("a device cgroup: all is what the step has, a name is what was asked for") {
  Node node;
  add_amd(node);
  node.deny("/dev/dri/card1");
  node.deny("/dev/dri/renderD128");
  CHECK(node.plan({"amd.com/gpu=all"}) ==
        "device /dev/dri/card2 on /dev/dri/card2 (c 226:2)\n"
        "device /dev/dri/renderD129 on /dev/dri/renderD129 (c 226:129)\n"
        "device /dev/kfd on /dev/kfd (c 511:0)\n"
        "link /opt/rocm -> /opt/rocm-6.4.0\n");
  CHECK(node.messages() == "");
  CHECK(node.log.count(LogLevel::debug, "amd.com/gpu=all: leaving out /dev/dri/card1: ") == 1);
  CHECK(node.plan({"amd.com/gpu=1"}).starts_with("device /dev/dri/card2"));
  CHECK(node.plan({"amd.com/gpu=0"}) ==
        "amd.com/gpu=0: /dev/dri/card1: the device cgroup of this job step does not allow it [gpu-request]\n"
        "hint: of amd.com/gpu this step may use: 1, all");

  SECTION("without any GPU") {
    for (const char* path : {"/dev/dri/card2", "/dev/dri/renderD129", "/dev/kfd"}) node.deny(path);
    CHECK(node.plan({"amd.com/gpu=all"}) == "link /opt/rocm -> /opt/rocm-6.4.0\n");
    CHECK(node.messages() ==
          "info: amd.com/gpu=all: the device cgroup of this job step allows none of these devices\n");
  }
}

TEST_CASE("a specification that no longer fits the host") {
  Node node;
  add_nvidia(node);
  const std::string hint =
      " [cdi]\nhint: the file may be older than the driver: have the vendor's tool write it again (nvidia-ctk cdi "
      "generate, "
      "amd-ctk cdi generate)";
  SECTION("a library is gone") {
    node.missing.insert("/usr/lib/x86_64-linux-gnu/libcuda.so.999.88.77");
    CHECK(node.plan({"nvidia.com/gpu=0"}) ==
          "/cdi/nvidia.yaml: look at /usr/lib/x86_64-linux-gnu/libcuda.so.999.88.77: No such file or directory" + hint);
  }
  SECTION("a daemon does not run, firmware was removed: containers work without") {
    node.missing = {"/run/nvidia-persistenced/socket", "/lib/firmware/nvidia/999.88.77/gsp_ga10x.bin"};
    CHECK_THAT(node.plan({"nvidia.com/gpu=0"}), !Catch::Contains("persistenced") && !Catch::Contains("firmware"));
    CHECK(node.log.count(LogLevel::warning, "leaving out the mount at /run/nvidia-persistenced/socket") == 1);
  }
  SECTION("a node is gone") {
    node.devices.erase("/dev/nvidia0");
    CHECK(node.plan({"nvidia.com/gpu=0"}) ==
          "/cdi/nvidia.yaml: look at /dev/nvidia0: No such file or directory" + hint);
  }
  SECTION("a node of which the file knows the number is gone: CDI goes on without") {
    add_amd(node);
    node.devices.erase("/dev/dri/card1");
    CHECK_THAT(node.plan({"amd.com/gpu=0"}), Catch::StartsWith("device /dev/dri/renderD128"));
    CHECK(node.messages() == "warning: /cdi/amd.json: leaving out /dev/dri/card1: this host has no /dev/dri/card1\n");
  }
  SECTION("a node is another one, or none") {
    add_amd(node);
    node.with("/dev/dri/card1", 'c', 226, 7);
    CHECK(node.plan({"amd.com/gpu=0"}) ==
          "/cdi/amd.json: /dev/dri/card1 is c 226:7 on this host, and c 226:1 in the file" + hint);
    node.with("/dev/dri/card1", 'b', 226, 1);
    CHECK(node.plan({"amd.com/gpu=0"}) ==
          "/cdi/amd.json: /dev/dri/card1 is b 226:1 on this host, and c 226:1 in the file" + hint);
    node.devices["/dev/dri/card1"] = {};
    CHECK(node.plan({"amd.com/gpu=0"}) == "/cdi/amd.json: /dev/dri/card1 is no device on this host" + hint);
  }
}

TEST_CASE("disable-device-node-modification shows the driver's directory with other parameters") {
  Node node;
  add_nvidia(node);
  node.dir.write("host/proc/driver/nvidia/version", "NVRM version\n");
  node.dir.write("root/proc/driver/nvidia/version", "NVRM version\n");
  node.dir.write("host/proc/driver/nvidia/gpus/0000:41:00.0/information", "Model: X\n");
  const std::string params = node.dir.write("host/proc/driver/nvidia/params", "A: 0\nModifyDeviceFiles: 1\nB: 2\n");
  const std::string plan = node.plan({"nvidia.com/gpu=1"});
  CHECK_THAT(plan, Catch::Contains("cover /proc/driver/nvidia [nosuid, nodev, noexec]\n"));
  CHECK_THAT(plan, Catch::Contains("mount /proc/driver/nvidia/gpus on /proc/driver/nvidia/gpus [ro, nosuid, nodev, "
                                   "noexec, if possible]\n"
                                   "mount /proc/driver/nvidia/version on /proc/driver/nvidia/version"));
  CHECK_THAT(plan, Catch::Contains("file /proc/driver/nvidia/params\n"));
  const auto edits = node.edits({"nvidia.com/gpu=1"});
  REQUIRE(edits);
  const auto file = std::find_if(edits->files.begin(), edits->files.end(),
                                 [](const FileChange& change) { return change.kind == FileChange::Kind::write; });
  REQUIRE(file != edits->files.end());
  CHECK(file->content == "A: 0\nModifyDeviceFiles: 0\nB: 2\n");

  SECTION("not where it is so already, and not where the site wants nothing on /proc") {
    if (GENERATE(true, false))
      node.dir.write("host/proc/driver/nvidia/params", "ModifyDeviceFiles: 0\n");
    else
      node.settings.hide_gpus = false;
    CHECK_THAT(node.plan({"nvidia.com/gpu=1"}), !Catch::Contains("/proc/driver"));
  }
}

TEST_CASE("NVIDIA's other hooks, by any name of the program") {
  Node node;
  add_nvidia(node);
  const auto plan = [&](const std::string& path, const std::string& arguments) {
    node.dir.write("cdi/a.yaml",
                   one("{deviceNodes: [{path: /dev/nvidia1}], hooks: [{hookName: createContainer, path: " + path +
                       ", args: [" + arguments + "]}]}"));
    return node.plan({"a.com/b=one"});
  };
  const std::string device = "device /dev/nvidia1 on /dev/nvidia1 (c 195:1)\n";
  CHECK(plan("/usr/local/nvidia/toolkit/nvidia-cdi-hook", "x, create-symlinks, --link=a::/b, --link, c::d") ==
        device + "link /b -> a\nlink /d -> c\n");
  CHECK(plan("/snap/bin/nvidia-container-toolkit.nvidia-cdi-hook", "x, create-soname-symlinks, --folder, /lib") ==
        device + "libraries in /lib\n");
  CHECK(plan("/usr/bin/nvidia-ctk", "nvidia-ctk, --quiet, hook, chmod, --mode, '755', --path, /dev/dri") == device);
  CHECK(plan("/usr/bin/nvidia-cdi-hook", "x, update-application-profile") ==
        device + "file /etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf\n");
  CHECK_THAT(node.edits({"a.com/b=one"})->files[0].content, Catch::Contains("\"EGLVisibleDGPUDevices\", 2]"));
  CHECK(node.messages() == "");
  CHECK(plan("/usr/bin/nvidia-cdi-hook", "x, make-coffee") == device);
  CHECK(node.messages() == "warning: /cdi/a.yaml: leaving out the hook x make-coffee: not known here\n");
  CHECK(plan("/usr/bin/nvidia-cdi-hook", "x, create-symlinks, --link, nonsense") ==
        "/cdi/a.yaml: create-symlinks: \"nonsense\" is not TARGET::LINK [cdi]");
  CHECK(plan("/usr/bin/amd-ctk", "amd-ctk, hook, something-else") ==
        device + "run /usr/bin/amd-ctk amd-ctk hook something-else\n");
  CHECK(plan("/opt/vendor/cdi-hook", "cdi-hook, create-symlinks") ==
        device + "run /opt/vendor/cdi-hook cdi-hook create-symlinks\n");
}

TEST_CASE("enable-cuda-compat: an image's newer CUDA libraries come first where they fit the driver") {
  Node node;
  add_nvidia(node);
  const std::string library = test::elf_library(test::ElfLibrary{.soname = "libcuda.so.1"});
  node.dir.write("root/usr/local/cuda/compat/libcuda.so.1000.1.1", library);
  CHECK_THAT(node.plan({"nvidia.com/gpu=1"}), Catch::Contains("libraries first in /usr/local/cuda/compat\n"));
  SECTION("the site does not want it") {
    node.settings.cuda_compat = false;
    CHECK_THAT(node.plan({"nvidia.com/gpu=1"}), !Catch::Contains("compat"));
  }
  SECTION("older than the driver") {
    std::filesystem::remove(node.dir / "root/usr/local/cuda/compat/libcuda.so.1000.1.1");
    node.dir.write("root/usr/local/cuda/compat/libcuda.so.900.1.1", library);
    CHECK_THAT(node.plan({"nvidia.com/gpu=1"}), !Catch::Contains("compat"));
  }
  SECTION("an image that makes no sense works without") {
    node.dir.write("root/usr/local/cuda/compat/libcuda.so.1000.1.1", "no library");
    CHECK_THAT(node.plan({"nvidia.com/gpu=1"}), !Catch::Contains("compat"));
    CHECK(node.log.count(LogLevel::warning, "leaving the CUDA libraries of the image aside: ") == 1);
  }
}

TEST_CASE("the host is looked at as it is") {
  const auto null = look_at_host("/dev/null");
  REQUIRE(null);
  CHECK(null->number == DeviceNumber{'c', 1, 3});
  CHECK_FALSE(null->denied);
  const auto directory = look_at_host("/dev");
  REQUIRE(directory);
  CHECK_FALSE(directory->number);
  CHECK(look_at_host("/dev/no-such-node").error().kind() == ErrorKind::not_found);
  const test::TempDir dir;
  REQUIRE(mkfifo((dir / "fifo").c_str(), 0600) == 0);
  CHECK(look_at_host(dir / "fifo")->fifo);
}
