// situla doctor: which GPUs and network adapters are there, and what is to be done about those that do not work?
#include <cstdlib>

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/base/text.hpp"
#include "hooks/doctor/device_sections.hpp"
#include "tests/support/as_user.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;
using doctor::Check;
using doctor::Section;
using doctor::State;

namespace {

/// A machine in a directory.
struct Machine {
  test::TempDir dir;
  [[nodiscard]] HostRoots roots() const { return *HostRoots::open(dir.path(), dir.path()); }
  void node(const std::string& path, mode_t mode = 0666) const {
    REQUIRE(chmod(dir.write(path, "").c_str(), mode) == 0);
  }
  void adapters(const std::vector<std::string>& words) const { make("make-hca-root", words); }
  void gpus(const std::vector<std::string>& words) const { make("make-drm-root", words); }
  void make(const std::string& program, const std::vector<std::string>& words) const {
    std::string command = SITULA_SOURCE_DIR "/tests/gpu/" + program + " " + shell_quote(dir.path());
    for (const std::string& word : words) command += " " + shell_quote(word);
    REQUIRE(std::system(command.c_str()) == 0);
  }
};

/// Two GPUs, all in order.
nvidia::Inventory two_gpus() {
  nvidia::Inventory inventory;
  inventory.driver_version = "580.95.05";
  inventory.cuda_version = "13.0";
  inventory.from_nvml = true;
  for (uint32_t i = 0; i < 2; ++i) {
    const std::string number = std::to_string(i);
    nvidia::Gpu gpu;
    gpu.uuid = "GPU-0000000" + number;
    gpu.bus_id = "0000:4" + number + ":00.0";
    gpu.model = "NVIDIA H100 80GB HBM3";
    gpu.minor = i;
    gpu.node = {"/dev/nvidia" + number, {'c', 195, i}};
    inventory.gpus.push_back(gpu);
  }
  inventory.nodes.control = nvidia::Node{"/dev/nvidiactl", {'c', 195, 255}};
  inventory.nodes.uvm = nvidia::Node{"/dev/nvidia-uvm", {'c', 510, 0}};
  nvidia::Library cuda;
  cuda.path = "/usr/lib64/libcuda.so.580.95.05";
  cuda.soname = "libcuda.so.1";
  inventory.libraries.push_back(cuda);
  return inventory;
}

const Check& line(const Section& section, const std::string& name) {
  for (const Check& check : section.lines)
    if (check.name == name) return check;
  FAIL("no line " << name);
  return section.lines.front();
}

bool all_ok(const Section& section) {
  for (const Check& check : section.lines)
    if (check.state != State::ok || !check.fix.empty()) return false;
  return true;
}

}  // namespace

TEST_CASE("GPUs that are in order") {
  const Machine machine;
  machine.node("dev/nvidia0");
  machine.node("dev/nvidia1");
  const Section section = doctor::gpu_section(two_gpus(), machine.roots());
  CHECK(section.name == "gpus");
  CHECK(section.lines.size() == 3);
  CHECK(all_ok(section));
  CHECK(line(section, "driver").found == "580.95.05, CUDA 13.0");
  CHECK(line(section, "gpu 1").found == "NVIDIA H100 80GB HBM3, GPU-00000001, 0000:41:00.0, /dev/nvidia1");
}

TEST_CASE("MIG instances are listed, by UUID where it is known") {
  const Machine machine;
  machine.node("dev/nvidia0");
  machine.node("dev/nvidia1");
  nvidia::Inventory inventory = two_gpus();
  inventory.gpus[0].mig_enabled = inventory.gpus[1].mig_enabled = true;
  nvidia::MigDevice device;
  device.uuid = "MIG-1234";
  inventory.gpus[0].mig.push_back(device);
  device.uuid = "";
  device.gpu_instance = 5;
  inventory.gpus[0].mig.push_back(device);
  const Section section = doctor::gpu_section(inventory, machine.roots());
  CHECK_THAT(line(section, "gpu 0").found, Catch::EndsWith("/dev/nvidia0, MIG: MIG-1234 gi5/ci0"));
  CHECK_THAT(line(section, "gpu 1").found, Catch::EndsWith("MIG: no instance"));
}

