#include "hooks/request/engine_settings.hpp"

#include <unistd.h>

#include "common/sys/process/run_program.hpp"

namespace situla {
namespace {

constexpr std::string_view kUnix = "unix://";
constexpr const char* kDockerSocket = "/var/run/docker.sock";
constexpr const char* kPodmanSocket = "/run/podman/podman.sock";
constexpr const char* kUsualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where an engine's sockets are when nobody says it.
std::vector<std::string> usual_sockets(ImageKind kind, const Environment& environment, bool has_program) {
  std::vector<std::string> sockets;
  const std::string runtime = environment.get_or("XDG_RUNTIME_DIR", "");
  if (kind == ImageKind::docker_daemon) {
    sockets.emplace_back(kDockerSocket);
    if (!runtime.empty()) sockets.push_back(runtime + "/docker.sock");
    return sockets;
  }
  if (!runtime.empty()) sockets.push_back(runtime + "/podman/podman.sock");
  // Root's images. Whoever may not have them has images of their own, which the command knows.
  if (!has_program || access(kPodmanSocket, W_OK) == 0) sockets.emplace_back(kPodmanSocket);
  return sockets;
}

}  // namespace

EngineSettings collect_engine_settings(ImageKind kind, const EnrootConfig& config, const Environment& environment) {
  const bool podman = kind == ImageKind::podman;
  EngineSettings settings;
  settings.temp_directory = config.temp_path();
  const std::string host = environment.get_or(podman ? "CONTAINER_HOST" : "DOCKER_HOST", "");
  if (host.starts_with(kUnix)) {
    settings.sockets = {host.substr(kUnix.size())};
    return settings;
  }
  Environment complete = environment;
  if (!complete.has("PATH")) complete.set("PATH", kUsualPath);
  settings.program = find_program(podman ? "podman" : "docker", complete.get_or("PATH", ""));
  for (const auto& [name, value] : complete.entries()) settings.environment.push_back(name + "=" + value);
  const std::string context = environment.get_or("DOCKER_CONTEXT", "");
  const bool elsewhere = !host.empty() || (!podman && !context.empty() && context != "default");
  if (!elsewhere) settings.sockets = usual_sockets(kind, environment, !settings.program.empty());
  return settings;
}

}  // namespace situla
