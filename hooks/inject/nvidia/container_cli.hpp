// How does NVIDIA's own tool do it (gpu = "nvidia-container-cli")? It is run as enroot's 98-nvidia.sh runs it.
#pragma once

#include <string>

#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "hooks/inject/edits/edits.hpp"
#include "hooks/inject/nvidia/variables.hpp"

namespace situla::nvidia {

/// nvidia-container-cli, found by the job's PATH, with what the request means in its words. It enters the container by
/// the mount namespace of the process that starts it, so that must be the one in which the root is mounted.
/// ErrorKind::not_found when the tool is not there and the job asks; when only the image does, there is nothing to do.
Result<ContainerEdits> container_cli_edits(const DriverRequest& request, const std::string& root_path,
                                           const Environment& host);

}  // namespace situla::nvidia
