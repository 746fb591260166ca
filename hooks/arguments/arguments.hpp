// What may a program's command line have, and what has it? CLI11, which nothing else includes: a file that does is
// compiled for seconds longer, and the whole of its exceptions ends here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace situla {

/// An option or an argument that was declared. Not owned: it is its program's.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  /// How --help calls the value; "": not at all.
  const Option& value(const std::string& name) const;
  const Option& required() const;
  /// Between Situla and itself: --help does not have it.
  const Option& hidden() const;
  /// It may be given several times, each time with one value.
  const Option& one_at_a_time() const;
  const Option& excludes(const Option& other) const;
  const Option& needs(const Option& other) const;
  const Option& within(uint32_t least, uint32_t most) const;

 private:
  CLI::Option* option_;
};

/// What a command takes, or a program that has none. names: "-f,--force", or "NAME" of an argument. What parse() finds
/// is written to the references, which have to live as long. Not owned: it is its program's.
class Command {
 public:
  explicit Command(CLI::App* command) : command_(command) {}
  Option flag(const std::string& names, bool& given, const std::string& meaning) const;
  Option option(const std::string& names, std::string& value, const std::string& meaning = "") const;
  Option option(const std::string& names, std::vector<std::string>& values, const std::string& meaning = "") const;
  Option option(const std::string& names, uint32_t& value, const std::string& meaning = "") const;
  /// From the first word on that is no option, all belong to somebody else: CommandLine::words.
  void pass_words_on() const;
  /// Below the options in its --help.
  void footer(const std::string& text) const;

 private:
  CLI::App* command_;
};

/// What was asked for.
struct CommandLine {
  std::string command;             ///< empty: the program has none
  bool help = false;               ///< --help of the command
  std::vector<std::string> words;  ///< that were passed on
};

class Program {
 public:
  /// As its --help says; name: as it was called.
  Program(const std::string& name, const std::string& description);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  /// Of a program without commands.
  [[nodiscard]] Command options();
  /// description: of one that passes words on, "what it does: how it is called".
  Command add_command(const std::string& name, const std::string& description);
  void footer(const std::string& text);

  /// arguments: without the program's name; not empty where there are commands. Of a value that is given twice the last
  /// one counts. ErrorKind::usage, with what was probably meant.
  Result<CommandLine> parse(const std::vector<std::string>& arguments);

  std::string help();
  /// Nothing: there is no such command.
  std::optional<std::string> help(const std::string& command);

 private:
  /// Their --help, behind what they have declared.
  void finish_commands();

  std::unique_ptr<CLI::App> app_;
};

}  // namespace situla
