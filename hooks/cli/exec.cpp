// exec: one more command in a container that runs already.
#include <climits>
#include <memory>
#include <ostream>

#include "common/base/text.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/run/attach.hpp"

namespace situla::cli {
namespace {

Result<int> exec(const Context& context, const std::vector<std::string>& environment,
                 const std::vector<std::string>& words) {
  const std::string help = context.invocation.program + " exec --help";
  if (words.size() < 2) return fail(Error(ErrorKind::usage, "exec: PID and COMMAND are required").with_hint(help));
  if (words.front().starts_with('-'))
    return fail(Error(ErrorKind::usage, "exec: unknown option " + printable(words.front())).with_hint(help));
  const auto pid = parse_unsigned(words.front());
  if (!pid || *pid == 0 || *pid > INT_MAX)
    return fail(Error(ErrorKind::usage, "Invalid argument: " + printable(words.front()))
                    .with_hint("a process is meant by its number, as list --fancy shows it"));
  ExecRequest request;
  request.pid = static_cast<pid_t>(*pid);
  request.environment = environment;
  request.host = context.invocation.environment;
  request.command.assign(words.begin() + 1, words.end());
  context.streams.out.flush();
  return exec_in_container(request);
}

}  // namespace

void add_exec(CLI::App& app, Actions& actions) {
  CLI::App* command =
      app.add_subcommand("exec", "Run a command in a running container: exec [OPTIONS] PID COMMAND [ARG...]");
  auto environment = std::make_shared<std::vector<std::string>>();
  command->prefix_command();  // what follows the number belongs to the container
  command->add_option("-e,--env", *environment, "Set a variable for the command; without a value, to the caller's")
      ->type_name("KEY[=VALUE]")
      ->allow_extra_args(false);
  actions["exec"] = [environment, command](const Context& context) {
    return exec(context, *environment, command->remaining());
  };
}

}  // namespace situla::cli
