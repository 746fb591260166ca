#include <algorithm>

#include "common/base/text.hpp"
#include "hooks/doctor/device_access.hpp"
#include "hooks/doctor/device_sections.hpp"
#include "hooks/inject/inventory/gather.hpp"
#include "hooks/inject/inventory/proc_inventory.hpp"

namespace situla::doctor {
namespace {

using nvidia::Gpu;
using nvidia::Inventory;

std::string first_line(const RootDir& root, const std::string& path) {
  const Result<std::string> content = root.read_file(path);
  return content ? std::string(trim(content->substr(0, content->find('\n')))) : "";
}

/// Addresses of NVIDIA's display controllers on the PCI bus, with a driver or without.
std::vector<std::string> gpus_on_the_bus(const RootDir& devices) {
  constexpr std::string_view kNvidia = "0x10de";
  constexpr std::string_view kDisplayController = "0x03";
  std::vector<std::string> addresses;
  for (const std::string& address : nvidia::names_in(devices, "/sys/bus/pci/devices")) {
    const std::string directory = "/sys/bus/pci/devices/" + address;
    if (first_line(devices, directory + "/vendor") == kNvidia &&
        first_line(devices, directory + "/class").starts_with(kDisplayController))
      addresses.push_back(address);
  }
  return addresses;
}

/// What there is to be said about gathering.
class Remarks final : public LogSink {
 public:
  void write(LogLevel level, std::string_view message) noexcept override {
    if (level >= LogLevel::warning) texts.emplace_back(message);
  }
  std::vector<std::string> texts;
};

Check driver_line(const Inventory& inventory, const RootDir& devices) {
  if (inventory.driver_version.empty()) {
    const std::vector<std::string> unused = gpus_on_the_bus(devices);
    if (unused.empty()) return {"driver", State::ok, "no NVIDIA GPU on this node", ""};
    return {"driver", State::warn,
            "the kernel module nvidia is not loaded, and there are NVIDIA GPUs at " + printable(join(unused, ", ")),
            "install NVIDIA's driver and modprobe nvidia"};
  }
  const std::string cuda = inventory.cuda_version.empty() ? "unknown" : inventory.cuda_version;
  Check line{"driver", State::ok, inventory.driver_version + ", CUDA " + cuda, ""};
  line.facts = {{"driverVersion", inventory.driver_version},
                {"cudaVersion", inventory.cuda_version},
                {"source", inventory.from_nvml ? "nvml" : "proc"}};
  return line;
}

Check mig_text(Check line, const Gpu& gpu) {
  if (gpu.mig_enabled) {
    std::vector<std::string> instances;
    for (const nvidia::MigDevice& device : gpu.mig)
      instances.push_back(device.uuid.empty() ? "gi" + std::to_string(device.gpu_instance) + "/ci" +
                                                    std::to_string(device.compute_instance)
                                              : device.uuid);
    line.found += ", MIG: " + (instances.empty() ? "no instance" : join(instances, " "));
    line.facts.emplace_back("migDevices", join(instances, " "));
  }
  line.facts.emplace_back("mig", gpu.mig_enabled ? "enabled" : "disabled");
  return line;
}

Check gpu_line(const Gpu& gpu, size_t index, const RootDir& devices) {
  Check line{"gpu " + std::to_string(index), State::ok, "", ""};
  line.found = printable(gpu.model) + ", " + printable(gpu.uuid) + ", " + gpu.bus_id + ", " + gpu.node.path;
  line.facts = {{"index", std::to_string(index)},
                {"model", printable(gpu.model)},
                {"uuid", printable(gpu.uuid)},
                {"busId", gpu.bus_id},
                {"minor", std::to_string(gpu.minor)}};
  line = mig_text(std::move(line), gpu);
  const NodeAccess access = node_access(devices, gpu.node.path);
  line.facts.emplace_back("accessible", access.mine ? "yes" : "no");
  if (!access.mine) {
    line.found += access.restricted ? "; not of this job (device cgroup)" : "; no access: " + access.reason;
    if (!access.restricted) line.state = State::warn;
  }
  if (!access.only_for.empty()) {
    line.state = State::warn;
    line.found += "; only for " + access.only_for;
  }
  if (line.state != State::ok)
    line.fix = access.only_for.empty() ? "nvidia-smi and nvidia-persistenced, run by root, make the nodes"
                                       : "put the users into that group, or set the module parameters "
                                         "NVreg_DeviceFileMode=0666 and NVreg_ModifyDeviceFiles=1 of nvidia";
  return line;
}

void add_problems(const Inventory& inventory, std::vector<Check>& lines) {
  const auto warn = [&](const char* name, const char* found, const char* fix) {
    lines.push_back({name, State::warn, found, fix});
  };
  if (!inventory.nodes.control)
    warn("nvidiactl", "/dev/nvidiactl does not exist", "nvidia-smi, run by root, makes the nodes; or nvidia-modprobe");
  if (!inventory.nodes.uvm)
    warn("nvidia-uvm", "/dev/nvidia-uvm does not exist: CUDA programs find no device",
         "modprobe nvidia-uvm && nvidia-modprobe -u -c 0, at boot or in the prolog");
  const auto has = [&](std::string_view soname) {
    return std::any_of(inventory.libraries.begin(), inventory.libraries.end(),
                       [&](const nvidia::Library& library) { return library.soname == soname && !library.is_32bit; });
  };
  if (!has("libcuda.so.1"))
    warn("libcuda", "libcuda.so.1 of this driver is not on this node",
         "install the driver's libraries (libcuda1, nvidia-driver-cuda-libs), or set driver_root in situla.toml");
  if (!inventory.from_nvml)
    warn("nvml", "libnvidia-ml.so.1 gave no answer; what is known comes from /proc, without MIG UUIDs and CUDA version",
         "install it (libnvidia-ml1, nvidia-driver-libs), or look why nvidia-smi fails");
}

}  // namespace

Section gpu_section(const Inventory& inventory, const HostRoots& roots) {
  Section section{"gpus", "NVIDIA GPUs", {driver_line(inventory, roots.devices)}};
  if (inventory.driver_version.empty()) return section;
  for (size_t i = 0; i < inventory.gpus.size(); ++i)
    section.lines.push_back(gpu_line(inventory.gpus[i], i, roots.devices));
  add_problems(inventory, section.lines);
  return section;
}

Section gpus(const HostRoots& roots, const std::string& nvml_program) {
  Remarks remarks;
  nvidia::Inventory inventory;
  if (nvidia::has_driver(roots)) {
    nvidia::GatherOptions options;
    options.nvml_program = nvml_program;
    Result<nvidia::Inventory> gathered = nvidia::gather(roots, options, remarks);
    if (!gathered)
      return {
          "gpus", "NVIDIA GPUs", {{"driver", State::warn, gathered.error().message(), "look what nvidia-smi says"}}};
    inventory = std::move(*gathered);
  }
  Section section = gpu_section(inventory, roots);
  for (const std::string& text : remarks.texts)
    section.lines.push_back({"remark", State::warn, printable(text), "look what nvidia-smi says"});
  return section;
}

std::string brief_gpus(const RootDir& devices) {
  const Result<std::string> version = nvidia::driver_version(devices);
  if (!version) return "";
  const size_t gpus = nvidia::names_in(devices, std::string(nvidia::kDriverProc) + "/gpus").size();
  return "gpus=" + std::to_string(gpus) + " driver=" + *version;
}

}  // namespace situla::doctor
