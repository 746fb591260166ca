// What has to change in a container so that it can use NVIDIA's driver and the GPUs that were asked for?
#pragma once

#include "hooks/inject/nvidia/plan_parts.hpp"

namespace situla::nvidia {

/// Only looks; edits/apply.hpp makes it true. Nothing for a request that wants nothing. Errors are those of
/// nvidia-container-cli: a GPU that is not there, a requirement that does not hold.
Result<ContainerEdits> plan(const DriverRequest& request, const Inventory& inventory, const PlanContext& context,
                            LogSink& log);

/// The answer on a node without: an image that asks for GPUs by itself starts without them, as CUDA images do on any
/// node, and the log says so; a job that asks gets an error (ErrorKind::not_found) that says what is missing.
Result<void> without_driver(const DriverRequest& request, const HostRoots& roots, LogSink& log);

}  // namespace situla::nvidia
