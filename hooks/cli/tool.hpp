// What does one run of `situla` (or `enroot`, its second name) do? COMPAT.md section 3, with everything it touches
// passed in.
#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/spec/environment.hpp"

namespace CLI {
class App;
}

namespace situla::cli {

struct Actions;
/// Declares the commands that a program has.
using AddCommands = void (*)(CLI::App&, Actions&);
/// Those that reach no registry, and all of them (including these).
void add_local_commands(CLI::App& app, Actions& actions);
void add_all_commands(CLI::App& app, Actions& actions);
/// Whether a program with add_local_commands() alone can do this; words: without the program's name.
bool is_local_command(std::span<const char* const> words);

/// Not owned. Results and usage go to out; log lines, hints and prompts to err.
struct Streams {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  int terminal = -1;  ///< descriptor of err's terminal if it can draw progress bars; -1: none
};

struct Invocation {
  std::string program;                 ///< "situla" or "enroot": the name in usage; everything else is the same
  std::vector<std::string> arguments;  ///< without the program's name
  Environment environment;
};

/// Returns the exit status: 0, 1 on error, and the command's own for `start`.
int run_tool(const Invocation& invocation, const Streams& streams, AddCommands add_commands = add_all_commands);

/// The same for a process's own arguments, environment and standard streams.
int run_process(int argc, char** argv, char** envp, AddCommands add_commands);

}  // namespace situla::cli
