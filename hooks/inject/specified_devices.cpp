#include <algorithm>

#include "hooks/inject/cdi/resolve.hpp"
#include "hooks/inject/device_sources.hpp"

namespace situla {

bool any_specified(const std::vector<std::string>& names, const DeviceSettings& settings) {
  const CdiRegistry registry = CdiRegistry::load(settings.cdi_directories);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return !registry.names_of_kind(name.substr(0, name.find('='))).empty();
  });
}

Result<ContainerEdits> specified_edits(const std::vector<std::string>& names, const HookContext& context) {
  TRY_ASSIGN(const HostRoots roots,
             HostRoots::open(context.device_settings.driver_root, context.device_settings.device_root));
  return cdi_edits(names, CdiRegistry::load(context.device_settings.cdi_directories),
                   CdiContext{context.root, roots, context.device_settings, {}}, context.log);
}

}  // namespace situla
