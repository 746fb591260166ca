// enroot's extra scripts that set variables only: 50-mig-config, 50-sharp, 50-slurm-pytorch.
#include <algorithm>
#include <chrono>

#include "common/base/text.hpp"
#include "common/sys/process/run_program.hpp"
#include "hooks/inject/hooks.hpp"

namespace situla {
namespace {

/// Sets what has a value and what the container lacks.
struct Missing {
  const Environment& container;
  Environment& proposed;
  void operator()(std::string_view name, const std::string& value) const {
    if (!value.empty() && !container.has(name)) proposed.set(name, value);
  }
};

constexpr std::string_view kVisibleDevices = "NVIDIA_VISIBLE_DEVICES";
constexpr size_t kMaxOutput = size_t{64} << 10U;
constexpr std::chrono::seconds kLimit{30};

Result<std::string> query(const std::string& devices, const Environment& host) {
  SpawnOptions options;
  options.program = find_program("nvidia-smi", host.get_or("PATH", "/usr/bin:/bin"));
  if (options.program.empty()) return fail(ErrorKind::not_found, "Command not found: nvidia-smi");
  options.arguments = {"nvidia-smi", "--query-gpu=mig.mode.current", "--format=csv,noheader"};
  if (devices != "all") options.arguments.insert(options.arguments.end(), {"-i", devices});
  options.environment = host.strings();
  TRY_ASSIGN(const ProgramRun run, run_program(std::move(options), {.time = kLimit, .error_bytes = kMaxOutput}));
  if (run.end != ProgramRun::End::by_itself) return fail(ErrorKind::failure, "nvidia-smi: no answer");
  return run.output + run.errors;
}

constexpr size_t kMaxSocketTable = size_t{64} << 20U;

/// The abstract socket of the SHARP daemon, without the "@"; empty where none runs (SHARP 2.7 and later have none).
std::string daemon_socket(const RootDir& host_root) {
  const auto table = host_root.read_file("/proc/self/net/unix", kMaxSocketTable);
  if (!table) return "";
  for (const std::string_view line : split(*table, '\n')) {
    const auto words = split_words(line);
    if (words.size() >= 8 && words[7].starts_with("@sharpd") && words[7] != "@sharpd_unix_sock")
      return std::string(words[7].substr(1));
  }
  return "";
}

constexpr uint64_t kPorts = 4536, kFirstPort = 61000;  // what torch.distributed may use: COMPAT.md 6

uint64_t number(const Environment& host, std::string_view name, uint64_t fallback) {
  return parse_unsigned(host.get_or(name, "")).value_or(fallback);
}

}  // namespace

Result<ContainerEdits> mig_config_hook(const HookContext& context) {
  ContainerEdits edits;
  const bool job_asks = context.host.has(kVisibleDevices);
  const std::string devices = (job_asks ? context.host : context.container).get_or(kVisibleDevices, "");
  if (devices.empty() || devices == "void" || devices == "none") return edits;
  if (devices.front() == '-') return edits;  // no option of nvidia-smi that an image chooses
  // "MIG-..." and "0:1" name instances; those are configured already.
  if (devices.find("MIG-") != std::string::npos || devices.find(':', 1) < devices.size() - 1) return edits;
  auto modes = query(devices, context.host);
  // Whatever an image asks for, it starts where there is no driver.
  if (!modes && !job_asks && modes.error().kind() == ErrorKind::not_found) return edits;
  if (!modes) return fail(std::move(modes).error().with_code(ErrorCode::gpu_driver));
  if (modes->find("Enabled") != std::string::npos) edits.environment.set("NVIDIA_MIG_CONFIG_DEVICES", "all");
  return edits;
}

Result<ContainerEdits> sharp_hook(const HookContext& context) {
  ContainerEdits edits;
  const std::string devices = context.host.has("MELLANOX_VISIBLE_DEVICES")
                                  ? context.host.get_or("MELLANOX_VISIBLE_DEVICES", "")
                                  : context.container.get_or("MELLANOX_VISIBLE_DEVICES", "");
  if (devices.empty() || devices == "void" || devices == "none") return edits;
  const std::string socket = daemon_socket(context.host_root);
  if (socket.empty() && context.host.get("SLURM_NETWORK") != "sharp") return edits;
  const Missing set{context.container, edits.environment};
  if (!socket.empty()) edits.environment.set("SHARP_COLL_SHARPD_SOCKET_NAME", socket);
  set("SHARP_COLL_LOCK_ON_COMM_INIT", "1");
  set("SHARP_COLL_NUM_COLL_GROUP_RESOURCE_ALLOC_THRESHOLD", "0");
  set("NCCL_COLLNET_ENABLE", "1");
  const std::string nodes = context.host.get_or("SLURM_STEP_NUM_NODES", "");
  set("NCCL_SHARP_GROUP_SIZE_THRESH", nodes.empty() ? context.host.get_or("OMPI_MCA_orte_num_nodes", "") : nodes);
  return edits;
}

std::string first_host(std::string_view list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const size_t end = std::min(list.find_first_of(",-]", i), list.size());
    host += list.substr(i + 1, end - i - 1);
    i = list.find(']', end);
    if (i == std::string_view::npos) break;
  }
  return host;
}

Result<ContainerEdits> slurm_pytorch_hook(const HookContext& context) {
  ContainerEdits edits;
  if (!context.container.has("PYTORCH_VERSION")) return edits;
  const Missing set{context.container, edits.environment};
  const Environment& host = context.host;
  set("MASTER_ADDR", first_host(host.get_or("SLURM_STEP_NODELIST", "")));
  if (const auto job = parse_unsigned(host.get_or("SLURM_JOB_ID", "")))
    set("MASTER_PORT", std::to_string(*job % kPorts + kFirstPort));
  set("WORLD_SIZE", host.get_or("SLURM_NTASKS", ""));
  set("RANK", host.get_or("SLURM_PROCID", ""));
  set("LOCAL_RANK", host.get_or("SLURM_LOCALID", ""));
  if (number(host, "SLURM_STEP_NUM_TASKS", 1) > number(host, "SLURM_STEP_NUM_NODES", 1)) set("OMP_NUM_THREADS", "1");
  return edits;
}

}  // namespace situla
