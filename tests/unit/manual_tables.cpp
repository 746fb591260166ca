// Prints the tables that manual pages repeat, a line for each fact: KIND NAME [ARGUMENT]. For manual_pages.
#include <iostream>
#include <set>

#include "common/base/text.hpp"
#include "common/spec/plugin_arguments.hpp"
#include "common/spec/site_config.hpp"
#include "hooks/config/enroot_config.hpp"
#include "hooks/scripts/known_scripts.hpp"
#include "plugin/options.hpp"

using namespace situla;

namespace {

/// A mistake's hint ends with all words that there are: "did you mean ...? known keys: a, b, c".
void print_hint(const char* kind, const Error& error) {
  const std::string& hint = error.hint();
  for (const std::string_view word : split_words(std::string_view(hint).substr(hint.rfind(": ") + 2)))
    std::cout << kind << ' ' << word.substr(0, word.find(',')) << '\n';
}

}  // namespace

int main() {
  for (const OptionInfo& row : option_table())
    std::cout << "option --" << row.name << ' ' << (row.argument == nullptr ? "" : "VALUE") << '\n';
  std::set<std::string> variables;
  ContainerOptions options;
  (void)options.apply_environment([&](const std::string& name) -> std::optional<std::string> {
    variables.insert(name);
    return std::nullopt;
  });
  for (const std::string& name : variables) std::cout << "variable " << name << '\n';

  const char* const unknown = "zzzzzzzzzz=1";
  print_hint("argument", PluginConfig::parse({&unknown, 1}).error());
  print_hint("key", SiteConfig::parse("zzzzzzzzzz = 1", "x").error());
  print_hint("limit", SiteConfig::parse("[limits]\nzzzzzzzzzz = 1", "x").error());
  print_hint("registry", SiteConfig::parse("[[registry]]\nzzzzzzzzzz = 1", "x").error());
  print_hint("mirror",
             SiteConfig::parse("[[registry]]\nprefix = \"a\"\n[[registry.mirror]]\nzzzzzzzzzz = 1", "x").error());

  for (const auto& [name, hook] : standard_hooks()) std::cout << "hook " << name << '\n';
  for (const KnownScript& script : released_scripts()) std::cout << "script " << script.name << '\n';
  for (const std::string_view key : EnrootConfig::known_keys()) std::cout << "setting " << key << '\n';
  return 0;
}
