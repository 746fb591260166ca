#include "hooks/inject/hooks.hpp"

#include <array>

namespace situla {

Result<ContainerEdits> run_built_in_hook(BuiltInHook hook, const HookContext& context) {
  struct Entry {
    BuiltInHook hook;
    const char* name;
    Result<ContainerEdits> (*run)(const HookContext&);
  };
  static constexpr std::array<Entry, 14> kHooks = {
      {{BuiltInHook::aptfix, "aptfix", aptfix_hook},
       {BuiltInHook::cgroups, "cgroups", cgroups_hook},
       {BuiltInHook::devices, "devices", devices_hook},
       {BuiltInHook::home, "home", home_hook},
       {BuiltInHook::localtime, "localtime", localtime_hook},
       {BuiltInHook::mellanox, "mellanox", mellanox_hook},
       {BuiltInHook::mig_config, "mig-config", mig_config_hook},
       {BuiltInHook::nvidia, "nvidia", nvidia_hook},
       {BuiltInHook::shadow, "shadow", shadow_hook},
       {BuiltInHook::sharp, "sharp", sharp_hook},
       {BuiltInHook::slurm_pmi, "slurm-pmi", slurm_pmi_hook},
       {BuiltInHook::slurm_pmix, "slurm-pmix", slurm_pmix_hook},
       {BuiltInHook::slurm_pytorch, "slurm-pytorch", slurm_pytorch_hook},
       {BuiltInHook::wanted_devices, "wanted-devices", wanted_devices_hook}}};
  for (const Entry& entry : kHooks) {
    if (entry.hook != hook) continue;
    auto edits = entry.run(context);
    if (!edits) return fail(std::move(edits).error().with_context(std::string("built-in hook ") + entry.name));
    return edits;
  }
  return ContainerEdits();
}

}  // namespace situla
