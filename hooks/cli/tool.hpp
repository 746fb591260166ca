// What does one run of `situla` (or `enroot`, its second name) do? COMPAT.md section 3, with everything it touches
// passed in.
#pragma once

#include <span>

#include "hooks/cli/context.hpp"

namespace CLI {
class App;
}

namespace situla::cli {

/// Declares the commands that a program has.
using AddCommands = void (*)(CLI::App&, Actions&);
/// Those that reach no registry, and all of them (including these).
void add_local_commands(CLI::App& app, Actions& actions);
void add_all_commands(CLI::App& app, Actions& actions);
/// Whether a program with add_local_commands() alone can do this; words: without the program's name.
bool is_local_command(std::span<const char* const> words);

/// Returns the exit status: 0, 1 on error, and the command's own for `start`.
int run_tool(const Invocation& invocation, const Streams& streams, AddCommands add_commands = add_all_commands);

/// The same for a process's own arguments, environment and standard streams.
int run_process(int argc, char** argv, char** envp, AddCommands add_commands);

}  // namespace situla::cli
