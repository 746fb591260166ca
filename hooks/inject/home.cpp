#include "hooks/inject/hooks.hpp"

namespace situla {

Result<Proposal> home_hook(const InjectContext& context) {
  Proposal proposal;
  if (!context.mount_home) return proposal;
  std::string home = context.host.get_or("HOME", "");
  if (home.empty()) home = context.user.home;
  MountFields fields;
  fields.source = home;
  fields.target = context.remap_root ? "/root" : home;
  fields.type = "none";
  fields.options = {"x-create=dir", "bind", "rw", "nosuid"};
  TRY_ASSIGN(MountStep step, make_step(fields, "built-in hook home"));
  proposal.environment.set("HOME", step.target);
  proposal.mounts.push_back(std::move(step));
  return proposal;
}

}  // namespace situla
