// info: how this program is configured.
#include <map>
#include <ostream>

#include <sys/utsname.h>

#include "common/base/text.hpp"
#include "common/spec/json.hpp"
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

/// Whatever has a value, defaults included.
std::map<std::string, std::string> configuration(const EnrootConfig& config) {
  std::map<std::string, std::string> settings;
  for (const auto& [key, value] : config.values()) settings.emplace(key, value);
  for (const std::string_view key : EnrootConfig::known_keys()) settings.emplace(key, config.get(key));
  std::erase_if(settings, [](const auto& setting) { return setting.second.empty(); });
  return settings;
}

void print_info(const Context& context, const utsname& kernel) {
  std::ostream& out = context.streams.out;
  out << "situla " << SITULA_VERSION << "\nkernel " << kernel.sysname << ' ' << kernel.release << ' ' << kernel.machine
      << "\n\n";
  for (const auto& [key, value] : configuration(context.config)) out << key << '=' << shell_quote(value) << '\n';
}

void print_info_as_json(const Context& context, const utsname& kernel) {
  context.streams.out << to_text(Json::object(
      {{"version", SITULA_VERSION},
       {"enrootVersion", kEnrootVersion},
       {"kernel", Json::object({{"system", kernel.sysname}, {"release", kernel.release}, {"machine", kernel.machine}})},
       {"configuration", Json::object_of(configuration(context.config))}}));
}

struct InfoOptions {
  bool json = false;
};

Result<int> info(const Context& context, const InfoOptions& options) {
  utsname kernel{};
  uname(&kernel);
  options.json ? print_info_as_json(context, kernel) : print_info(context, kernel);
  return 0;
}

}  // namespace

void add_info(CLI::App& app, Actions& actions) {
  const auto [command, options] = add_command(app, actions, "info", "Show the configuration in effect", info);
  command.add_flag("--json", options.json, "Print it as JSON");
}

}  // namespace situla::cli
