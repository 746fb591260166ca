// situla-nvml LIBRARY: asks NVIDIA's management library and prints its answer (NvmlReport). That library may make
// device nodes, change their modes, start programs or hang: this process has no rights with which it could.
#include <array>
#include <iostream>

#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/process/process.hpp"
#include "hooks/inject/inventory/inventory_fields.hpp"
#include "hooks/inject/inventory/proc_inventory.hpp"

namespace situla::nvidia {
namespace {

constexpr uid_t kNobody = 65534;

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

/// Loads the library and asks it for everything. A function that it lacks, and a GPU that it may not or cannot look at,
/// is a note; only a library that cannot be loaded or has no driver beneath it is an error.
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

/// Root becomes nobody, with the group of the device nodes; everybody else stays who they are. Not in a container's
/// user namespace, where root is an ordinary user already, whose groups may be what lets him use the GPUs.
Result<void> become_nobody() {
  if (geteuid() != 0 || !in_initial_user_namespace()) return {};
  struct stat status {};
  const bool has_group = stat("/dev/nvidiactl", &status) == 0 && status.st_gid != 0;
  const gid_t gid = has_group ? status.st_gid : static_cast<gid_t>(kNobody);
  TRY(become({kNobody, gid, {gid}}));
  // Changing ids made it forget.
  return die_with_parent();
}

void limit(int resource, rlim_t value) {
  const rlimit limits{value, value};
  (void)setrlimit(static_cast<__rlimit_resource>(resource), &limits);
}

Result<NvmlAnswer> ask(const std::string& library) {
  TRY(become_nobody());
  TRY(drop_all_capabilities());
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, 0);
  limit(RLIMIT_CPU, 30);
  limit(RLIMIT_NOFILE, 256);
  return ask_nvml(library);
}

}  // namespace
}  // namespace situla::nvidia

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] != '/') {
    std::cerr << "usage: situla-nvml /PATH/OF/libnvidia-ml.so.1\n";
    return 2;
  }
  using namespace situla::nvidia;
  NvmlReport report;
  auto answer = ask(argv[1]);
  if (answer)
    report.answer = std::move(*answer);
  else
    report.error = answer.error().message();
  std::cout << to_text(JsonWriter::object(report), {.indent = 1}) << std::flush;
  // _exit: destructors of the library could hang.
  _exit(answer ? 0 : 1);
}
