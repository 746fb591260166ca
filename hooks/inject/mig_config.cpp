#include <chrono>

#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/process/run_program.hpp"
#include "hooks/inject/hooks.hpp"

namespace situla {
namespace {

constexpr size_t kMaxOutput = size_t{64} << 10U;
constexpr std::chrono::seconds kLimit{30};

std::string find_program(const std::string& name, const Environment& host) {
  const std::string places = host.get_or("PATH", "/usr/bin:/bin");
  for (const std::string_view directory : split_nonempty(places, ':')) {
    std::string path = std::string(directory) + "/" + name;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

Result<std::string> query(const std::string& devices, const Environment& host) {
  SpawnOptions options;
  options.program = find_program("nvidia-smi", host);
  if (options.program.empty()) return fail(ErrorKind::not_found, "Command not found: nvidia-smi");
  options.arguments = {"nvidia-smi", "--query-gpu=mig.mode.current", "--format=csv,noheader"};
  if (devices != "all") options.arguments.insert(options.arguments.end(), {"-i", devices});
  options.environment = host.strings();
  TRY_ASSIGN(const ProgramRun run, run_program(std::move(options), {.time = kLimit, .error_bytes = kMaxOutput}));
  if (run.end != ProgramRun::End::by_itself) return fail(ErrorKind::failure, "nvidia-smi: no answer");
  return run.output + run.errors;
}

}  // namespace

Result<ContainerEdits> mig_config_hook(const HookContext& context) {
  ContainerEdits edits;
  const std::string devices = context.host.get_or("NVIDIA_VISIBLE_DEVICES", "");
  if (devices.empty() || devices == "void" || devices == "none") return edits;
  // "MIG-..." and "0:1" name instances; those are configured already.
  if (devices.find("MIG-") != std::string::npos || devices.find(':', 1) < devices.size() - 1) return edits;
  TRY_ASSIGN(const std::string modes, query(devices, context.host));
  if (modes.find("Enabled") != std::string::npos) edits.environment.set("NVIDIA_MIG_CONFIG_DEVICES", "all");
  return edits;
}

}  // namespace situla
