#include <algorithm>
#include <string_view>

#include "hooks/cli/tool.hpp"

namespace situla::cli {

#define COMMAND(name) void add_##name(Program& program, Actions& actions);
#include "hooks/cli/local_commands.inc"
#undef COMMAND

void add_local_commands(Program& program, Actions& actions) {
#define COMMAND(name) add_##name(program, actions);
#include "hooks/cli/local_commands.inc"
#undef COMMAND
}

bool is_local_command(std::span<const char* const> words) {
  constexpr std::string_view kLocal[] = {
#define COMMAND(name) #name,
#include "hooks/cli/local_commands.inc"
#undef COMMAND
  };
  if (words.empty()) return false;
  const auto* const alias =
      std::find_if(kAliases.begin(), kAliases.end(), [&](const Alias& each) { return each.name == words.front(); });
  const std::string_view command = alias == kAliases.end() ? words.front() : alias->command;
  if (std::find(std::begin(kLocal), std::end(kLocal), command) == std::end(kLocal)) return false;
  const auto asks_registry = [](std::string_view word) { return word.starts_with("--registry"); };
  return words.front() != std::string_view("doctor") || std::none_of(words.begin(), words.end(), asks_registry);
}

}  // namespace situla::cli
