#include "hooks/inject/hooks.hpp"

namespace situla {

Result<ContainerEdits> aptfix_hook(const HookContext& context) {
  ContainerEdits edits;
  if (!context.remap_root || !context.root.exists("/etc/debian_version")) return edits;
  edits.files.push_back(
      {FileChange::Kind::write, "/etc/apt/apt.conf.d/enroot", "APT::Sandbox::User \"root\";\n", 0644});
  return edits;
}

}  // namespace situla
