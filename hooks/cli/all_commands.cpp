#include "hooks/cli/commands.hpp"

namespace situla::cli {

void add_all_commands(CLI::App& app, Actions& actions) {
  add_import(app, actions);
  add_digest(app, actions);
  add_inspect(app, actions);
  add_load(app, actions);
  add_bundle(app, actions);
  add_commands_without_doctor(app, actions);
  add_doctor(app, actions, doctor::examine_registry);
}

}  // namespace situla::cli
