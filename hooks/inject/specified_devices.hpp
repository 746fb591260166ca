// What do devices named as the Container Device Interface does bring along? Builds without that part have
// specified_devices_absent.cpp.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/inject/edits/edits.hpp"
#include "hooks/inject/hook.hpp"

namespace situla {

/// Whether a specification of this node has devices of the kind of one of these names.
bool any_specified(const std::vector<std::string>& names, const DeviceSettings& settings);

/// ErrorKind::unsupported in a build without that part.
Result<ContainerEdits> specified_edits(const std::vector<std::string>& names, const HookContext& context);

}  // namespace situla
