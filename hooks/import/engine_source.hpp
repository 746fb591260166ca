// How is an image read that an engine on this machine has? As the archive that `docker save` would make of it.
#pragma once

#include <memory>

#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/image_reference.hpp"
#include "hooks/import/image_source.hpp"
#include "hooks/run/enroot_config.hpp"

namespace situla {

/// For dockerd:// and podman://. DOCKER_HOST and CONTAINER_HOST decide alone; else the usual sockets are tried, and the
/// command in PATH.
EngineSettings collect_engine_settings(ImageKind kind, const EnrootConfig& config, const Environment& environment);

/// The archive goes to a nameless file in ENROOT_TEMP_PATH when the image is resolved: layers are read from the top
/// down, and an engine gives them in another order.
Result<std::unique_ptr<ImageSource>> open_engine_source(const ImportRequest& request, Progress& progress);

}  // namespace situla
