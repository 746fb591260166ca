// Which containers does a user have on this node, and where does each of them keep its files? COMPAT.md sections 1
// (names on disk) and 3.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/run/enroot_config.hpp"

namespace situla {

/// A directory under ENROOT_DATA_PATH, of one of two kinds.
struct NamedContainer {
  enum class Kind {
    tree,     ///< `path` is the root file system: extracted, made by enroot, or by hand
    layered,  ///< `path` holds the image (a copy of its own, so that the user's file may go) and what was changed
  };
  std::string name;  ///< one path component
  std::string path;  ///< ENROOT_DATA_PATH/name
  Kind kind = Kind::tree;

  // Of a layered one. All beneath path/.situla, which is what marks it as such.
  [[nodiscard]] std::string state() const { return path + "/.situla"; }
  [[nodiscard]] std::string image() const { return path + "/.situla/image.sqsh"; }
  [[nodiscard]] std::string upper() const { return path + "/.situla/upper"; }  ///< overlay upper layer, with userxattr
  [[nodiscard]] std::string work() const { return path + "/.situla/work"; }
};

/// Where a container of this name is, or would be. ErrorKind::usage for what cannot be a name (empty, a slash, a
/// leading dot).
Result<std::string> container_path(const EnrootConfig& config, std::string_view name);

/// ErrorKind::usage for what cannot be a name (empty, a slash, a leading dot), not_found ("No such file or directory:
/// PATH") when there is none.
Result<NamedContainer> find_container(const EnrootConfig& config, std::string_view name);

/// Sorted by name; unfinished ones are not among them. No directory is no container.
Result<std::vector<NamedContainer>> list_containers(const EnrootConfig& config);

}  // namespace situla
