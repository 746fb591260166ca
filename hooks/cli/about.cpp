// info and version: what this program is, and how it is configured.
#include <map>
#include <memory>
#include <ostream>

#include <sys/utsname.h>

#include <nlohmann/json.hpp>

#include "common/base/parts.hpp"
#include "common/base/text.hpp"
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

/// Of the command line that `enroot` offers; scripts compare it (COMPAT.md).
constexpr std::string_view kEnrootVersion = "4.1.2";

/// Whatever has a value, defaults included.
std::map<std::string, std::string> configuration(const EnrootConfig& config) {
  std::map<std::string, std::string> settings;
  for (const auto& [key, value] : config.values()) settings.emplace(key, value);
  for (const std::string_view key : EnrootConfig::known_keys()) settings.emplace(key, config.get(key));
  std::erase_if(settings, [](const auto& setting) { return setting.second.empty(); });
  return settings;
}

std::string version() {
  const std::string missing = missing_parts();
  return "situla " SITULA_VERSION + (missing.empty() ? "" : "\nbuilt without: " + missing);
}

void print_info(const Context& context, const utsname& kernel) {
  std::ostream& out = context.streams.out;
  out << "situla " << SITULA_VERSION << "\nkernel " << kernel.sysname << ' ' << kernel.release << ' ' << kernel.machine
      << "\n\n";
  for (const auto& [key, value] : configuration(context.config)) out << key << '=' << shell_quote(value) << '\n';
}

void print_info_as_json(const Context& context, const utsname& kernel) {
  const nlohmann::ordered_json document = {
      {"version", SITULA_VERSION},
      {"enrootVersion", kEnrootVersion},
      {"kernel", {{"system", kernel.sysname}, {"release", kernel.release}, {"machine", kernel.machine}}},
      {"configuration", configuration(context.config)}};
  // A value may be any bytes; a reader of JSON wants UTF-8.
  context.streams.out << document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

}  // namespace

void add_info(CLI::App& app, Actions& actions) {
  CLI::App* command = app.add_subcommand("info", "Show the configuration in effect");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print it as JSON");
  actions["info"] = [json](const Context& context) -> Result<int> {
    utsname kernel{};
    uname(&kernel);
    *json ? print_info_as_json(context, kernel) : print_info(context, kernel);
    return 0;
  };
}

void add_version(CLI::App& app, Actions& actions) {
  app.add_subcommand("version", "Print the version");
  actions["version"] = [](const Context& context) -> Result<int> {
    if (context.invocation.program == "enroot")
      context.streams.out << kEnrootVersion << '\n';
    else
      context.streams.out << version() << '\n';
    return 0;
  };
}

}  // namespace situla::cli
