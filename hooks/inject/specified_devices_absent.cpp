#include "common/base/parts.hpp"
#include "common/base/text.hpp"
#include "hooks/inject/device_sources.hpp"

namespace situla {

bool any_specified(const std::vector<std::string>&, const DeviceSettings&) {
  return false;
}

Result<ContainerEdits> specified_edits(const std::vector<std::string>& names, const HookContext&) {
  return fail(not_built_in(Part::cdi, "find " + join(names, ", ")));
}

}  // namespace situla
