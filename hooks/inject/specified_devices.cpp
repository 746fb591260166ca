#include "hooks/inject/specified_devices.hpp"

#include <algorithm>

#include "hooks/inject/cdi/resolve.hpp"
#include "hooks/inject/host_roots.hpp"

namespace situla {

bool any_specified(const std::vector<std::string>& names, const DeviceSettings& settings) {
  const CdiRegistry registry = CdiRegistry::load(settings.cdi_directories);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return !registry.names_of_kind(name.substr(0, name.find('='))).empty();
  });
}

Result<ContainerEdits> specified_edits(const std::vector<std::string>& names, const DeviceScene& scene) {
  TRY_ASSIGN(const HostRoots roots, HostRoots::open(scene.settings.driver_root, scene.settings.device_root));
  return cdi_edits(names, CdiRegistry::load(scene.settings.cdi_directories),
                   CdiContext{scene.root, roots, scene.settings, {}}, scene.log);
}

}  // namespace situla
