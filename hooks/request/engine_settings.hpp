// Where are the engines of this user?
#pragma once

#include <string>
#include <vector>

#include "common/spec/environment.hpp"
#include "common/spec/image_reference.hpp"
#include "hooks/config/enroot_config.hpp"

namespace situla {

/// How an engine on this machine can be asked. Only processes of the user do that: none of it is ever serialized.
struct EngineSettings {
  std::vector<std::string> sockets;      ///< of its API, to be tried in this order
  std::string program;                   ///< absolute path of its command, for when no socket serves; or empty
  std::vector<std::string> environment;  ///< for the program, "NAME=VALUE"
  std::string temp_directory;            ///< ENROOT_TEMP_PATH
};

/// For dockerd:// and podman://. DOCKER_HOST and CONTAINER_HOST decide alone; else the usual sockets are tried, and the
/// command in PATH.
EngineSettings collect_engine_settings(ImageKind kind, const EnrootConfig& config, const Environment& environment);

}  // namespace situla
