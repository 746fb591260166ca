// What do the CDI devices that a job names change in its container? Their specifications as edits that an ordinary
// user can apply; what needs privilege is told.
#pragma once

#include <string>
#include <vector>

#include "hooks/inject/cdi/context.hpp"
#include "hooks/inject/cdi/registry.hpp"

namespace situla {

/// By the rules of CDI 1.1.0: the edits of each specification once, before those of its first device; then each device.
/// The environment has what the files set, NVIDIA_VISIBLE_DEVICES=void among it, which says that nobody else shall
/// add the GPUs. Of a device called "all" only what the step may use is taken; any other name of which something is
/// denied is an error.
Result<ContainerEdits> cdi_edits(const std::vector<std::string>& names, const CdiRegistry& registry,
                                 const CdiContext& context, LogSink& log);

}  // namespace situla
