#include "hooks/arguments/arguments.hpp"

#include <CLI/CLI.hpp>

#include "common/base/text.hpp"
#include "hooks/arguments/usage.hpp"

namespace situla {

const Option& Option::value(const std::string& name) const {
  option_->type_name(name);
  return *this;
}

const Option& Option::required() const {
  option_->required();
  return *this;
}

const Option& Option::hidden() const {
  option_->group("");
  return *this;
}

const Option& Option::one_at_a_time() const {
  option_->allow_extra_args(false);
  return *this;
}

const Option& Option::excludes(const Option& other) const {
  option_->excludes(other.option_);
  return *this;
}

const Option& Option::needs(const Option& other) const {
  option_->needs(other.option_);
  return *this;
}

const Option& Option::within(uint32_t least, uint32_t most) const {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option Command::flag(const std::string& names, bool& given, const std::string& meaning) const {
  return Option(command_->add_flag(names, given, meaning));
}

Option Command::option(const std::string& names, std::string& value, const std::string& meaning) const {
  return Option(command_->add_option(names, value, meaning));
}

Option Command::option(const std::string& names, std::vector<std::string>& values, const std::string& meaning) const {
  return Option(command_->add_option(names, values, meaning));
}

Option Command::option(const std::string& names, uint32_t& value, const std::string& meaning) const {
  return Option(command_->add_option(names, value, meaning));
}

void Command::pass_words_on() const {
  command_->prefix_command();
}

void Command::footer(const std::string& text) const {
  command_->footer(text);
}

Program::Program(const std::string& name, const std::string& description)
    : app_(std::make_unique<CLI::App>(description, name)) {
  // As in enroot: an alias has one, and its user another.
  app_->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app_->set_help_flag();
}

Program::~Program() = default;

Command Program::options() {
  return Command(app_.get());
}

Command Program::add_command(const std::string& name, const std::string& description) {
  if (commands_of(*app_).empty()) {
    app_->require_subcommand(1);
    app_->formatter(usage_formatter());  // the commands take it over
  }
  CLI::App* const command = app_->add_subcommand(name, description);
  command->group("Commands");
  return Command(command);
}

void Program::footer(const std::string& text) {
  app_->footer(text);
}

namespace {

/// CLI11 takes "--" for the end of a command that passes its words on: it goes when it ends the options only.
void drop_separator(const CLI::App& command, std::vector<std::string>& arguments) {
  if (!command.get_prefix_command()) return;
  for (size_t i = 1; i < arguments.size() && arguments[i].starts_with('-'); ++i) {
    if (arguments[i] == "--") {
      arguments.erase(arguments.begin() + static_cast<ptrdiff_t>(i));
      return;
    }
    const CLI::Option* option = command.get_option_no_throw(arguments[i]);
    if (option != nullptr && option->get_items_expected_max() > 0) ++i;
  }
}

enum class Wanted { action, help };

/// CLI11 throws; its exceptions end here.
Result<Wanted> parse_words(CLI::App& app, const std::vector<std::string>& arguments) {
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
    return Wanted::action;
  } catch (const CLI::CallForHelp&) {
    return Wanted::help;
  } catch (const CLI::Error& error) {
    return fail(ErrorKind::usage, error.what());
  }
}

}  // namespace

Result<CommandLine> Program::parse(const std::vector<std::string>& arguments) {
  if (commands_of(*app_).empty()) {
    const auto parsed = parse_words(*app_, arguments);
    if (!parsed) return fail(Error(parsed.error()).with_code(ErrorCode::option).with_hint("--help lists the options"));
    return CommandLine{"", false, app_->remaining()};
  }
  finish_commands();
  TRY(check_command(*app_, arguments));
  std::vector<std::string> words = arguments;
  const CLI::App& command = *app_->get_subcommand(arguments.front());
  drop_separator(command, words);
  auto parsed = parse_words(*app_, words);
  CommandLine found{command.get_name(), parsed && *parsed == Wanted::help, command.remaining()};
  if (found.help) return found;
  TRY(check_options(*app_, command));
  if (!parsed)
    return fail(std::move(parsed)
                    .error()
                    .with_context(found.command)
                    .with_code(ErrorCode::option)
                    .with_hint(app_->get_name() + " " + found.command + " --help"));
  return found;
}

void Program::finish_commands() {
  for (CLI::App* const command : app_->get_subcommands([](const CLI::App*) { return true; }))
    if (command->get_help_ptr() == nullptr) command->set_help_flag("-h,--help", "Print the usage");
}

std::string Program::help() {
  finish_commands();
  return app_->help();
}

std::optional<std::string> Program::help(const std::string& command) {
  finish_commands();
  for (const CLI::App* const each : commands_of(*app_))
    if (each->get_name() == command) return each->help(app_->get_name());
  return std::nullopt;
}

}  // namespace situla
