// Which commands are there? One function each: it declares its options on a CLI11 subcommand and says what running it
// does.
#pragma once

#include <functional>
#include <map>
#include <string>

#include <CLI/App.hpp>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "hooks/cli/tool.hpp"
#include "hooks/run/enroot_config.hpp"

namespace situla::cli {

/// What every command may use.
struct Context {
  const Invocation& invocation;
  const Streams& streams;
  LogSink& log;
  const EnrootConfig& config;
};

/// The exit status, or an error that is printed by the tool.
using Action = std::function<Result<int>(const Context&)>;
/// By subcommand name.
struct Actions : std::map<std::string, Action, std::less<>> {};

void add_import(CLI::App& app, Actions& actions);
void add_digest(CLI::App& app, Actions& actions);
void add_inspect(CLI::App& app, Actions& actions);
void add_load(CLI::App& app, Actions& actions);
void add_create(CLI::App& app, Actions& actions);
void add_start(CLI::App& app, Actions& actions);
void add_list(CLI::App& app, Actions& actions);
void add_remove(CLI::App& app, Actions& actions);
void add_info(CLI::App& app, Actions& actions);
void add_version(CLI::App& app, Actions& actions);
void add_doctor(CLI::App& app, Actions& actions);

/// A container's directory under ENROOT_DATA_PATH. A name is one path component and does not begin with a dot.
Result<std::string> container_path(const EnrootConfig& config, std::string_view name);

/// Its path when a container of this name may be made: it does not exist, or may be replaced (force, or
/// ENROOT_FORCE_OVERRIDE).
Result<std::string> new_container(const Context& context, std::string_view name, bool force);
/// Extracts a squashfs image into it; appears when it is whole. image_name: for errors.
Result<void> fill_container(const Context& context, const std::string& path, bool force, int image,
                            const std::string& image_name);

/// enroot's words for it: "File already exists: PATH".
Error already_exists(const std::string& path);
Error no_such_file(const std::string& path);

}  // namespace situla::cli
