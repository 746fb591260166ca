// What do NVIDIA's GPUs and their driver bring along, other than by a specification? Builds without that part have
// driver_devices_absent.cpp.
#pragma once

#include <string>

#include "common/base/result.hpp"
#include "hooks/inject/edits/edits.hpp"
#include "hooks/inject/edits/host_roots.hpp"
#include "hooks/inject/hook.hpp"
#include "hooks/inject/nvidia/variables.hpp"

namespace situla {

/// Why no container can have one, "this node has no driver for them"; empty when a driver is loaded.
std::string why_no_gpus(const HostRoots& roots);

/// By the driver's files, or NVIDIA's own tool, as the site says. Without a driver only a job that asks for GPUs is an
/// error: images also have to start where there are none.
Result<ContainerEdits> driver_edits(const nvidia::DriverRequest& request, const HookContext& context);

}  // namespace situla
