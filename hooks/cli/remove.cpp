// remove: containers under ENROOT_DATA_PATH go.
#include <algorithm>
#include <istream>
#include <ostream>

#include "common/base/text.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/containers/running_processes.hpp"

namespace situla::cli {
namespace {

Result<bool> is_confirmed(const Context& context, const NamedContainer& container) {
  context.streams.err << "Do you really want to delete " << container.path << "? [y/N] " << std::flush;
  std::string answer;
  if (!std::getline(context.streams.in, answer)) {
    context.streams.err << '\n';
    return fail(Error(ErrorKind::usage, "remove " + printable(container.name) + ": nobody answers")
                    .with_code(ErrorCode::option)
                    .with_hint("--force does not ask"));
  }
  return trim(answer) == "y" || trim(answer) == "Y";
}

/// "process 4711 (python) of job 12".
std::string process_text(const RunningProcess& process) {
  return "process " + std::to_string(process.pid) + " (" + process.comm + ")" +
         (process.job ? " of job " + std::to_string(*process.job) : "");
}

/// As with enroot it can be removed all the same; who forgot that it runs can still end it, or answer "n".
void warn_of_use(const Context& context, const NamedContainer& container) {
  constexpr size_t kMostShown = 3;
  const auto known = KnownContainer::of(container);
  const auto running = known ? running_processes({*known}) : Result<std::vector<RunningProcess>>();
  if (!running) return;
  std::vector<std::string> users;
  for (const RunningProcess& process : *running)
    if (process.container == container.path) users.push_back(process_text(process));
  if (users.empty()) return;
  const size_t more = users.size() - std::min(users.size(), kMostShown);
  users.resize(users.size() - more);
  context.log.warning(Error(ErrorKind::failure, printable(container.name) + " is in use: " + join(users, ", ") +
                                                    (more > 0 ? " and " + std::to_string(more) + " more" : ""))
                          .with_code(ErrorCode::container_in_use)
                          .with_hint("programs in it lose their files when it is removed; list --fancy shows them")
                          .text());
}

Result<void> remove_one(const Context& context, const std::string& name, bool force) {
  TRY_ASSIGN(const NamedContainer container, find_meant_container(context, name));
  warn_of_use(context, container);
  if (!force) {
    TRY_ASSIGN(const bool confirmed, is_confirmed(context, container));
    if (!confirmed) return {};
  }
  return remove_container(context.config, name, context.log);
}

struct RemoveOptions {
  bool force = false;
  std::vector<std::string> names;
};

Result<int> remove(const Context& context, const RemoveOptions& options) {
  return remove_all(context, options.names, options.force);
}

}  // namespace

Result<int> remove_all(const Context& context, const std::vector<std::string>& names, bool force) {
  force = force || context.config.flag("ENROOT_FORCE_OVERRIDE");
  std::optional<Error> last;
  for (const std::string& name : names) {
    auto removed = remove_one(context, name, force);
    if (removed) continue;
    if (last) report_error(context, *last);
    last = std::move(removed).error();
  }
  return last ? fail(std::move(*last)) : Result<int>(0);
}

void add_remove(Program& program, Actions& actions) {
  const auto [command, options] = add_command(program, actions, "remove", "Delete containers", remove);
  command.flag("-f,--force", options.force, "Do not ask");
  command.option("NAME", options.names, "Names as list prints them").value("").required();
}

}  // namespace situla::cli
