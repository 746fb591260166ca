// What is a command? A file: add_NAME() of NAME.cpp declares its options on a command of the program and says what
// running it does. CMakeLists.txt has the list of them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/arguments/arguments.hpp"
#include "hooks/cli/tool.hpp"
#include "hooks/containers/container_store.hpp"
#include "hooks/containers/request.hpp"
#include "hooks/edf/edf_search.hpp"
#include "hooks/import/import.hpp"
#include "hooks/request/request.hpp"

namespace situla::cli {

/// Of the command line that `enroot` offers; scripts compare it (COMPAT.md).
constexpr std::string_view kEnrootVersion = "4.1.2";

/// Declares a command: what --help says, and what runs with the options that are declared on the result.
template <typename Options>
std::pair<Command, Options&> add_command(Program& program, Actions& actions, const std::string& name,
                                         const std::string& description,
                                         Result<int> (*run)(const Context&, const Options&)) {
  auto options = std::make_shared<Options>();
  actions[name] = [options, run](const Context& context) { return run(context, *options); };
  return {program.add_command(name, description), *options};
}

/// For commands that pass words on to a container, of which the first ones are their own. ErrorKind::usage, "exec: PID
/// and COMMAND are required", where there are fewer than needed.
Result<void> check_words(const Context& context, const std::string& command, size_t needed, const std::string& missing);

/// A process of the container that a word means for exec: a process's number, a step, or several steps with commas
/// between them, of which the first one with a container counts.
Result<pid_t> process_to_join(const std::string& word);

/// An image that import takes, and where it is for.
struct ImageArguments {
  std::string architecture, image;

  /// --arch and the image, which has this name and this meaning in the usage.
  void declare(const Command& command, const std::string& name, const std::string& meaning);
  /// ErrorKind::usage, "COMMAND FILE: not the name of an image", for a path.
  [[nodiscard]] Result<void> check_name(const std::string& command, const std::string& hint) const;
  /// With the logins of the user: the caller holds a KeepSecrets.
  [[nodiscard]] Result<ImportRequest> request(const Context& context) const;
};

/// Into a file without a name in the directory, from the node's store where that has it.
Result<UnnamedImage> fetch_image(const Context& context, const ImageArguments& image, const std::string& directory);
/// Actions::start_fetched.
Error start_fetched(const Context& context, const WantedFetch& wanted);

/// A container of this name, of which only the image is missing; extract: as a tree. ErrorKind::exists for one that is
/// there, without --force or ENROOT_FORCE_OVERRIDE.
Result<NewContainer> new_container(const Context& context, const std::string& name, bool force, bool extract);

struct StartCommand {
  StartOptions start;
  std::string environment;  ///< --environment: name or path of an environment file
  bool dry_run = false;
  /// Of a start that has fetched what is mounted: "REFERENCE=DESCRIPTOR" of an open image; nothing behind the '=': it
  /// could not be had, and is optional.
  std::vector<std::string> fetched;
};
constexpr const char* kFetchedOption = "--fetched";
/// For every command that calls start_words().
void add_fetched_option(const Command& command, std::vector<std::string>& fetched);
/// Where the user's environment files are.
edf::EdfPlaces edf_places(const Context& context);
void declare_start(const Command& command, StartCommand& options);
/// words: what find_root() takes, and the command.
Result<int> start_words(const Context& context, const StartCommand& options, const std::vector<std::string>& words);

/// `start --conf script`; words: the container's name or an image, and the command; fetched: as of StartCommand.
Result<int> start_configured(const Context& context, const std::string& script, const std::vector<std::string>& words,
                             const std::vector<std::string>& fetched);

/// For a start whose image, or an image that it mounts, is in a registry: fetches them and starts the same again with
/// their files, which are gone with the container. The image is the first word. Only an error returns.
Error fetch_first(const Context& context, const WantedFetch& wanted);

/// What a word means: a file is an image, anything else the name of a container; also a file that is none, if there is
/// a container of that name.
Result<RootSource> find_root(const Context& context, const std::string& word);

/// situla-store, as the service user, who alone may look into the node's store: `images`, `prune`, `rm`, `pin` or
/// `verify`, and its arguments. Returns its exit code. For anybody but root and that user the store itself answers, if
/// it has a socket; ErrorKind::denied if not. On a node without that account it is about the caller's own store.
Result<int> run_store_program(const Context& context, const std::string& command, std::vector<std::string> arguments);

/// remove: what cannot be removed does not keep the others. Returns 0, or the last error; those before it are printed.
Result<int> remove_all(const Context& context, const std::vector<std::string>& names, bool force);

/// enroot's words for it.
Error no_such_file(const std::string& path);
/// The same for a squashfs file, with one that has almost that name.
Error no_such_image(const std::string& path);

/// find_container(), with the container or file that was meant, if one has almost that name.
Result<NamedContainer> find_meant_container(const Context& context, const std::string& name);

}  // namespace situla::cli
