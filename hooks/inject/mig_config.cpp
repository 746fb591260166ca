#include <array>
#include <chrono>

#include <fcntl.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process.hpp"
#include "common/sys/socket.hpp"
#include "hooks/inject/hooks.hpp"

namespace situla {
namespace {

constexpr size_t kMaxOutput = size_t{1} << 20U;
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
  TRY_ASSIGN(const UniqueFd output, memory_file("nvidia-smi"));
  options.fds = {{output.get(), STDOUT_FILENO}, {output.get(), STDERR_FILENO}};
  TRY_ASSIGN(Child child, spawn(options));
  TRY_ASSIGN(const auto status, child.wait_for(kLimit));
  if (!status) return fail(ErrorKind::failure, "nvidia-smi: no answer");
  if (lseek(output.get(), 0, SEEK_SET) != 0) return fail_errno(errno, "rewind the output of nvidia-smi");
  return read_all(output.get(), kMaxOutput);
}

}  // namespace

Result<Proposal> mig_config_hook(const InjectContext& context) {
  Proposal proposal;
  const std::string devices = context.host.get_or("NVIDIA_VISIBLE_DEVICES", "");
  if (devices.empty() || devices == "void" || devices == "none") return proposal;
  // "MIG-..." and "0:1" name instances; those are configured already.
  if (devices.find("MIG-") != std::string::npos || devices.find(':', 1) < devices.size() - 1) return proposal;
  TRY_ASSIGN(const std::string modes, query(devices, context.host));
  if (modes.find("Enabled") != std::string::npos) proposal.environment.set("NVIDIA_MIG_CONFIG_DEVICES", "all");
  return proposal;
}

}  // namespace situla
