#include <algorithm>

#include "common/base/text.hpp"
#include "hooks/inject/hooks.hpp"

namespace situla {
namespace {

constexpr uint64_t kPorts = 4536, kFirstPort = 61000;  // what torch.distributed may use: COMPAT.md 6

uint64_t number(const Environment& host, std::string_view name, uint64_t fallback) {
  return parse_unsigned(host.get_or(name, "")).value_or(fallback);
}

}  // namespace

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
  const auto set = [&](std::string_view name, const std::string& value) {
    if (!value.empty() && !context.container.has(name)) edits.environment.set(name, value);
  };
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
