// How do an image or a directory become the root file system of a container? As a mount with a layer of its own on top.
#pragma once

#include <optional>
#include <string>

#include <sys/types.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/sys/file.hpp"
#include "hooks/mount/image_mount.hpp"
#include "hooks/run/prepare.hpp"
#include "hooks/run/scratch.hpp"

namespace situla {

struct RootRequest {
  std::string stage;         ///< see PrepareRequest
  bool writable = false;     ///< changes are wanted: they go to scratch, if `keep_on_disk`
  bool keep_on_disk = true;  ///< false: changes stay in the stage's memory
  ScratchPlaceKind scratch_kind = ScratchPlaceKind::data;
  std::string scratch_parent;    ///< directory for scratch; made when needed
  std::string scratch_name;      ///< empty: no scratch, and so no extraction
  ScratchNotice scratch_notice;  ///< may be empty
  std::string mark;              ///< of a root without a name, by which `list --fancy` knows it (running.hpp)
  std::string image_name;        ///< of such a root, to be shown there; may be empty
  std::string container_name;    ///< as its user calls it, for messages; empty: as its directory
  uid_t uid = 0;                 ///< owner of an image's files, inside the user namespace
  gid_t gid = 0;
};

struct ContainerRoot {
  std::string path;    ///< the mount point, beneath the stage: ENROOT_ROOTFS
  std::string kind;    ///< what it is made of, for the log: kernel, fuse, extracted, layers or tree
  UniqueFd changes;    ///< the directory that takes what is written: an overlay's upper layer, or the tree itself
  ImageServer server;  ///< of an image that is served, or empty
  Scratch scratch;
  std::optional<FileLock> lock;  ///< held while a writable directory is being prepared
};

/// The root is writable as far as hooks and x-create need it; flags nosuid and nodev are set. Its caller makes it
/// read-only.
Result<ContainerRoot> build_root(const RootSource& source, const RootRequest& request, LogSink& log);

}  // namespace situla
