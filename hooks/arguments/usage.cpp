#include "hooks/arguments/usage.hpp"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "common/base/text.hpp"

namespace situla {
namespace {

/// "what it does: how it is called".
struct Description {
  std::string text, call;
};

Description description_of(const CLI::App& command) {
  const std::string description = command.get_description();
  const auto parts = cut(description, ':');
  if (!command.get_prefix_command() || !parts) return {description, ""};
  return {std::string(parts->first), std::string(trim(parts->second))};
}

class Formatter final : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    const std::string call = description_of(*app).call;
    if (call.empty()) return CLI::Formatter::make_usage(app, std::move(name));
    return "Usage: " + name.substr(0, name.rfind(' ') + 1) + call + "\n";
  }
  std::string make_description(const CLI::App* app) const override {
    const Description description = description_of(*app);
    if (description.call.empty()) return CLI::Formatter::make_description(app);
    return description.text + "\n";
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::string line = "  " + command->get_name();
    line.resize(std::max(line.size() + 1, get_column_width()), ' ');
    return line + description_of(*command).text + "\n";
  }
};

/// The dashes of options are in `prefix` alone, so that they make no word alike.
std::string asking(const std::vector<std::string_view>& known, std::string_view word, const std::string& help,
                   const std::string& prefix = "") {
  const auto near = closest(word, known);
  return (near ? "did you mean \"" + prefix + std::string(*near) + "\"? " : "") + help;
}

Error unknown_option(const CLI::App& app, const CLI::App& command, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  const std::string help = app.get_name() + " " + command.get_name() + " --help";
  // Of a single letter any other one is near.
  const bool word = name.starts_with("--");
  return Error(ErrorKind::usage, command.get_name() + ": unknown option " + printable(name))
      .with_code(ErrorCode::option)
      .with_hint(word ? asking({names.begin(), names.end()}, std::string_view(name).substr(2), help, "--") : help);
}

}  // namespace

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::shared_ptr<CLI::FormatterBase> usage_formatter() {
  auto formatter = std::make_shared<Formatter>();
  formatter->label("SUBCOMMAND", "COMMAND [OPTIONS] [ARGUMENTS]");
  formatter->label("Positionals", "Arguments");
  formatter->label("REQUIRED", "");
  return formatter;
}

Result<void> check_command(const CLI::App& app, const std::vector<std::string>& words) {
  const std::string& word = words.front();
  std::vector<std::string_view> names;
  for (const CLI::App* const command : commands_of(app)) names.push_back(command->get_name());
  const std::string help = app.get_name() + " help";
  if (word.starts_with('-')) {
    const std::string_view bare = std::string_view(word).substr(std::min(word.find_first_not_of('-'), word.size()));
    const bool command = std::find(names.begin(), names.end(), bare) != names.end();
    return fail(Error(ErrorKind::usage, "unknown option \"" + printable(word) + "\" before the command")
                    .with_code(ErrorCode::option)
                    .with_hint(command ? app.get_name() + " " + std::string(bare) : help));
  }
  if (std::find(names.begin(), names.end(), word) != names.end()) return {};
  return fail(Error(ErrorKind::usage, "unknown command \"" + printable(word) + "\"")
                  .with_code(ErrorCode::option)
                  .with_hint(asking(names, word, help)));
}

Result<void> check_options(const CLI::App& app, const CLI::App& command) {
  for (const std::string& word : command.remaining()) {
    if (word == "--") break;
    if (word.starts_with("--")) return fail(unknown_option(app, command, word.substr(0, word.find('='))));
    // Of letters that are written together, the first is the unknown one.
    if (word.starts_with('-') && word != "-") return fail(unknown_option(app, command, word.substr(0, 2)));
    if (command.get_prefix_command()) break;  // the container's from here on
  }
  return {};
}

}  // namespace situla
