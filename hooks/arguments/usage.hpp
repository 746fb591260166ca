// How is a command called? The text of --help, and what was meant by a word that it does not know.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/App.hpp>

#include "common/base/result.hpp"

namespace situla {

/// The commands of a program.
std::vector<const CLI::App*> commands_of(const CLI::App& app);

/// For the whole program; commands made after it is set take it over. The words of a command that passes some on to a
/// container are in its description, "what it does: how it is called", because CLI11 does not know them.
std::shared_ptr<CLI::FormatterBase> usage_formatter();

/// The first word that is no option, which has to be a command. words: not empty.
Result<void> check_command(const CLI::App& app, const std::vector<std::string>& words);

/// Of a command that was parsed: an option that it does not have comes with the one that was meant. Everything else
/// about them is said by CLI11.
Result<void> check_options(const CLI::App& app, const CLI::App& command);

}  // namespace situla
