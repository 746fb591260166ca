#include "hooks/inject/inventory/nvml_library.hpp"

#include <array>

#include <dlfcn.h>

#include "common/base/text.hpp"
#include "hooks/inject/inventory/proc_inventory.hpp"

namespace situla::nvidia {
namespace {

// nvmlReturn_t
constexpr int kSuccess = 0, kNotFound = 6, kFunctionNotFound = 13, kLost = 15;

using Device = void*;

/// nvmlPciInfo_t as of nvmlDeviceGetPciInfo_v3.
struct PciInfo {
  std::array<char, 16> legacy_id;
  uint32_t domain, bus, device, device_id, subsystem_id;
  std::array<char, 32> bus_id;
};

/// nvmlBrandType_t, as NVIDIA_REQUIRE_* name them.
constexpr std::array<const char*, 18> kBrands = {
    "Unknown", "Quadro", "Tesla",   "NVS",       "GRID",      "GeForce", "TITAN",      "vApps",    "vPC",
    "vCS",     "vWS",    "vGaming", "QuadroRTX", "NvidiaRTX", "NVIDIA",  "GeForceRTX", "TitanRTX", "Unknown"};

class Nvml {
 public:
  explicit Nvml(void* handle) : handle_(handle) {}

  /// Arguments need exactly the types of the function's parameters; kFunctionNotFound where the library has no such.
  template <typename... Arguments>
  int call(const char* name, Arguments... arguments) {
    using Function = int (*)(Arguments...);
    const auto function = reinterpret_cast<Function>(dlsym(handle_, name));
    return function == nullptr ? kFunctionNotFound : function(arguments...);
  }

  /// A text that `name` writes into a buffer; empty when it cannot.
  template <typename... Arguments>
  std::string text(const char* name, Arguments... arguments) {
    std::array<char, 256> buffer{};
    if (call(name, arguments..., buffer.data(), static_cast<unsigned>(buffer.size() - 1)) != kSuccess) return {};
    return buffer.data();
  }

  std::string error(const char* name, int code) {
    if (code == kFunctionNotFound) return std::string(name) + ": the library has no such function";
    const auto describe = reinterpret_cast<const char* (*)(int)>(dlsym(handle_, "nvmlErrorString"));
    const char* words = describe == nullptr ? nullptr : describe(code);
    return std::string(name) + ": " + (words == nullptr ? "error " + std::to_string(code) : printable(words));
  }

 private:
  void* handle_;
};

std::string cuda_version(Nvml& nvml) {
  int version = 0;
  if (nvml.call("nvmlSystemGetCudaDriverVersion_v2", &version) != kSuccess &&
      nvml.call("nvmlSystemGetCudaDriverVersion", &version) != kSuccess)
    return {};
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string bus_id(Nvml& nvml, Device device) {
  PciInfo info{};
  if (nvml.call("nvmlDeviceGetPciInfo_v3", device, &info) != kSuccess) return {};
  info.bus_id.back() = '\0';
  return normalized_bus_id(info.bus_id.data());
}

std::vector<MigDevice> mig_devices(Nvml& nvml, Device gpu, std::vector<std::string>& notes) {
  std::vector<MigDevice> found;
  unsigned most = 0;
  if (const int code = nvml.call("nvmlDeviceGetMaxMigDeviceCount", gpu, &most); code != kSuccess) {
    notes.push_back(nvml.error("nvmlDeviceGetMaxMigDeviceCount", code));
    return found;
  }
  for (unsigned index = 0; index < most; ++index) {
    Device device = nullptr;
    const int code = nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", gpu, index, &device);
    if (code == kNotFound) continue;
    unsigned instance = 0, compute = 0;
    if (code != kSuccess || nvml.call("nvmlDeviceGetGpuInstanceId", device, &instance) != kSuccess ||
        nvml.call("nvmlDeviceGetComputeInstanceId", device, &compute) != kSuccess) {
      notes.push_back("MIG device " + std::to_string(index) + ": " +
                      nvml.error("nvmlDeviceGetMigDeviceHandleByIndex", code));
      continue;
    }
    MigDevice& mig = found.emplace_back();
    mig.index = index;
    mig.gpu_instance = instance;
    mig.compute_instance = compute;
    mig.uuid = nvml.text("nvmlDeviceGetUUID", device);
    // Profiles for graphics say so in their names: "... MIG 1g.24gb+gfx".
    mig.graphics = nvml.text("nvmlDeviceGetName", device).find("gfx") != std::string::npos;
  }
  return found;
}

NvmlGpu ask_gpu(Nvml& nvml, unsigned index, Device device, std::vector<std::string>& notes) {
  NvmlGpu gpu;
  gpu.index = index;
  gpu.uuid = nvml.text("nvmlDeviceGetUUID", device);
  gpu.bus_id = bus_id(nvml, device);
  gpu.model = nvml.text("nvmlDeviceGetName", device);
  unsigned minor = 0, brand = 0, current = 0, pending = 0;
  if (nvml.call("nvmlDeviceGetMinorNumber", device, &minor) == kSuccess) gpu.minor = minor;
  if (nvml.call("nvmlDeviceGetBrand", device, &brand) == kSuccess)
    gpu.brand = brand < kBrands.size() ? kBrands[brand] : kBrands.front();
  int major = 0, lesser = 0;
  if (nvml.call("nvmlDeviceGetCudaComputeCapability", device, &major, &lesser) == kSuccess)
    gpu.architecture = std::to_string(major) + "." + std::to_string(lesser);
  const int code = nvml.call("nvmlDeviceGetMigMode", device, &current, &pending);
  // A mode that waits for a reset of the GPU is not in force.
  if (code != kFunctionNotFound) gpu.mig_enabled = code == kSuccess && current == 1 && pending == 1;
  if (gpu.mig_enabled.value_or(false)) gpu.mig = mig_devices(nvml, device, notes);
  return gpu;
}

Result<void> initialize(Nvml& nvml) {
  int code = nvml.call("nvmlInit_v2");
  if (code == kFunctionNotFound) code = nvml.call("nvmlInit");
  if (code != kSuccess) return fail(ErrorKind::failure, nvml.error("nvmlInit_v2", code));
  return {};
}

}  // namespace

Result<NvmlAnswer> ask_nvml(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    return fail(ErrorKind::failure, "load " + library + ": " + (why == nullptr ? "unknown error" : printable(why)));
  }
  Nvml nvml(handle);
  TRY(initialize(nvml));
  NvmlAnswer answer;
  answer.driver_version = nvml.text("nvmlSystemGetDriverVersion");
  answer.cuda_version = cuda_version(nvml);
  unsigned count = 0;
  if (const int code = nvml.call("nvmlDeviceGetCount_v2", &count); code != kSuccess)
    return fail(ErrorKind::failure, nvml.error("nvmlDeviceGetCount_v2", code));
  answer.count = count;
  for (unsigned index = 0; index < count; ++index) {
    Device device = nullptr;
    const int code = nvml.call("nvmlDeviceGetHandleByIndex_v2", index, &device);
    if (code == kLost) answer.lost.push_back(index);
    if (code == kSuccess)
      answer.gpus.push_back(ask_gpu(nvml, index, device, answer.notes));
    else
      answer.notes.push_back("GPU " + std::to_string(index) + ": " + nvml.error("nvmlDeviceGetHandleByIndex_v2", code));
  }
  // No nvmlShutdown: the process ends, and a GPU that hangs could only keep it from doing so.
  return answer;
}

}  // namespace situla::nvidia
