#include "common/spec/plugin_arguments.hpp"

#include <algorithm>
#include <array>

#include "common/base/text.hpp"

namespace situla {
namespace {

// Each setter returns what the key wants when the value is not it, or "" when it was taken.
using Setter = std::string (*)(std::string_view value, PluginConfig& config);

template <bool PluginConfig::*Field>
std::string boolean(std::string_view value, PluginConfig& config) {
  const auto flag = parse_boolean(value);
  if (!flag) return "1, true, yes, y, or 0, false, no, n";
  config.*Field = *flag;
  return "";
}

template <std::string PluginConfig::*Field>
std::string path(std::string_view value, PluginConfig& config) {
  if (!value.starts_with('/')) return "an absolute path";
  config.*Field = value;
  return "";
}

std::string scope(std::string_view value, PluginConfig& config) {
  if (value != "global" && value != "job") return "global or job";
  config.scope = value == "job" ? ContainerScope::job : ContainerScope::global;
  return "";
}

std::string prefetch(std::string_view value, PluginConfig& config) {
  const auto flag = parse_boolean(value);
  if (!flag && value != "all") return "1, 0 or all";
  config.prolog_prefetch = !flag ? PrologPrefetch::all : *flag ? PrologPrefetch::jobs : PrologPrefetch::none;
  return "";
}

/// Accepted without effect: it chooses between two ways to extract an image, and images are mounted here.
std::string ignored_boolean(std::string_view value, PluginConfig&) {
  PluginConfig unused;
  return boolean<&PluginConfig::use_squashfuse>(value, unused);
}

struct Key {
  std::string_view name;
  Setter set;
};
constexpr std::array kKeys = {
    // Only for what `importer` keeps there: our own runtime directory is fixed when Situla is built.
    Key{"runtime_path", path<&PluginConfig::runtime_path>},
    Key{"execute_entrypoint", boolean<&PluginConfig::execute_entrypoint>},
    Key{"container_scope", scope},
    Key{"sbatch_support", boolean<&PluginConfig::sbatch_support>},
    Key{"use_enroot_load", ignored_boolean},
    // Whether the program is there is seen on the node when it is used: login nodes read this file, too. It runs as
    // the job's user, so who owns it is the site's affair.
    Key{"importer", path<&PluginConfig::importer>},
    Key{"use_squashfuse", boolean<&PluginConfig::use_squashfuse>},
    Key{"prolog_prefetch", prefetch},
};

Error unknown_key(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Key& key : kKeys) names.push_back(key.name);
  return Error(ErrorKind::usage, "plugstack.conf: unknown key '" + printable(name) + "'")
      .with_code(ErrorCode::site_config)
      .with_hint(suggestion(name, names, "known keys"));
}

}  // namespace

Result<PluginConfig> PluginConfig::parse(std::span<const char* const> words) {
  PluginConfig config;
  for (const std::string_view word : words) {
    const size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const auto* key = std::find_if(kKeys.begin(), kKeys.end(), [&](const Key& k) { return k.name == name; });
    if (key == kKeys.end()) return fail(unknown_key(name));
    if (equals == std::string_view::npos)
      return fail(Error(ErrorKind::usage, "plugstack.conf: " + std::string(name) + " has no value")
                      .with_code(ErrorCode::site_config)
                      .with_hint("write " + std::string(name) + "=VALUE, without blanks"));
    const std::string_view value = word.substr(equals + 1);
    if (const std::string wanted = key->set(value, config); !wanted.empty())
      return fail(Error(ErrorKind::usage, "plugstack.conf: " + std::string(name) + " must be " + wanted + ", not '" +
                                              printable(value) + "'")
                      .with_code(ErrorCode::site_config));
  }
  return config;
}

}  // namespace situla
