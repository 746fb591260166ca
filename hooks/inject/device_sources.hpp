// What do devices bring along? NVIDIA's GPUs by their driver, and those named as the Container Device Interface does.
// Builds without one of these parts have driver_devices_absent.cpp or specified_devices_absent.cpp.
#pragma once

#include <string>
#include <vector>

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

/// Whether a specification of this node has devices of the kind of one of these names.
bool any_specified(const std::vector<std::string>& names, const DeviceSettings& settings);

/// ErrorKind::unsupported in a build without that part.
Result<ContainerEdits> specified_edits(const std::vector<std::string>& names, const HookContext& context);

}  // namespace situla