TEST_CASE("each thing that is missing has its line and its cure") {
  const Machine machine;
  machine.node("dev/nvidia0");
  nvidia::Inventory inventory = two_gpus();
  inventory.nodes = {};
  inventory.libraries.clear();
  inventory.from_nvml = false;
  inventory.cuda_version.clear();
  const Section section = doctor::gpu_section(inventory, machine.roots());
  CHECK(line(section, "driver").found == "580.95.05, CUDA unknown");
  for (const auto& [name, fix] : {std::pair<const char*, const char*>{"nvidia-uvm", "modprobe nvidia-uvm"},
                                  {"nvidiactl", "nvidia-smi"},
                                  {"libcuda", "driver_root"},
                                  {"nvml", "libnvidia-ml1"},
                                  {"gpu 1", "nvidia-smi"}}) {
    INFO(name);
    CHECK(line(section, name).state == State::warn);
    CHECK_THAT(line(section, name).fix, Catch::Contains(fix));
  }
  CHECK_THAT(line(section, "gpu 1").found, Catch::Contains("no access: it does not exist"));
  CHECK(line(section, "gpu 0").state == State::ok);
}

TEST_CASE("nodes for a group only: named, also to root, who has access") {
  const Machine machine;
  machine.node("dev/nvidia0", 0660);
  machine.node("dev/nvidia1", 0600);
  const Section section = doctor::gpu_section(two_gpus(), machine.roots());
  CHECK_THAT(line(section, "gpu 0").found, Catch::Contains("; only for group "));
  CHECK_THAT(line(section, "gpu 0").fix, Catch::Contains("NVreg_DeviceFileMode"));
  CHECK_THAT(line(section, "gpu 1").found, Catch::Contains("; only for its owner"));
  test::give_to_user(machine.dir.path());
  REQUIRE(chmod((machine.dir / "dev/nvidia0").c_str(), 0) == 0);
  CHECK(test::as_user([&]() -> Result<void> {
          const Section mine = doctor::gpu_section(two_gpus(), machine.roots());
          EXPECT(line(mine, "gpu 0").found.find("; no access: Permission denied; only for its owner") !=
                 std::string::npos);
          return {};
        }) == "");
}

TEST_CASE("no driver: nothing to fix on a node without GPUs, the module on one with") {
  const Machine machine;
  Section section = doctor::gpu_section({}, machine.roots());
  REQUIRE(section.lines.size() == 1);
  CHECK(all_ok(section));
  CHECK(section.lines[0].found == "no NVIDIA GPU on this node");
  // A network adapter of the same vendor's other half, a bridge of its own, and a GPU.
  for (const auto& [address, vendor, type] :
       {std::tuple<const char*, const char*, const char*>{"0000:01:00.0", "0x15b3", "0x020000"},
        {"0000:02:00.0", "0x10de", "0x068000"},
        {"0000:41:00.0", "0x10de", "0x030200"}}) {
    machine.dir.write(std::string("sys/bus/pci/devices/") + address + "/vendor", std::string(vendor) + "\n");
    machine.dir.write(std::string("sys/bus/pci/devices/") + address + "/class", std::string(type) + "\n");
  }
  section = doctor::gpu_section({}, machine.roots());
  CHECK(section.lines[0].state == State::warn);
  CHECK_THAT(section.lines[0].found, Catch::Contains("GPUs at 0000:41:00.0") && !Catch::Contains("02:00.0"));
  CHECK_THAT(section.lines[0].fix, Catch::Contains("modprobe nvidia"));
}

TEST_CASE("a whole machine, as /proc tells") {
  const Machine machine;
  const std::string command = SITULA_SOURCE_DIR "/tests/gpu/make-driver-root --gpus 2 --devices files " +
                              shell_quote(machine.dir.path()) + " >/dev/null";
  REQUIRE(std::system(command.c_str()) == 0);
  const Section section = doctor::gpus(machine.roots(), "");
  CHECK(line(section, "driver").facts[2] == std::pair<std::string, std::string>("source", "proc"));
  CHECK_THAT(line(section, "gpu 1").found, Catch::Contains("GPU-"));
  CHECK(line(section, "nvml").state == State::warn);
  for (const Check& check : section.lines) CHECK(check.name != "libcuda");
  const Machine nothing;
  CHECK(all_ok(doctor::gpus(nothing.roots(), "")));
}

TEST_CASE("CDI files with their devices, and those that are left out") {
  const test::TempDir dir;
  CHECK(all_ok(doctor::cdi_section({dir / "none"})));
  CHECK(doctor::cdi_section({dir / "none"}).lines[0].found == "none in " + (dir / "none"));
  dir.write("etc/amd.json",
            R"({"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "devices": [
                {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/kfd"}]}},
                {"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/kfd"}]}}]})");
  dir.write("etc/broken.yaml", "cdiVersion: 0.6.0\nkind: [\n");
  for (const char* name : {"etc", "etc/amd.json", "etc/broken.yaml"})
    REQUIRE(chmod((dir / name).c_str(), std::string(name) == "etc" ? 0755 : 0644) == 0);
  const Section section = doctor::cdi_section({dir / "etc"});
  REQUIRE(section.lines.size() == 2);
  CHECK(line(section, "file").found == (dir / "etc/amd.json") + ": amd.com/gpu=0, amd.com/gpu=all");
  CHECK_THAT(line(section, "error").found, Catch::Contains("broken.yaml"));
  CHECK_FALSE(line(section, "error").fix.empty());
}

