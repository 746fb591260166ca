#include <algorithm>
#include <array>
#include <utility>

#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

constexpr std::array<std::pair<std::string_view, AddCommands>, 11> kLocal = {{{"create", add_create},
                                                                              {"export", add_export},
                                                                              {"start", add_start},
                                                                              {"batch", add_batch},
                                                                              {"exec", add_exec},
                                                                              {"inject", add_inject},
                                                                              {"list", add_list},
                                                                              {"remove", add_remove},
                                                                              {"info", add_info},
                                                                              {"version", add_version},
                                                                              {"doctor", add_doctor}}};

}  // namespace

void add_local_commands(CLI::App& app, Actions& actions) {
  for (const auto& [name, add] : kLocal) add(app, actions);
}

bool is_local_command(std::string_view name) {
  return std::any_of(kLocal.begin(), kLocal.end(), [&](const auto& command) { return command.first == name; });
}

}  // namespace situla::cli
