#include "hooks/inject/hooks.hpp"

namespace situla {

Result<Proposal> aptfix_hook(const InjectContext& context) {
  Proposal proposal;
  if (!context.remap_root || !context.root.exists("/etc/debian_version")) return proposal;
  proposal.files.push_back(
      {FileChange::Kind::write, "/etc/apt/apt.conf.d/enroot", "APT::Sandbox::User \"root\";\n", 0644});
  return proposal;
}

}  // namespace situla
