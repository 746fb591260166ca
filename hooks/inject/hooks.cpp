#include "hooks/inject/hooks.hpp"

#include <array>

namespace situla {

Result<ContainerEdits> run_built_in_hook(BuiltInHook hook, const HookContext& context) {
  struct Entry {
    const char* name;
    Result<ContainerEdits> (*run)(const HookContext&);
  };
  static constexpr std::array<Entry, 16> kHooks = {{{"aptfix", aptfix_hook},
                                                    {"cgroups", cgroups_hook},
                                                    {"devices", devices_hook},
                                                    {"drm", drm_hook},
                                                    {"fabric", fabric_hook},
                                                    {"home", home_hook},
                                                    {"localtime", localtime_hook},
                                                    {"mellanox", mellanox_hook},
                                                    {"mig-config", mig_config_hook},
                                                    {"nvidia", nvidia_hook},
                                                    {"shadow", shadow_hook},
                                                    {"sharp", sharp_hook},
                                                    {"slurm-pmi", slurm_pmi_hook},
                                                    {"slurm-pmix", slurm_pmix_hook},
                                                    {"slurm-pytorch", slurm_pytorch_hook},
                                                    {"wanted-devices", wanted_devices_hook}}};
  static_assert(kHooks.size() == static_cast<size_t>(BuiltInHook::wanted_devices) + 1);
  const Entry& entry = kHooks[static_cast<size_t>(hook)];
  auto edits = entry.run(context);
  if (!edits)
    return fail(
        std::move(edits).error().with_context(std::string("built-in hook ") + entry.name).with_code(ErrorCode::hook));
  return edits;
}

}  // namespace situla
