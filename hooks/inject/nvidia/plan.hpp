// What has to change in a container so that it can use NVIDIA's driver and the GPUs that were asked for?
#pragma once

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/inject/edits/edits.hpp"
#include "hooks/inject/host_roots.hpp"
#include "hooks/inject/nvidia/inventory.hpp"
#include "hooks/inject/nvidia/selection.hpp"
#include "hooks/inject/nvidia/variables.hpp"

namespace situla::nvidia {

struct PlanContext {
  const HostRoots& roots;
  const RootDir& root;             ///< the container's, /proc and /dev mounted
  const Environment& environment;  ///< the job's: CUDA_MPS_PIPE_DIRECTORY
  const DeviceSettings& settings;  ///< hide_gpus, cuda_compat
  DeviceAccess access;             ///< kernel_access(roots.devices)
};

/// Only looks; edits/apply.hpp makes it true. Nothing for a request that wants nothing. Errors are those of
/// nvidia-container-cli: a GPU that is not there, a requirement that does not hold.
Result<ContainerEdits> plan(const DriverRequest& request, const Inventory& inventory, const PlanContext& context,
                            LogSink& log);

/// The answer on a node without: an image that asks for GPUs by itself starts without them, as CUDA images do on any
/// node, and the log says so; a job that asks gets an error (ErrorKind::not_found) that says what is missing.
Result<void> without_driver(const DriverRequest& request, const HostRoots& roots, LogSink& log);

}  // namespace situla::nvidia