TEST_CASE("how much containers get") {
  const Machine machine;
  machine.adapters({"mlx5_0,mlx5_core,0000:3b:00.0"});
  DeviceSettings settings;
  settings.driver_root = settings.device_root = machine.dir.path();
  settings.devices = {"situla.dev/hca=mlx5_7"};
  const Section section = doctor::injection_section(settings, {});
  CHECK(line(section, "NVIDIA_VISIBLE_DEVICES=all").found == "nothing (gpu = \"native\")");
  CHECK(line(section, "MELLANOX_VISIBLE_DEVICES=all").found == "2 devices, 2 mounts, 2 files and links");
  CHECK(line(section, "devices = situla.dev/hca=mlx5_7").state == State::warn);
  CHECK_THAT(line(section, "devices = situla.dev/hca=mlx5_7").found, Catch::Contains("unknown network adapter"));
  for (const Check& check : section.lines) CHECK(check.name.find("fabric") == std::string::npos);
  CHECK(line(section, "GPUs that Slurm gives").found == "nothing (amd_gpu = \"native\", intel_gpu = \"native\")");
  settings.devices.clear();
  // No system has both.
  settings.fabric = {Fabric::cxi, Fabric::mpi};
  const Section fabric = doctor::injection_section(settings, {});
  CHECK_THAT(line(fabric, "fabric = cxi,mpi").found, Catch::Contains("nothing") || Catch::Contains("mount"));
  CHECK(line(fabric, "fabric").state == State::warn);
  CHECK_THAT(line(fabric, "fabric").found, Catch::Contains("the node has no lib"));
  CHECK_THAT(line(fabric, "fabric").fix, Catch::Contains("ld.so.conf.d"));
  settings.fabric.clear();
  CHECK(all_ok(doctor::injection_section(settings, {})));
  machine.gpus({"amd,0000:05:00.0", "amd,0000:26:00.0"});
  settings.intel_gpu = GpuMode::off;
  // And links, for whoever may make some in this system's /dev.
  CHECK_THAT(line(doctor::injection_section(settings, {}), "GPUs that Slurm gives").found,
             Catch::StartsWith("5 devices") && Catch::EndsWith(" (amd_gpu = \"native\", intel_gpu = \"off\")"));
}

TEST_CASE("what slurmd logs of GPUs comes from /proc") {
  const Machine machine;
  CHECK(doctor::brief_gpus(machine.roots().devices).empty());
  machine.dir.write("proc/driver/nvidia/version",
                    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder)\n"
                    "GCC version:  gcc version 12.2.0\n");
  CHECK(doctor::brief_gpus(machine.roots().devices) == "gpus=0 driver=580.95.05");
  machine.dir.write("proc/driver/nvidia/version",
                    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar\n");
  machine.dir.write("proc/driver/nvidia/gpus/0000:41:00.0/information", "");
  machine.dir.write("proc/driver/nvidia/gpus/0000:42:00.0/information", "");
  CHECK(doctor::brief_gpus(machine.roots().devices) == "gpus=2 driver=550.54.15");
  doctor::Report report;
  report.tier = "kernel";
  report.gpus = "gpus=2 driver=550.54.15";
  CHECK(report.brief() == "images by kernel mount; gpus=2 driver=550.54.15\n");
}

