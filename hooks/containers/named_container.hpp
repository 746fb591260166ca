// Which containers does a user have on this node, and where does each of them keep its files? COMPAT.md sections 1
// (names on disk) and 3.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/sys/private_directory.hpp"
#include "hooks/config/enroot_config.hpp"

namespace situla {

/// A directory under ENROOT_DATA_PATH, of one of two kinds.
struct NamedContainer {
  enum class Kind {
    tree,     ///< `path` is the root file system: extracted, made by enroot, or by hand
    layered,  ///< `path` holds the image (a copy of its own, so that the user's file may go) and what was changed
  };
  std::string name;  ///< one path component
  std::string path;  ///< ENROOT_DATA_PATH/name, to be shown
  Kind kind = Kind::tree;
  std::shared_ptr<const UniqueFd> directory{};  ///< O_PATH; none: `path` is taken as it is

  /// What to open: the directory that was found, whatever others do to the path meanwhile.
  [[nodiscard]] std::string held() const;
  // Of a layered one. All beneath .situla, which is what marks it as such.
  [[nodiscard]] std::string state() const { return held() + "/.situla"; }
  [[nodiscard]] std::string image() const { return held() + "/.situla/image.sqsh"; }
  [[nodiscard]] std::string upper() const { return held() + "/.situla/upper"; }  ///< overlay upper, with userxattr
  [[nodiscard]] std::string work() const { return held() + "/.situla/work"; }
};

/// The same container by the path in this mount namespace: the kernel mounts nothing that was opened in another one.
/// not_found when something else is there now.
Result<NamedContainer> reopen_container(const NamedContainer& container);

/// ENROOT_DATA_PATH, private to the caller; made if it is missing. Its containers run as the user: who else can write
/// there decides what the user runs.
Result<PrivateDirectory> open_data_directory(const EnrootConfig& config);

/// Where a container of this name is, or would be. ErrorKind::usage for what cannot be a name (empty, a slash, a
/// leading dot).
Result<std::string> container_path(const EnrootConfig& config, std::string_view name);

/// Whose containers count. user: the caller's, root's, and what he as root in it has given to an id of his range
/// (own_ids.hpp). anybody: all that are in his ENROOT_DATA_PATH, so that none which cannot be removed is
/// passed over in silence.
enum class OwnedBy { user, anybody };

/// Whether what has that name in ENROOT_DATA_PATH is the user's (OwnedBy::user), else denied. A link was made by him,
/// who alone can write there, and so is where it leads.
Result<void> check_owner(const PrivateDirectory& data, const std::string& name);

/// ErrorKind::usage for what cannot be a name (empty, a slash, a leading dot), not_found ("No such file or directory:
/// PATH") when there is none, denied when it, or ENROOT_DATA_PATH, is another user's. What a running step keeps on disk
/// ("pyxis_JOB.STEP") is no container.
Result<NamedContainer> find_container(const EnrootConfig& config, std::string_view name, OwnedBy owner = OwnedBy::user);

/// Sorted by name, not held open; unfinished ones are not among them. No directory is no container. Without those of
/// other users.
Result<std::vector<NamedContainer>> list_containers(const EnrootConfig& config, OwnedBy owner = OwnedBy::user);

}  // namespace situla
