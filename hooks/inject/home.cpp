#include "hooks/inject/hooks.hpp"

namespace situla {

Result<ContainerEdits> home_hook(const HookContext& context) {
  ContainerEdits edits;
  if (!context.mount_home) return edits;
  std::string home = context.host.get_or("HOME", "");
  if (home.empty()) home = context.user.home;
  const std::string inside = context.remap_root ? "/root" : home;
  edits.environment.set("HOME", inside);
  edits.mounts_after_hooks.push_back({.source = home,
                                      .target = inside,
                                      .create = CreateTarget::directory,
                                      .flags = {.no_suid = true},
                                      .origin = "built-in hook home"});
  return edits;
}

}  // namespace situla
