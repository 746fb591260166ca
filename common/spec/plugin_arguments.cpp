#include "common/spec/plugin_arguments.hpp"

#include <algorithm>
#include <array>

#include "common/base/text.hpp"

namespace situla {
namespace {

// Each setter returns what the key wants when the value is not it, or "" when it was taken.
using Setter = std::string (*)(std::string_view value, PluginConfig& config);

std::string read_boolean(std::string_view value, bool& into) {
  const bool yes = value == "1" || value == "true" || value == "yes" || value == "y";
  const bool no = value == "0" || value == "false" || value == "no" || value == "n";
  if (!yes && !no) return "1, true, yes, y, or 0, false, no, n";
  into = yes;
  return "";
}

std::string set_scope(std::string_view value, PluginConfig& config) {
  if (value != "global" && value != "job") return "global or job";
  config.scope = value == "job" ? ContainerScope::job : ContainerScope::global;
  return "";
}

/// Whether the program is there is seen on the node when it is used: login nodes read this file, too. It runs as the
/// job's user, so who owns it is the site's affair.
std::string set_importer(std::string_view value, PluginConfig& config) {
  if (!value.starts_with('/')) return "an absolute path";
  config.importer = value;
  return "";
}

/// Only for what `importer` keeps there: our own runtime directory is fixed when Situla is built.
std::string set_runtime_path(std::string_view value, PluginConfig& config) {
  if (!value.starts_with('/')) return "an absolute path";
  config.runtime_path = value;
  return "";
}

/// Accepted without effect: it chooses between two ways to extract an image, and images are mounted here.
std::string ignore_enroot_load(std::string_view value, PluginConfig&) {
  bool ignored = false;
  return read_boolean(value, ignored);
}

std::string set_entrypoint(std::string_view value, PluginConfig& config) {
  return read_boolean(value, config.execute_entrypoint);
}
std::string set_sbatch(std::string_view value, PluginConfig& config) {
  return read_boolean(value, config.sbatch_support);
}
std::string set_squashfuse(std::string_view value, PluginConfig& config) {
  return read_boolean(value, config.use_squashfuse);
}

struct Key {
  std::string_view name;
  Setter set;
};
constexpr std::array kKeys = {
    Key{"runtime_path", set_runtime_path},      Key{"execute_entrypoint", set_entrypoint},
    Key{"container_scope", set_scope},          Key{"sbatch_support", set_sbatch},
    Key{"use_enroot_load", ignore_enroot_load}, Key{"importer", set_importer},
    Key{"use_squashfuse", set_squashfuse},
};

Error unknown_key(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Key& key : kKeys) names.push_back(key.name);
  return Error(ErrorKind::usage, "plugstack.conf: unknown key '" + printable(name) + "'")
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
                      .with_hint("write " + std::string(name) + "=VALUE, without blanks"));
    const std::string_view value = word.substr(equals + 1);
    if (const std::string wanted = key->set(value, config); !wanted.empty())
      return fail(ErrorKind::usage,
                  "plugstack.conf: " + std::string(name) + " must be " + wanted + ", not '" + printable(value) + "'");
  }
  return config;
}

}  // namespace situla
