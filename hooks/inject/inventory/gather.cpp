#include "hooks/inject/inventory/gather.hpp"

#include <algorithm>

#include "common/base/text.hpp"
#include "common/sys/process/run_program.hpp"
#include "hooks/inject/inventory/driver_table.hpp"
#include "hooks/inject/inventory/proc_inventory.hpp"

namespace situla::nvidia {
namespace {

constexpr size_t kMaxAnswerBytes = size_t{4} << 20U;
constexpr const char* kWhat = "the answer of NVIDIA's management library";

Result<NvmlAnswer> parse_report(const std::string& text, const ExitStatus& status) {
  if (text.empty()) return fail(ErrorKind::failure, "ask NVIDIA's management library: situla-nvml " + status.text());
  const auto json = parse_json(text);
  if (!json) return fail(Error(json.error()).with_context(std::string("read ") + kWhat));
  TRY_ASSIGN(auto report, JsonReader::object<NvmlReport>(*json, kWhat));
  if (!report.error.empty())
    return fail(ErrorKind::failure, "ask NVIDIA's management library: " + printable(report.error));
  return std::move(report.answer);
}

std::string management_library(const Inventory& inventory) {
  for (const Library& library : inventory.libraries)
    if (!library.is_32bit && library.path.find("/" + std::string(table::kManagementLibrary)) != std::string::npos)
      return library.path;
  return {};
}

void take(std::string& field, const std::string& better) {
  if (!better.empty()) field = better;
}

void merge(Gpu& gpu, const NvmlGpu& known) {
  take(gpu.uuid, known.uuid);
  take(gpu.model, known.model);
  take(gpu.brand, known.brand);
  take(gpu.architecture, known.architecture);
  if (!known.mig_enabled) return;
  gpu.mig_enabled = *known.mig_enabled;
  gpu.mig = known.mig;
}

/// Lost GPUs are known by their place only: the n-th by PCI address, as long as the library sees all of them.
void drop_lost(std::vector<Gpu>& gpus, const NvmlAnswer& answer, LogSink& log) {
  if (answer.count != gpus.size()) return;
  for (auto index = answer.lost.rbegin(); index != answer.lost.rend(); ++index) {
    if (*index >= gpus.size()) continue;
    const auto gpu = gpus.begin() + static_cast<std::ptrdiff_t>(*index);
    log.warning("the GPU at " + printable(gpu->bus_id) + " is lost, no container gets it; the node needs a restart");
    gpus.erase(gpu);
  }
}

void merge(Inventory& inventory, const NvmlAnswer& answer, LogSink& log) {
  inventory.from_nvml = true;
  inventory.cuda_version = answer.cuda_version;
  for (const std::string& note : answer.notes) log.debug("NVIDIA's management library: " + printable(note));
  drop_lost(inventory.gpus, answer, log);
  for (const NvmlGpu& known : answer.gpus) {
    const auto gpu = std::find_if(inventory.gpus.begin(), inventory.gpus.end(), [&](const Gpu& candidate) {
      return normalized_bus_id(candidate.bus_id) == known.bus_id;
    });
    if (gpu != inventory.gpus.end())
      merge(*gpu, known);
    else
      log.debug("the GPU at " + printable(known.bus_id) + " is not in " + kDriverProc);
  }
}

void ask_management_library(const HostRoots& roots, const GatherOptions& options, Inventory& inventory, LogSink& log) {
  const std::string library = management_library(inventory);
  if (library.empty() || options.nvml_program.empty()) return;
  const auto answer =
      query_nvml(options.nvml_program, HostRoots::host_path(roots.driver_path, library), options.nvml_limit);
  if (answer) return merge(inventory, *answer, log);
  log.warning(answer.error().message() + "; GPUs are taken from " + kDriverProc +
              ", which knows neither UUIDs of MIG devices nor the CUDA version");
}

}  // namespace

Result<NvmlAnswer> query_nvml(const std::string& program, const std::string& library, std::chrono::milliseconds limit) {
  SpawnOptions options;
  options.program = program;
  options.arguments = {program, library};
  RunLimits limits;
  limits.time = limit;
  limits.output_bytes = kMaxAnswerBytes;
  TRY_ASSIGN(const ProgramRun run, run_program(std::move(options), limits));
  if (run.end == ProgramRun::End::too_much_output)
    return fail(ErrorKind::corrupt, std::string("read ") + kWhat + ": too long");
  if (run.end != ProgramRun::End::by_itself)
    return fail(ErrorKind::failure, "wait for NVIDIA's management library: it does not answer");
  return parse_report(run.output, *run.status);
}

bool has_driver(const HostRoots& roots) {
  return roots.devices.exists(std::string(kDriverProc) + "/version");
}

Result<Inventory> gather(const HostRoots& roots, const GatherOptions& options, LogSink& log) {
  Inventory inventory;
  TRY_ASSIGN(inventory.driver_version, driver_version(roots.devices));
  inventory.gpus = read_gpus(roots.devices, log);
  find_driver_files(roots, inventory, log);
  inventory.sockets = find_sockets(roots.driver);
  ask_management_library(roots, options, inventory, log);
  find_nodes(roots, inventory, log);
  return inventory;
}

}  // namespace situla::nvidia
