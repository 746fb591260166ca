// Which words of a Slurm command line are options, which are their values, and where does the rest begin?
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace situla {

/// An option as it was given, or any other word, in their order.
struct CommandWord {
  std::string option;  ///< the long name, "output", also where it was given as -o or shortened; empty: no option
  std::string value;   ///< of an option that has one
  bool has_value = false;
  std::vector<std::string> words;  ///< as typed, one or two; what is run in the end
  std::string letters{};           ///< "lu" of "-luo FILE": options without a value in the same word

  /// Another value in the place of what was typed.
  void set_value(const std::string& new_value);
};

struct CommandLine {
  std::vector<CommandWord> options;
  std::vector<std::string> rest;  ///< from the first word that is none: the program and its arguments

  [[nodiscard]] bool has(std::string_view option) const;
  /// Of the last use; nullopt: not given.
  [[nodiscard]] std::optional<std::string> value(std::string_view option) const;
  /// As it is run.
  [[nodiscard]] std::vector<std::string> words() const;
};

/// As getopt_long(3) reads it with a '+' in front, and Slurm's options of srun, sbatch, salloc and sbcast. An option
/// that is not known takes no value in a word of its own.
CommandLine parse_command_line(std::string_view command, const std::vector<std::string>& arguments);

/// For a test that asks the commands themselves: whether an option of that name takes a value in the next word.
bool takes_value(std::string_view command, std::string_view option);

}  // namespace situla
