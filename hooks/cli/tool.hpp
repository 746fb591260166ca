// What does one run of `situla` (or `enroot`, its second name) do? COMPAT.md section 3, with everything it touches
// passed in.
#pragma once

#include <array>
#include <functional>
#include <iosfwd>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "hooks/config/enroot_config.hpp"
#include "hooks/doctor/registry_section.hpp"
#include "hooks/run/mounted_images.hpp"

namespace situla {
class Program;
}

namespace situla::cli {

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

struct Context;
/// What a start needs of registries.
struct WantedFetch {
  std::string image;                 ///< the container's; empty: it is there
  std::vector<WantedImage> mounted;  ///< in the container
};
/// Fetches images, as import does, and starts again, with their files; only an error returns. Null in a program that
/// reaches no registry.
using StartFetched = Error (*)(const Context& context, const WantedFetch& wanted);

/// What every command may use.
struct Context {
  const Invocation& invocation;
  const Streams& streams;
  LogSink& log;
  const EnrootConfig& config;
  const std::vector<std::string>& words;  ///< behind the options of a command that passes words on to a container
  StartFetched start_fetched = nullptr;
};

/// As an error is printed that ends a command.
void report_error(const Context& context, const Error& error);

/// What podman and docker call what is there.
struct Alias {
  std::string_view name, command, option;
};
constexpr std::array<Alias, 3> kAliases = {{{"ls", "list", ""}, {"ps", "list", "--fancy"}, {"pull", "import", ""}}};

/// By subcommand name: the exit status, or an error that is printed by the tool.
struct Actions : std::map<std::string, std::function<Result<int>(const Context&)>, std::less<>> {
  /// What `doctor --registry NAME` finds out; null in a program that reaches no registry.
  decltype(&doctor::examine_registry) examine_registry = nullptr;
  StartFetched start_fetched = nullptr;
};

/// Becomes situla-full, which has all commands. words: without the program's name. Only an error returns.
Error become_full_program(const std::string& program, const std::vector<std::string>& words);

/// Declares the commands that a program has.
using AddCommands = void (*)(Program&, Actions&);
/// Those that reach no registry, and all of them (including these).
void add_local_commands(Program& program, Actions& actions);
void add_all_commands(Program& program, Actions& actions);
/// Whether a program with add_local_commands() alone can do this; words: without the program's name.
bool is_local_command(std::span<const char* const> words);

/// Returns the exit status: 0, 1 on error, and the command's own for `start`.
int run_tool(const Invocation& invocation, const Streams& streams, AddCommands add_commands = add_all_commands);

/// The same for a process's own arguments, environment and standard streams.
int run_process(int argc, char** argv, char** envp, AddCommands add_commands);

}  // namespace situla::cli
