// list and remove: the containers under ENROOT_DATA_PATH.
#include <istream>
#include <memory>
#include <ostream>

#include "common/base/text.hpp"
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

Result<int> list(const Context& context, bool fancy) {
  TRY_ASSIGN(const std::vector<NamedContainer> containers, list_containers(context.config));
  if (fancy) return list_running(context, containers);
  for (const NamedContainer& container : containers) context.streams.out << container.name << '\n';
  return 0;
}

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

}  // namespace

Error no_such_file(const std::string& path) {
  return {ErrorKind::not_found, "No such file or directory: " + path};
}

void add_list(CLI::App& app, Actions& actions) {
  CLI::App* command = app.add_subcommand("list", "List the containers");
  auto fancy = std::make_shared<bool>(false);
  command->add_flag("-f,--fancy", *fancy, "Show the processes that run in them");
  actions["list"] = [fancy](const Context& context) { return list(context, *fancy); };
}

void add_remove(CLI::App& app, Actions& actions) {
  struct ContainersOptions {
    bool force = false;
    std::vector<std::string> names;
  };
  CLI::App* command = app.add_subcommand("remove", "Delete containers");
  auto options = std::make_shared<ContainersOptions>();
  command->add_flag("-f,--force", options->force, "Do not ask");
  command->add_option("NAME", options->names, "Names as list prints them")->type_name("")->required();
  actions["remove"] = [options](const Context& context) -> Result<int> {
    for (const std::string& name : options->names) TRY(remove_one(context, name, options->force));
    return 0;
  };
}

}  // namespace situla::cli
