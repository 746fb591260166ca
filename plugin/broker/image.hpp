// In what form does an image reach the container's builder? Mounted by the kernel, or as a file.
#pragma once

#include <optional>
#include <string>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "plugin/broker/node/image_mounts.hpp"
#include "plugin/broker/step.hpp"

namespace situla {

struct StepImage {
  UniqueFd mount;         ///< detached mount of the user's to attach (kernel tier), or none
  UniqueFd file;          ///< other tiers: open image file, or a parcel with it; none: the task's packet has it
  const char* mode = "";  ///< builder_fd: mounted, image-fuse, image-extract, image-auto, named
  std::optional<ImageInUse> in_use;          ///< keeps the node-wide mount for as long as the container is there
  OwnerWay owner_way = OwnerWay::automatic;  ///< by which way the mount's files are the user's; automatic: no mount
  std::string not_mounted{};                 ///< why the kernel could not mount it, where it was to; else empty
  UniqueFd saved;                            ///< the mounted file, if --container-save may need it
};

struct GivenImage {
  int file;                ///< of the store; without a name there, the socket in which a user's file lies
  std::string store_name;  ///< empty: it is the user's
  bool local;              ///< the file is this node's copy, which is mounted beside the store's own
};

/// mapping: of make_mapping_namespace(), or none.
Result<StepImage> make_image(const Step& step, const GivenImage& given, UniqueFd mapping);

/// RootOperation::keep_container_image: the node's mount of an image of the store, for a named container that was made
/// of it. Without its file: what --container-save exports lies with the container.
Result<StepImage> mount_copied_image(const Step& step, const std::string& store_name);

/// The last file in a user's parcel, or in the packet that his task sent, for the kernel to mount. A process that runs
/// as the user, and that he cannot trace, takes it out and looks at it: a file that his own file system serves hangs
/// that process, and never the broker. ErrorKind::unsupported: it is such a file.
Result<UniqueFd> take_user_image(const Step& step, int socket);

}  // namespace situla
