// What does one --container-mounts entry ask for? SRC[:DST[:FLAGS]], COMPAT.md section 1.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/result.hpp"

namespace situla {

struct MountOption {
  enum class Kind { bind, tmpfs, umount, script /**< the batch script: read-only, at its own path; no option's */ };
  friend constexpr Kind last_of(Kind) { return Kind::script; }
  Kind kind = Kind::bind;
  std::string source;  ///< absolute or relative host path, or an image (is_registry_image()); may hold $VAR; empty for
                       ///< tmpfs and umount
  std::string target;  ///< path inside the container; may hold $VAR
  std::vector<std::string>
      flags;  ///< fstab option words, the defaults of COMPAT.md 1 first ("x-create=auto", "rbind", ...)
  std::string origin = "--container-mounts";  ///< who asks, for messages; "/home/me/.edf/torch.toml:4: mounts"

  static auto fields(auto& option) {
    return std::tie(option.kind, option.source, option.target, option.flags, option.origin);
  }
  friend bool operator==(const MountOption&, const MountOption&) = default;
};

/// "docker://REFERENCE": the source of a mount is an image of a registry.
constexpr std::string_view kRegistryScheme = "docker://";
constexpr bool is_registry_image(std::string_view source) {
  return source.starts_with(kRegistryScheme);
}

/// Parses a whole option value, entries separated by commas, '+' in FLAGS meaning ','. Exact duplicates are dropped.
/// Variables are not expanded here (that happens on the node, in the job's environment); a "~" in front of a path is
/// $HOME. ErrorKind::usage also for a flag that is no mount_words.hpp's; those of a new tmpfs are its parameters.
Result<std::vector<MountOption>> parse_mount_options(std::string_view value);

/// One entry; its flags may have ',' between them, too.
Result<MountOption> parse_mount_entry(std::string_view entry);
/// Source and the rest of an entry, at the ':' between them; nullopt: there is none. The reference of a registry's
/// image has colons of its own.
std::optional<std::pair<std::string_view, std::string_view>> cut_mount_source(std::string_view entry);

/// ErrorKind::usage. `mount` is what is done, "bind /src on /dst"; the caller puts in front who asks for it.
Error unknown_mount_flag(std::string_view mount, std::string_view flag);
/// In the words of COMPAT.md 10; ErrorKind::not_found. `source` is expanded.
Error no_mount_source(const MountOption& option, std::string_view source);

}  // namespace situla
