// info, version and doctor: what this program is, how it is configured, and what the node can do.
#include <memory>
#include <ostream>
#include <set>

#include <sys/utsname.h>

#include "common/base/text.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/cli/doctor/doctor.hpp"

namespace situla::cli {
namespace {

/// Of the command line that `enroot` offers; scripts compare it (COMPAT.md).
constexpr std::string_view kEnrootVersion = "4.1.2";

void print_info(const Context& context) {
  utsname names{};
  uname(&names);
  std::ostream& out = context.streams.out;
  out << "situla " << SITULA_VERSION << "\nkernel " << names.sysname << ' ' << names.release << ' ' << names.machine
      << "\n\n";
  std::set<std::string, std::less<>> keys;
  for (const std::string_view key : EnrootConfig::known_keys()) keys.emplace(key);
  for (const auto& [key, value] : context.config.values()) keys.insert(key);
  for (const std::string& key : keys) {
    const std::string value = context.config.get(key);
    if (!value.empty()) out << key << '=' << shell_quote(value) << '\n';
  }
}

}  // namespace

void add_info(CLI::App& app, Actions& actions) {
  app.add_subcommand("info", "Show the configuration in effect");
  actions["info"] = [](const Context& context) -> Result<int> {
    print_info(context);
    return 0;
  };
}

void add_version(CLI::App& app, Actions& actions) {
  app.add_subcommand("version", "Print the version");
  actions["version"] = [](const Context& context) -> Result<int> {
    if (context.invocation.program == "enroot")
      context.streams.out << kEnrootVersion << '\n';
    else
      context.streams.out << "situla " << SITULA_VERSION << '\n';
    return 0;
  };
}

void add_doctor(CLI::App& app, Actions& actions) {
  CLI::App* command = app.add_subcommand("doctor", "Say what this node can do, and how to mend what is missing");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print the report as JSON");
  actions["doctor"] = [json](const Context& context) -> Result<int> {
    const doctor::Report report = doctor::examine(doctor::Places::installed(), context.invocation.environment);
    context.streams.out << (*json ? report.json() : report.text());
    return report.failed() ? 1 : 0;
  };
}

}  // namespace situla::cli
