// remove: containers under ENROOT_DATA_PATH go.
#include <istream>
#include <ostream>

#include "common/base/text.hpp"
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

bool confirmed(const Context& context, const std::string& path) {
  context.streams.err << "Do you really want to delete " << path << "? [y/N] " << std::flush;
  std::string answer;
  std::getline(context.streams.in, answer);
  return trim(answer) == "y" || trim(answer) == "Y";
}

Result<void> remove_one(const Context& context, const std::string& name, bool force) {
  TRY_ASSIGN(const NamedContainer container, find_container(context.config, name));
  if (!force && !confirmed(context, container.path)) return {};
  return remove_container(context.config, name, context.log);
}

struct RemoveOptions {
  bool force = false;
  std::vector<std::string> names;
};

Result<int> remove(const Context& context, const RemoveOptions& options) {
  for (const std::string& name : options.names) TRY(remove_one(context, name, options.force));
  return 0;
}

}  // namespace

void add_remove(CLI::App& app, Actions& actions) {
  const auto [command, options] = add_command(app, actions, "remove", "Delete containers", remove);
  command.add_flag("-f,--force", options.force, "Do not ask");
  command.add_option("NAME", options.names, "Names as list prints them")->type_name("")->required();
}

}  // namespace situla::cli
