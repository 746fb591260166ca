#include "hooks/cli/tool.hpp"

#include <algorithm>
#include <csignal>
#include <iostream>

#include <unistd.h>

#include <CLI/CLI.hpp>

#include "common/base/text.hpp"
#include "common/base/thrown.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"
#include "hooks/cli/stream_log.hpp"
#include "hooks/cli/usage.hpp"

namespace situla::cli {
namespace {

/// CLI11 takes "--" for the end of a command that passes its words on: it goes when it ends the options only.
void drop_separator(const CLI::App& app, std::vector<std::string>& arguments) {
  const CLI::App* command = app.get_subcommand(arguments.front());
  if (!command->get_prefix_command()) return;
  for (size_t i = 1; i < arguments.size() && arguments[i].starts_with('-'); ++i) {
    if (arguments[i] == "--") {
      arguments.erase(arguments.begin() + static_cast<ptrdiff_t>(i));
      return;
    }
    const CLI::Option* option = command->get_option_no_throw(arguments[i]);
    if (option != nullptr && option->get_items_expected_max() > 0) ++i;
  }
}

enum class Wanted { action, help };

/// CLI11 throws; its exceptions end here.
Result<Wanted> parse(CLI::App& app, std::vector<std::string> arguments) {
  try {
    drop_separator(app, arguments);
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
    return Wanted::action;
  } catch (const CLI::CallForHelp&) {
    return Wanted::help;
  } catch (const CLI::Error& error) {
    return fail(ErrorKind::usage, error.what());
  }
}

std::vector<std::string> without_alias(std::vector<std::string> words) {
  const auto* const alias = std::find_if(kAliases.begin(), kAliases.end(), [&](const Alias& each) {
    return !words.empty() && each.name == words.front();
  });
  if (alias == kAliases.end()) return words;
  words.front() = alias->command;
  if (!alias->option.empty()) words.insert(words.begin() + 1, std::string(alias->option));
  return words;
}

/// Instead of a command. Behind one it is the command's own option, and what `start NAME ls --help` asks is for ls.
bool asks_for_help(const std::string& first) {
  return first == "-h" || first == "--help" || first == "help";
}

std::string usage(CLI::App& app, const std::vector<std::string>& arguments) {
  for (const std::string& word : arguments)
    for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
      if (word != "help" && command->get_name() == word) return command->help(app.get_name());
  return app.help();
}

void declare(CLI::App& app, Actions& actions, AddCommands add_commands) {
  app.require_subcommand(1);
  // Of a value that is given twice the last one counts, as in enroot: an alias has one, and its user another.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.set_help_flag();
  add_commands(app, actions);
  app.add_subcommand("help", "Print the usage");
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    command->set_help_flag("-h,--help", "Print the usage");
    command->group("Commands");
  }
}

Result<int> run(const Invocation& invocation, const Streams& streams, AddCommands add_commands, LogSink& log) {
  const std::vector<std::string> arguments = without_alias(invocation.arguments);
  CLI::App app("Containers from images in registries and squashfs files, for Slurm jobs and by hand.",
               invocation.program);
  app.formatter(usage_formatter());  // before the commands, which take it over
  Actions actions;
  declare(app, actions, add_commands);
  app.footer("Also: ls is list, ps is list --fancy, pull is import, rm removes containers as well as images.");
  if (arguments.empty()) {
    streams.out << app.help();
    return 1;
  }
  if (asks_for_help(arguments.front())) {
    streams.out << usage(app, arguments);
    return 0;
  }
  TRY(check_command(app, arguments));
  const std::string& command = arguments.front();
  auto parsed = parse(app, arguments);
  if (parsed && *parsed == Wanted::help) {
    streams.out << usage(app, {command});
    return 0;
  }
  const CLI::App& chosen = *app.get_subcommand(command);
  TRY(check_options(app, chosen));
  if (!parsed)
    return fail(std::move(parsed)
                    .error()
                    .with_context(command)
                    .with_code(ErrorCode::option)
                    .with_hint(invocation.program + " " + command + " --help"));
  TRY_ASSIGN(const EnrootConfig config, EnrootConfig::load(invocation.environment, log));
  // These are to find out what is wrong.
  if (command != "info" && command != "doctor" && command != "version") TRY(config.check_flags(log));
  return actions.at(command)(Context{invocation, streams, log, config, chosen.remaining(), actions.start_fetched});
}

}  // namespace

void report_error(const Context& context, const Error& error) {
  context.log.error(error.line());
  if (!error.hint().empty()) context.streams.err << "hint: " << error.hint() << std::endl;
}

Error become_full_program(const std::string& program, const std::vector<std::string>& words) {
  const auto path = find_installed("situla-full");
  if (!path) return path.error();
  std::vector<std::string> arguments = words;
  arguments.insert(arguments.begin(), program);
  return exec_program(*path, arguments);
}

int run_tool(const Invocation& invocation, const Streams& streams, AddCommands add_commands) {
  StreamLog log(streams.err, invocation.environment.has("SITULA_DEBUG"));
  const Result<int> status = with_thrown_errors([&] { return run(invocation, streams, add_commands, log); });
  streams.out.flush();
  if (status) return *status;
  log.error(status.error().line());
  if (!status.error().hint().empty()) streams.err << "hint: " << status.error().hint() << std::endl;
  return 1;
}

int run_process(int argc, char** argv, char** envp, AddCommands add_commands) {
  // A caller that ignores its children (perl, some daemons) has left us that, and no child's end would be seen.
  (void)std::signal(SIGCHLD, SIG_DFL);
  std::string_view name = argc > 0 ? argv[0] : "situla";
  name.remove_prefix(name.rfind('/') + 1);
  Invocation invocation{name == "enroot" ? "enroot" : "situla", {}, Environment::from_envp(envp)};
  for (int i = 1; i < argc; ++i) invocation.arguments.emplace_back(argv[i]);
  const std::string terminal = invocation.environment.get_or("TERM", "");
  const bool draws = isatty(STDERR_FILENO) != 0 && !terminal.empty() && terminal != "dumb";
  return run_tool(invocation, {std::cin, std::cout, std::cerr, draws ? STDERR_FILENO : -1}, add_commands);
}

}  // namespace situla::cli
