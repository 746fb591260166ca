#include "nvidia_machines.hpp"

#include <stdexcept>

namespace situla::nvidia {
namespace {

constexpr uint32_t kMajor = 195, kUvmMajor = 511, kCapsMajor = 237;
const std::string kVersion = "550.54.15";

Node node(const std::string& path, uint32_t major, uint32_t minor) {
  return {path, {'c', major, minor}};
}

Library library(const std::string& name, CapabilitySet capabilities, const std::vector<std::string>& other_links = {}) {
  return {"/usr/lib64/" + name + ".so." + kVersion, name + ".so.1", other_links, "", capabilities, false};
}

Gpu gpu(uint32_t minor, const std::string& bus_id) {
  Gpu gpu;
  gpu.uuid = "GPU-" + std::string(8, static_cast<char>('0' + minor)) + "-1111-2222-3333-444444444444";
  gpu.bus_id = bus_id;
  gpu.model = "NVIDIA H100 80GB HBM3";
  gpu.brand = "NVIDIA";
  gpu.architecture = "9.0";
  gpu.minor = minor;
  gpu.node = node("/dev/nvidia" + std::to_string(minor), kMajor, minor);
  gpu.graphics_nodes = {node("/dev/dri/card" + std::to_string(minor), 226, minor),
                        node("/dev/dri/renderD" + std::to_string(128 + minor), 226, 128 + minor)};
  return gpu;
}

MigDevice mig(uint32_t index, uint32_t gpu_instance, uint32_t compute_instance, uint32_t cap) {
  MigDevice device;
  device.index = index;
  device.gpu_instance = gpu_instance;
  device.compute_instance = compute_instance;
  device.uuid = "MIG-" + std::string(8, static_cast<char>('a' + index)) + "-1111-2222-3333-444444444444";
  const std::string caps = "/dev/nvidia-caps/nvidia-cap";
  device.gpu_instance_node = node(caps + std::to_string(cap), kCapsMajor, cap);
  device.compute_instance_node =
      node(caps + std::to_string(cap + 1 + compute_instance), kCapsMajor, cap + 1 + compute_instance);
  const std::string directory = "/proc/driver/nvidia/capabilities/gpu0/mig/gi" + std::to_string(gpu_instance) + "/";
  device.gpu_instance_file = directory + "access";
  device.compute_instance_file = directory + "ci" + std::to_string(compute_instance) + "/access";
  return device;
}

void add_graphics(Inventory& all) {
  all.libraries.push_back(library("libnvidia-glcore", kGraphics));
  all.libraries.back().soname = "libnvidia-glcore.so." + kVersion;  // it has no shorter one
  all.libraries.push_back({"/usr/lib64/libGLX_nvidia.so." + kVersion, "libGLX_nvidia.so.0", {}, "", kGraphics, false});
  all.links = {{"libGLX_indirect.so.0", "libGLX_nvidia.so." + kVersion, kGraphics},
               {"gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1", kGraphics}};
  all.configuration = {
      {"/usr/share/glvnd/egl_vendor.d/10_nvidia.json", "/usr/share/glvnd/egl_vendor.d/10_nvidia.json", kGraphics},
      {"/etc/vulkan/icd.d/nvidia_icd.json", "/etc/vulkan/icd.d/nvidia_icd.json", kGraphics}};
  all.nodes.modeset = node("/dev/nvidia-modeset", kMajor, 254);
}

void add_32bit(Inventory& all) {
  Library cuda = library("libcuda", kCompute, {"libcuda.so"});
  cuda.path = "/usr/lib/libcuda.so." + kVersion;
  cuda.is_32bit = true;
  all.libraries.push_back(cuda);
}

/// A node whose driver is whole, without GPUs.
Inventory driver() {
  Inventory all;
  all.driver_version = kVersion;
  all.cuda_version = "12.4";
  all.from_nvml = true;
  all.nodes.control = node("/dev/nvidiactl", kMajor, 255);
  all.nodes.uvm = node("/dev/nvidia-uvm", kUvmMajor, 0);
  all.nodes.uvm_tools = node("/dev/nvidia-uvm-tools", kUvmMajor, 1);
  all.libraries = {library("libnvidia-ml", kUtility), library("libcuda", kCompute, {"libcuda.so", "libcuda.so.1"}),
                   library("libnvidia-encode", kVideo), library("libnvidia-ngx", kNgx)};
  all.libraries.push_back(
      {"/usr/lib64/vdpau/libvdpau_nvidia.so." + kVersion, "libvdpau_nvidia.so.1", {}, "vdpau", kVideo, false});
  all.binaries = {{"/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi", kUtility},
                  {"/usr/bin/nvidia-cuda-mps-server", "/usr/bin/nvidia-cuda-mps-server", kCompute}};
  const std::string firmware = "/lib/firmware/nvidia/" + kVersion + "/gsp_ga10x.bin";
  all.firmware = {{"/usr" + firmware, firmware, 0}};
  const std::string socket = "/run/nvidia-persistenced/socket";
  all.sockets = {{socket, socket, kUtility}};
  return all;
}

Inventory two() {
  Inventory all = driver();
  all.gpus = {gpu(0, "0000:41:00.0"), gpu(1, "0000:81:00.0")};
  return all;
}

Inventory without_nvml(Inventory all) {
  all.from_nvml = false;
  all.cuda_version.clear();
  for (Gpu& gpu : all.gpus) {
    gpu.brand.clear();
    gpu.architecture.clear();
    for (MigDevice& mig : gpu.mig) mig.uuid.clear();
  }
  return all;
}

Inventory with_mig() {
  Inventory all = two();
  all.gpus[0].mig_enabled = true;
  all.gpus[0].mig = {mig(0, 1, 0, 12), mig(1, 2, 0, 21), mig(2, 2, 1, 21)};
  all.gpus[0].mig[2].graphics = true;
  return all;
}

Inventory mig_proc() {
  Inventory all = without_nvml(with_mig());
  for (MigDevice& mig : all.gpus[0].mig) mig.gpu_instance_node = mig.compute_instance_node = std::nullopt;
  return all;
}

Inventory dgx() {
  Inventory all = driver();
  const char* const bus_ids[] = {"0000:1b:00.0", "0000:43:00.0", "0000:52:00.0", "0000:61:00.0",
                                 "0000:9d:00.0", "0000:c3:00.0", "0000:d1:00.0", "0000:df:00.0"};
  for (uint32_t i = 0; i < 8; ++i) all.gpus.push_back(gpu((i + 4) % 8, bus_ids[i]));
  return all;
}

Inventory desktop() {
  Inventory all = driver();
  all.gpus = {gpu(0, "0000:01:00.0")};
  all.gpus[0].brand = "GeForce";
  all.gpus[0].architecture = "8.6";
  add_graphics(all);
  add_32bit(all);
  return all;
}

Inventory fabric() {
  Inventory all = two();
  const std::string channel = "/dev/nvidia-caps-imex-channels/channel";
  all.nodes.imex_channels = {node(channel + "0", 234, 0), node(channel + "7", 234, 7)};
  all.nodes.gdrdrv = node("/dev/gdrdrv", 236, 0);
  all.nodes.gds = {node("/dev/nvidia-fs0", 235, 0)};
  all.nodes.nvswitch = {node("/dev/nvidia-nvswitchctl", 233, 255), node("/dev/nvidia-nvswitch0", 233, 0)};
  all.nodes.infiniband = {node("/dev/infiniband/uverbs0", 231, 192), node("/dev/infiniband/rdma_cm", 10, 58)};
  return all;
}

}  // namespace

Inventory machine(const std::string& name) {
  Inventory all = two();
  if (name == "two") return all;
  if (name == "two-proc") return without_nvml(all);
  if (name == "mig") return with_mig();
  if (name == "mig-proc") return mig_proc();
  if (name == "dgx") return dgx();
  if (name == "desktop") return desktop();
  if (name == "fabric") return fabric();
  if (name == "no-gpu") return driver();
  if (name == "none") return {};
  if (name == "mig-empty") {
    all.gpus[0].mig_enabled = true;
    return all;
  }
  if (name == "no-uvm") {
    all.nodes.uvm = all.nodes.uvm_tools = std::nullopt;
    return all;
  }
  if (name == "no-control") {
    all.nodes.control = std::nullopt;
    return all;
  }
  if (name == "mig-graphics") {
    all = with_mig();
    add_graphics(all);
    return all;
  }
  throw std::runtime_error("no machine " + name);
}

}  // namespace situla::nvidia
