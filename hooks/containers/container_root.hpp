// How do an image or a directory become the root file system of a container? As a mount with a layer of its own on top.
#pragma once

#include <optional>
#include <string>

#include <sys/types.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/sys/file.hpp"
#include "hooks/containers/request.hpp"
#include "hooks/mount/image_mount.hpp"

namespace situla {

struct ContainerRoot {
  std::string path;    ///< the mount point, beneath the stage: ENROOT_ROOTFS
  std::string kind;    ///< what it is made of, for the log: kernel, fuse, extracted, layers, layers-fuse or tree
  UniqueFd changes;    ///< the directory that takes what is written: an overlay's upper layer, or the tree itself
  ImageServer server;  ///< of an image that is served, or empty
  Scratch scratch;
  std::optional<FileLock> lock;  ///< held while a writable directory is being prepared
};

/// The root is writable as far as hooks and x-create need it; flags nosuid and nodev are set. Its caller makes it
/// read-only.
Result<ContainerRoot> build_root(const ContainerRequest& request, LogSink& log);

}  // namespace situla
