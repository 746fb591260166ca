#include "hooks/inject/nvidia/container_cli.hpp"

#include <array>
#include <utility>

#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/process/run_program.hpp"

namespace situla::nvidia {
namespace {

constexpr const char* kTool = "nvidia-container-cli";
constexpr const char* kUsualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr std::chrono::seconds kLimit{60};  // it initialises the driver

constexpr std::array<std::pair<Capability, const char*>, 7> kWords = {{{kCompat32, "--compat32"},
                                                                       {kCompute, "--compute"},
                                                                       {kDisplay, "--display"},
                                                                       {kGraphics, "--graphics"},
                                                                       {kNgx, "--ngx"},
                                                                       {kUtility, "--utility"},
                                                                       {kVideo, "--video"}}};

/// Debian's ldconfig is a script around the program.
std::string host_ldconfig() {
  return access("/sbin/ldconfig.real", X_OK) == 0 ? "/sbin/ldconfig.real" : "/sbin/ldconfig";
}

std::vector<std::string> imex_words(const ImexRequest& imex) {
  std::vector<std::string> channels;
  for (const uint32_t channel : imex.channels) channels.push_back(std::to_string(channel));
  if (channels.empty()) return {};
  return {"--imex-channel=" + join(channels, ",")};
}

}  // namespace

Result<ContainerEdits> container_cli_edits(const DriverRequest& request, const std::string& root_path,
                                           const Environment& host) {
  ContainerEdits edits;
  const std::string places = host.get_or("PATH", kUsualPath);
  ProgramEdit program;
  program.path = find_program(kTool, places);
  if (program.path.empty() && request.asker != Asker::job) return edits;
  if (program.path.empty())
    return fail(
        Error(ErrorKind::not_found, std::string("Command not found: ") + kTool)
            .with_code(ErrorCode::site_config)
            .with_hint("gpu = \"nvidia-container-cli\" in situla.toml needs the package libnvidia-container-tools; "
                       "gpu = \"native\" needs nothing"));
  program.arguments = {kTool, "--user", "configure", "--no-cgroups", "--ldconfig=@" + host_ldconfig()};
  if (!request.devices.empty()) program.arguments.push_back("--device=" + join(request.devices, ","));
  if (request.mig_config) program.arguments.emplace_back("--mig-config=all");
  if (request.mig_monitor) program.arguments.emplace_back("--mig-monitor=all");
  for (const auto& [bit, word] : kWords)
    if ((request.capabilities & bit) != 0) program.arguments.emplace_back(word);
  for (const NamedRequirement& requirement : request.requirements)
    program.arguments.push_back("--require=" + requirement.expression);
  for (std::string& word : imex_words(request.imex)) program.arguments.push_back(std::move(word));
  program.arguments.push_back(root_path);
  program.environment = {"PATH=" + places};
  if (const auto pipe = host.get("CUDA_MPS_PIPE_DIRECTORY"))
    program.environment.push_back("CUDA_MPS_PIPE_DIRECTORY=" + std::string(*pipe));
  program.limit = kLimit;
  program.origin = "gpu = \"nvidia-container-cli\"";
  edits.programs.push_back(std::move(program));
  return edits;
}

}  // namespace situla::nvidia
