// Which commands are there? One function each: it declares its options on a CLI11 subcommand and says what running it
// does.
#pragma once

#include <string>

#include <CLI/App.hpp>

#include "common/base/result.hpp"
#include "hooks/cli/context.hpp"
#include "hooks/cli/tool.hpp"
#include "hooks/containers/container_store.hpp"
#include "hooks/containers/request.hpp"
#include "hooks/doctor/registry_section.hpp"

namespace situla::cli {

void add_import(CLI::App& app, Actions& actions);
void add_digest(CLI::App& app, Actions& actions);
void add_inspect(CLI::App& app, Actions& actions);
void add_load(CLI::App& app, Actions& actions);
void add_create(CLI::App& app, Actions& actions);
void add_bundle(CLI::App& app, Actions& actions);
void add_export(CLI::App& app, Actions& actions);
void add_start(CLI::App& app, Actions& actions);
void add_batch(CLI::App& app, Actions& actions);
void add_exec(CLI::App& app, Actions& actions);
void add_inject(CLI::App& app, Actions& actions);
void add_list(CLI::App& app, Actions& actions);
void add_remove(CLI::App& app, Actions& actions);
void add_info(CLI::App& app, Actions& actions);
void add_version(CLI::App& app, Actions& actions);

/// What `doctor --registry NAME` finds out; null in a program that reaches no registry.
using ExamineRegistry = decltype(&doctor::examine_registry);
void add_doctor(CLI::App& app, Actions& actions, ExamineRegistry examine_registry);

/// All of add_local_commands() but doctor.
void add_commands_without_doctor(CLI::App& app, Actions& actions);

/// A container of this name, of which only the image is missing; extract: as a tree. ErrorKind::exists for one that is
/// there, without --force or ENROOT_FORCE_OVERRIDE.
Result<NewContainer> new_container(const Context& context, const std::string& name, bool force, bool extract);

/// `start --conf script`; words: the container's name or an image, and the command.
Result<int> start_configured(const Context& context, const std::string& script, std::vector<std::string> words);

/// What a word of start's means: a file is an image, anything else the name of a container.
Result<RootSource> find_root(const Context& context, const std::string& word);

/// The table of `list --fancy`, for these containers and what else runs.
Result<int> list_running(const Context& context, const std::vector<NamedContainer>& containers);

/// enroot's words for it.
Error no_such_file(const std::string& path);

}  // namespace situla::cli
