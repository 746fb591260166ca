#include <algorithm>
#include <array>
#include <utility>

#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

constexpr std::array<std::pair<std::string_view, AddCommands>, 10> kLocal = {{{"create", add_create},
                                                                              {"export", add_export},
                                                                              {"start", add_start},
                                                                              {"batch", add_batch},
                                                                              {"exec", add_exec},
                                                                              {"inject", add_inject},
                                                                              {"list", add_list},
                                                                              {"remove", add_remove},
                                                                              {"info", add_info},
                                                                              {"version", add_version}}};

}  // namespace

void add_commands_without_doctor(CLI::App& app, Actions& actions) {
  for (const auto& [name, add] : kLocal) add(app, actions);
}

void add_local_commands(CLI::App& app, Actions& actions) {
  add_commands_without_doctor(app, actions);
  add_doctor(app, actions, nullptr);
}

bool is_local_command(std::span<const char* const> words) {
  if (words.empty()) return false;
  const std::string_view name = words.front();
  if (name == "doctor")
    return std::none_of(words.begin(), words.end(),
                        [](std::string_view word) { return word.starts_with("--registry"); });
  return std::any_of(kLocal.begin(), kLocal.end(), [&](const auto& command) { return command.first == name; });
}

}  // namespace situla::cli
