// Where are the engines of this user?
#pragma once

#include "common/spec/environment.hpp"
#include "common/spec/image_reference.hpp"
#include "hooks/import/request.hpp"
#include "hooks/run/enroot_config.hpp"

namespace situla {

/// For dockerd:// and podman://. DOCKER_HOST and CONTAINER_HOST decide alone; else the usual sockets are tried, and the
/// command in PATH.
EngineSettings collect_engine_settings(ImageKind kind, const EnrootConfig& config, const Environment& environment);

}  // namespace situla
