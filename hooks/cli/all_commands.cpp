#include "hooks/cli/commands.hpp"

namespace situla::cli {

#define COMMAND(name) void add_##name(Program& program, Actions& actions);
#include "hooks/cli/network_commands.inc"
#undef COMMAND

void add_all_commands(Program& program, Actions& actions) {
  actions.examine_registry = doctor::examine_registry;
  actions.start_fetched = start_fetched;
#define COMMAND(name) add_##name(program, actions);
#include "hooks/cli/network_commands.inc"
#undef COMMAND
  add_local_commands(program, actions);
}

}  // namespace situla::cli
