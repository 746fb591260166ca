#include "hooks/inject/inventory/proc_inventory.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include <fcntl.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"

namespace situla::nvidia {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kHexDigits = "0123456789abcdef";

/// Two or more numbers with points between them.
bool is_version(std::string_view word) {
  const auto parts = split(word, '.');
  return parts.size() > 1 && std::all_of(parts.begin(), parts.end(), [](std::string_view part) {
           return !part.empty() && part.find_first_not_of(kDigits) == std::string_view::npos;
         });
}

std::optional<uint32_t> number_after(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  const auto number = parse_unsigned(name.substr(prefix.size()));
  if (!number || *number > std::numeric_limits<uint32_t>::max()) return std::nullopt;
  return static_cast<uint32_t>(*number);
}

/// N of all names PREFIX<N> in a directory, ascending.
std::vector<uint32_t> numbers_in(const RootDir& root, const std::string& path, std::string_view prefix) {
  std::vector<uint32_t> numbers;
  for (const std::string& name : names_in(root, path))
    if (const auto number = number_after(name, prefix)) numbers.push_back(*number);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

/// By (GPU instance, compute instance): NVML's order as far as anybody can tell without it.
std::vector<MigDevice> mig_devices(const RootDir& devices, uint32_t gpu_minor) {
  std::vector<MigDevice> found;
  for (const GpuInstance& instance : read_gpu_instances(devices, gpu_minor))
    for (const uint32_t compute : instance.compute_instances) {
      MigDevice& device = found.emplace_back();
      device.index = static_cast<uint32_t>(found.size() - 1);
      device.gpu_instance = instance.number;
      device.compute_instance = compute;
    }
  return found;
}

std::optional<Gpu> read_gpu(const RootDir& devices, const std::string& bus_id, LogSink& log) {
  const std::string path = kDriverProc + ("/gpus/" + bus_id) + "/information";
  const auto text = devices.read_file(path);
  if (!text) {
    log.warning("the GPU at " + printable(bus_id) + " is left out: " + text.error().message());
    return std::nullopt;
  }
  auto lines = parse_colon_lines(*text);
  if (to_lower(lines["GPU Excluded"]) == "yes") {
    log.debug("the GPU at " + printable(bus_id) + " is left out: the driver was told to exclude it");
    return std::nullopt;
  }
  const auto minor = number_after(lines["Device Minor"], "");
  if (!minor) {
    log.warning("the GPU at " + printable(bus_id) + " is left out: " + path + " has no line \"Device Minor\"");
    return std::nullopt;
  }
  Gpu gpu;
  // A GPU that never was opened since the driver was loaded shows question marks.
  if (lines["GPU UUID"].find('?') == std::string::npos) gpu.uuid = lines["GPU UUID"];
  gpu.bus_id = bus_id;
  gpu.model = lines["Model"];
  gpu.minor = *minor;
  gpu.mig = mig_devices(devices, *minor);
  gpu.mig_enabled = !gpu.mig.empty();
  return gpu;
}

}  // namespace

std::vector<std::string> names_in(const RootDir& root, const std::string& path) {
  const auto directory = root.open_at(path, O_RDONLY | O_DIRECTORY);
  if (!directory) return {};
  auto names = list_directory(directory->get(), path);
  if (!names) return {};
  std::sort(names->begin(), names->end());
  return std::move(*names);
}

std::map<std::string, std::string, std::less<>> parse_colon_lines(std::string_view text) {
  std::map<std::string, std::string, std::less<>> lines;
  for (const std::string_view line : split_nonempty(text, '\n'))
    if (const auto parts = cut(line, ':')) lines.emplace(trim(parts->first), trim(parts->second));
  return lines;
}

std::string parse_driver_version(std::string_view text) {
  for (const std::string_view line : split_nonempty(text, '\n')) {
    if (!line.starts_with("NVRM version:")) continue;
    // "NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue ...", or "NVIDIA UNIX Open Kernel Module for x86_64  550.54.15
    // ..."
    for (const std::string_view word : split_words(line))
      if (is_version(word)) return std::string(word);
  }
  return {};
}

Result<std::string> driver_version(const RootDir& devices) {
  const std::string path = std::string(kDriverProc) + "/version";
  auto text = devices.read_file(path);
  if (!text)
    return fail(Error(ErrorKind::not_found, "find NVIDIA's driver: " + text.error().message())
                    .with_code(ErrorCode::gpu_driver)
                    .with_hint("the kernel module nvidia is not loaded, or the node has no NVIDIA GPU"));
  std::string version = parse_driver_version(*text);
  if (!version.empty()) return version;
  const auto module = devices.read_file("/sys/module/nvidia/version");
  if (module && is_version(trim(*module))) return std::string(trim(*module));
  return fail(
      Error(ErrorKind::corrupt, "find the version of NVIDIA's driver in " + path).with_code(ErrorCode::gpu_driver));
}

std::vector<Gpu> read_gpus(const RootDir& devices, LogSink& log) {
  std::vector<Gpu> gpus;
  for (const std::string& bus_id : names_in(devices, std::string(kDriverProc) + "/gpus"))
    if (auto gpu = read_gpu(devices, bus_id, log)) gpus.push_back(std::move(*gpu));
  return gpus;
}

std::vector<GpuInstance> read_gpu_instances(const RootDir& devices, uint32_t gpu_minor) {
  const std::string base = kDriverProc + ("/capabilities/gpu" + std::to_string(gpu_minor)) + "/mig";
  std::vector<GpuInstance> instances;
  for (const uint32_t number : numbers_in(devices, base, "gi"))
    instances.push_back({number, numbers_in(devices, base + "/gi" + std::to_string(number), "ci")});
  return instances;
}

std::string normalized_bus_id(std::string_view bus_id) {
  std::string text = to_lower(bus_id);
  const size_t colon = text.find(':');
  if (colon == std::string::npos || colon > 8 || text.find_first_not_of(kHexDigits) != colon) return text;
  // NVML writes the domain with eight digits, /proc with four as long as they do.
  text.erase(0, std::min(text.find_first_not_of('0'), colon));
  const size_t digits = text.find(':');
  return digits < 4 ? std::string(4 - digits, '0') + text : text;
}

}  // namespace situla::nvidia
