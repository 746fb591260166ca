// How do containers come to be under ENROOT_DATA_PATH, and how do they go? Whole, or not at all, whenever a process is
// killed; with layers, also when the power goes.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "common/sys/mount/subordinate_ids.hpp"
#include "hooks/config/enroot_config.hpp"
#include "hooks/containers/named_container.hpp"

namespace situla {

/// Of which kind a new container shall be.
enum class StorageWish {
  automatic,  ///< layered where images can be served and the data directory can hold an overlay's upper layer
  tree,       ///< extracted
  layered,    ///< or not at all
};

struct NewContainer {
  std::string path;      ///< from container_path()
  bool replace = false;  ///< of that path may be one already, which goes; denied where remove_container() leaves it
  StorageWish wish = StorageWish::automatic;
  int image = -1;              ///< a squashfs file, open for reading
  bool image_is_ours = false;  ///< it has no other name and no other user: it is kept itself, where that is possible
  std::string origin{};        ///< ContainerOrigin::image; may be empty
  /// A tree has the image's owners, if this rule and newuidmap(1) give its user the ids. Empty: all is his.
  std::function<IdRangeRule()> owners{};
};

/// What SITULA_CREATE (tree or layered) in the user's environment and the site's `mount = "extract"` say, in this
/// order.
Result<StorageWish> storage_wish(const Environment& environment, LogSink& log);

/// NewContainer::owners: the site's rule where the user will be root in the container, and wants a range.
std::function<IdRangeRule()> owners_wish(const Environment& environment, bool for_root);

/// ErrorKind::exists, "File already exists: PATH", unless it may be replaced.
Result<void> check_new_container(const std::string& path, bool replace);
/// Whether a new container of this configuration is layered. ErrorKind::unsupported, with the reason, when it has to be
/// and cannot. Makes ENROOT_DATA_PATH.
Result<bool> makes_layers(const EnrootConfig& config, StorageWish wish, LogSink& log);
/// Layered: the image is copied (shared blocks where the file system has them), so what becomes of the file later does
/// not matter; it is on the disk before the container has its name. A tree is not synced. ErrorKind::corrupt for what
/// is no image. Before that, what creates and removals left that were killed on this node is removed. Returns the new
/// container's identity (container_identity.hpp).
Result<std::string> create_container(const EnrootConfig& config, const NewContainer& request, LogSink& log);

/// What creates and removals left that were killed on this node. Without it, the next create or removal does the same.
void remove_unfinished(const EnrootConfig& config, LogSink& log);

/// Programs that run in it lose their files, as they do with enroot. From the first moment on the name is free.
/// ErrorKind::not_found when there is none; a link is none. Where it is another user's, or has files of a range that
/// cannot be had here, it stays as it is (ErrorKind::denied).
Result<void> remove_container(const EnrootConfig& config, std::string_view name, LogSink& log);

}  // namespace situla
