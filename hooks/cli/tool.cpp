#include "hooks/cli/tool.hpp"

#include <algorithm>
#include <csignal>
#include <iostream>

#include <unistd.h>

#include "common/base/text.hpp"
#include "common/base/thrown.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"
#include "hooks/arguments/arguments.hpp"
#include "hooks/cli/stream_log.hpp"

namespace situla::cli {
namespace {

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

/// Of the first command among the words, or of the program.
std::string usage(Program& program, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (auto text = word == "help" ? std::nullopt : program.help(word)) return *text;
  return program.help();
}

Result<int> run(const Invocation& invocation, const Streams& streams, AddCommands add_commands, LogSink& log) {
  const std::vector<std::string> arguments = without_alias(invocation.arguments);
  Program program(invocation.program,
                  "Containers from images in registries and squashfs files, for Slurm jobs and by hand.");
  Actions actions;
  add_commands(program, actions);
  program.add_command("help", "Print the usage");
  program.footer("Also: ls is list, ps is list --fancy, pull is import, rm removes containers as well as images.");
  if (arguments.empty()) {
    streams.out << program.help();
    return 1;
  }
  if (asks_for_help(arguments.front())) {
    streams.out << usage(program, arguments);
    return 0;
  }
  TRY_ASSIGN(const CommandLine asked, program.parse(arguments));
  if (asked.help) {
    streams.out << usage(program, {asked.command});
    return 0;
  }
  TRY_ASSIGN(const EnrootConfig config, EnrootConfig::load(invocation.environment, log));
  // These are to find out what is wrong.
  if (asked.command != "info" && asked.command != "doctor" && asked.command != "version") TRY(config.check_flags(log));
  return actions.at(asked.command)(Context{invocation, streams, log, config, asked.words, actions.start_fetched});
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