TEST_CASE("GPUs of AMD and Intel: those that only some may use, and no KFD") {
  const Machine nothing;
  CHECK(doctor::drm_section(nothing.roots()).lines[0].found == "none on this node");
  CHECK(doctor::drm_section(nothing.roots()).lines.size() == 1);
  const Machine machine;
  machine.gpus({"amd,0000:05:00.0,id=2f1b5c9d7e3a4c10", "intel,0000:00:02.0,no-card,no-node", "amd,0000:26:00.0"});
  for (const char* node : {"dev/dri/renderD128", "dev/kfd"}) REQUIRE(chmod((machine.dir / node).c_str(), 0666) == 0);
  REQUIRE(chmod((machine.dir / "dev/dri/renderD130").c_str(), 0660) == 0);
  const Section section = doctor::drm_section(machine.roots());
  CHECK(line(section, "amd 0").found == "0000:05:00.0, /dev/dri/renderD128, /dev/dri/card0, GPU-2f1b5c9d7e3a4c10");
  CHECK(line(section, "amd 0").state == State::ok);
  // Whose they are may open them, and so may root.
  CHECK(line(section, "amd 1").state == State::info);
  CHECK_THAT(line(section, "amd 1").found, Catch::Contains("; only for group "));
  CHECK(line(section, "amd 1").fix.empty());
  CHECK_THAT(line(section, "intel 0").found, Catch::Contains("no access: it does not exist"));
  CHECK_THAT(line(section, "intel 0").fix, Catch::Contains("udev"));
  CHECK(line(section, "kfd").state == State::ok);
  test::give_to_user(machine.dir.path());
  REQUIRE(chmod((machine.dir / "dev/dri/renderD130").c_str(), 0) == 0);
  CHECK(test::as_user([&]() -> Result<void> {
          const Section mine = doctor::drm_section(machine.roots());
          EXPECT(line(mine, "amd 1").state == State::warn);
          EXPECT(line(mine, "amd 1").found.find("; no access: Permission denied; only for ") != std::string::npos);
          EXPECT(line(mine, "amd 1").fix.find("put the users into that group") == 0);
          EXPECT(line(mine, "amd 0").state == State::ok);
          return {};
        }) == "");
  const Machine without;
  without.gpus({"--no-kfd", "amd,0000:05:00.0"});
  CHECK_THAT(line(doctor::drm_section(without.roots()), "kfd").found, Catch::Contains("ROCm finds no GPU"));
}

TEST_CASE("network adapters: ports, those nobody can use, and those that need fixing") {
  const Machine machine;
  CHECK(doctor::hca_section(machine.roots()).lines[0].found == "none on this node");
  machine.adapters({"--no-rdma-cm", "mlx5_0,mlx5_core,0000:3b:00.0,ports=2", "mlx5_1,mlx5_core,0000:3b:00.2,vf,no-ib",
                    "bnxt_re0,bnxt_en,0000:01:00.0,eth,down,no-node"});
  const Section section = doctor::hca_section(machine.roots());
  CHECK(line(section, "hca 0").found ==
        "mlx5_0, 0000:3b:00.0, mlx5_core, /dev/infiniband/uverbs0, port 1 InfiniBand ACTIVE 400 Gb/sec (4X NDR), "
        "port 2 InfiniBand ACTIVE 400 Gb/sec (4X NDR)");
  CHECK(line(section, "hca 1").state == State::ok);
  CHECK_THAT(line(section, "hca 1").found, Catch::Contains("0000:3b:00.2 (VF)") &&
                                               Catch::Contains("not for containers: no InfiniBand device mlx5_1"));
  CHECK(line(section, "hca 2").state == State::warn);
  CHECK_THAT(line(section, "hca 2").found,
             Catch::Contains("port 1 Ethernet DOWN") && Catch::Contains("/dev/infiniband/uverbs2 does not exist"));
  CHECK_THAT(line(section, "hca 2").fix, Catch::Contains("ib_uverbs"));
  CHECK_THAT(line(section, "rdma_cm").fix, Catch::Contains("modprobe rdma_ucm"));
}

TEST_CASE("devices have their facts in JSON") {
  const Machine machine;
  machine.node("dev/nvidia0");
  machine.adapters({"mlx5_0,mlx5_core,0000:3b:00.0"});
  doctor::Report report;
  report.tier = "kernel";
  report.sections = {doctor::gpu_section(two_gpus(), machine.roots()), doctor::hca_section(machine.roots())};
  CHECK_FALSE(report.failed());
  CHECK_THAT(report.text(), Catch::Contains("NVIDIA GPUs\n  ok    driver  580.95.05") &&
                                Catch::Contains("\n\nnetwork adapters with verbs\n  ok    hca 0  mlx5_0"));
  const auto json = nlohmann::json::parse(report.json());
  REQUIRE(json["checks"].size() == 4);
  CHECK(json["checks"][0]["facts"]["driverVersion"] == "580.95.05");
  CHECK(json["checks"][1]["section"] == "gpus");
  CHECK(json["checks"][1]["facts"]["uuid"] == "GPU-00000000");
  CHECK(json["checks"][1]["facts"]["accessible"] == "yes");
  CHECK(json["checks"][2]["status"] == "warn");
  CHECK(json["checks"][3]["name"] == "hca 0");
  CHECK(json["checks"][3]["facts"]["adapter"] == "mlx5_0");
}
