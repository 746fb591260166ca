#include "plugin/config.hpp"

#include <array>
#include <optional>

#include "common/base/text.hpp"

namespace situla {
namespace {

enum class Key {
  runtime_path,
  execute_entrypoint,
  container_scope,
  sbatch_support,
  use_enroot_load,
  importer,
  use_squashfuse
};
struct KeyName {
  std::string_view name;
  Key key;
};
constexpr std::array kKeys = {
    KeyName{"runtime_path", Key::runtime_path},       KeyName{"execute_entrypoint", Key::execute_entrypoint},
    KeyName{"container_scope", Key::container_scope}, KeyName{"sbatch_support", Key::sbatch_support},
    KeyName{"use_enroot_load", Key::use_enroot_load}, KeyName{"importer", Key::importer},
    KeyName{"use_squashfuse", Key::use_squashfuse},
};

Result<bool> boolean(std::string_view key, std::string_view value) {
  if (value == "1" || value == "true" || value == "yes" || value == "y") return true;
  if (value == "0" || value == "false" || value == "no" || value == "n") return false;
  return fail(ErrorKind::usage, std::string(key) + "=" + printable(value) + ": not a boolean");
}

Result<void> refuse(std::string_view word) {
  return fail(ErrorKind::unsupported, "plugstack.conf: " + printable(word) + " is not supported yet");
}

}  // namespace

Result<PluginConfig> PluginConfig::parse(std::span<const char* const> words) {
  PluginConfig config;
  for (const std::string_view word : words) {
    const auto parts = cut(word, '=');
    const KeyName* found = nullptr;
    for (const KeyName& row : kKeys)
      if (parts && row.name == parts->first) found = &row;
    if (found == nullptr)
      return fail(
          Error(ErrorKind::usage, "plugstack.conf: unknown key '" + printable(parts ? parts->first : word) + "'")
              .with_hint("keys are runtime_path execute_entrypoint container_scope sbatch_support use_enroot_load "
                         "importer use_squashfuse"));
    const std::string_view value = parts->second;
    switch (found->key) {
      case Key::runtime_path:     // ours is fixed when Situla is built; nothing of a user's script depends on it
      case Key::use_enroot_load:  // images are always mounted without extraction
        break;
      case Key::execute_entrypoint: {
        TRY_ASSIGN(const bool on, boolean(parts->first, value));
        if (on) TRY(refuse(word));
        break;
      }
      case Key::container_scope:
        if (value != "global" && value != "job")
          return fail(ErrorKind::usage, "plugstack.conf: container_scope must be global or job");
        break;
      case Key::sbatch_support: {
        TRY_ASSIGN(const bool on, boolean(parts->first, value));
        if (!on) TRY(refuse(word));
        break;
      }
      case Key::importer:
        TRY(refuse(word));
        break;
      case Key::use_squashfuse: {
        TRY_ASSIGN(config.use_squashfuse, boolean(parts->first, value));
        break;
      }
    }
  }
  return config;
}

}  // namespace situla
