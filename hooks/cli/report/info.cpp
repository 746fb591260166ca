// info: how this program is configured, and who says so.
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <sys/utsname.h>

#include "common/base/text.hpp"
#include "common/spec/json.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/file.hpp"
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

constexpr const char* kSiteFile = SITULA_SYSCONF_DIR "/situla.toml";
constexpr size_t kMaxFileBytes = size_t{1} << 20U;

/// Whatever has a value, defaults included.
std::map<std::string, std::string> configuration(const EnrootConfig& config) {
  std::map<std::string, std::string> settings;
  for (const auto& [key, value] : config.values()) settings.emplace(key, value);
  for (const std::string_view key : EnrootConfig::known_keys()) settings.emplace(key, config.get(key));
  std::erase_if(settings, [](const auto& setting) { return setting.second.empty(); });
  return settings;
}

/// "; did you mean ENROOT_DATA_PATH?" for a key that nothing reads; a site's own scripts may, so that it is no error.
std::string about_unknown(const std::string& key) {
  const auto near = closest(key, EnrootConfig::known_keys());
  return near ? "; did you mean " + std::string(*near) + "?" : "";
}

/// Why a line of a file does not count.
std::string why_ignored(const EnrootConfig& config, const ConfigLine& line) {
  const std::string origin = config.origin(line.key);
  if (origin == "environment") return "the environment has another value";
  return origin == "default" ? "its value is empty" : origin + " comes first";
}

/// The lines of situla.toml that say something. They are sound: what it cannot be read for is an error.
Result<std::vector<std::pair<size_t, std::string>>> site_lines() {
  TRY(SiteConfig::load(kSiteFile));
  const auto text = read_file(kSiteFile, kMaxFileBytes);
  std::vector<std::pair<size_t, std::string>> lines;
  if (!text && text.error().kind() != ErrorKind::not_found) return fail(text.error());
  size_t number = 0;
  for (const std::string_view raw : split(text ? std::string_view(*text) : "", '\n')) {
    ++number;
    const std::string_view line = trim(raw);
    if (!line.empty() && line.front() != '#') lines.emplace_back(number, printable(line));
  }
  return lines;
}

/// Everything but the settings themselves is a comment of the shell's.
Result<void> print_info(const Context& context, const utsname& kernel, bool origins) {
  std::ostream& out = context.streams.out;
  const EnrootConfig& config = context.config;
  out << "situla " << SITULA_VERSION << "\nkernel " << kernel.sysname << ' ' << kernel.release << ' ' << kernel.machine
      << "\n\n";
  for (const auto& [key, value] : configuration(config)) {
    out << key << '=' << shell_quote(value);
    if (origins) out << "  # " << config.origin(key);
    out << '\n';
  }
  for (const std::string& key : config.unknown_keys())
    out << "# unknown: " << key << " (" << config.origin(key) << ')' << about_unknown(key) << '\n';
  if (!origins) return {};
  for (const ConfigLine& line : config.lines())
    if (!line.used)
      out << "# ignored: " << line.where << ": " << line.key << ' ' << printable(line.raw) << " ("
          << why_ignored(config, line) << ")\n";
  TRY_ASSIGN(const auto site, site_lines());
  if (site.empty()) out << "# " << kSiteFile << ": nothing is set, all defaults hold\n";
  for (const auto& [number, line] : site) out << "# " << kSiteFile << ':' << number << ": " << line << '\n';
  return {};
}

Result<void> print_info_as_json(const Context& context, const utsname& kernel, bool origins) {
  const EnrootConfig& config = context.config;
  Json unknown = Json::list();
  for (const std::string& key : config.unknown_keys()) unknown.add(key);
  Json info = Json::object(
      {{"version", SITULA_VERSION},
       {"enrootVersion", kEnrootVersion},
       {"kernel", Json::object({{"system", kernel.sysname}, {"release", kernel.release}, {"machine", kernel.machine}})},
       {"configuration", Json::object_of(configuration(config))},
       {"unknown", std::move(unknown)}});
  if (origins) {
    std::map<std::string, std::string> where;
    for (const auto& [key, value] : configuration(config)) where.emplace(key, config.origin(key));
    info.add("origins", Json::object_of(where));
    Json ignored = Json::list();
    for (const ConfigLine& line : config.lines())
      if (!line.used)
        ignored.add(Json::object(
            {{"where", line.where}, {"key", line.key}, {"text", line.raw}, {"reason", why_ignored(config, line)}}));
    info.add("ignored", std::move(ignored));
    TRY_ASSIGN(const auto lines, site_lines());
    Json site = Json::list();
    for (const auto& [number, line] : lines)
      site.add(Json::object({{"where", std::string(kSiteFile) + ":" + std::to_string(number)}, {"text", line}}));
    info.add("site", std::move(site));
  }
  context.streams.out << to_text(info);
  return {};
}

struct InfoOptions {
  bool json = false, origin = false;
};

Result<int> info(const Context& context, const InfoOptions& options) {
  utsname kernel{};
  uname(&kernel);
  TRY(options.json ? print_info_as_json(context, kernel, options.origin) : print_info(context, kernel, options.origin));
  return 0;
}

}  // namespace

void add_info(Program& program, Actions& actions) {
  const auto [command, options] = add_command(program, actions, "info", "Show the configuration in effect", info);
  command.flag("--json", options.json, "Print it as JSON");
  command.flag("--origin", options.origin,
               "Show where each value comes from, what is ignored, and what situla.toml says");
}

}  // namespace situla::cli
