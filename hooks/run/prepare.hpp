// How does an image become a container that tasks can join? Everything from fresh namespaces to the environment of the
// tasks.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <sys/types.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/spec/container_spec.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/site_config.hpp"
#include "hooks/mount/image_mount.hpp"
#include "hooks/run/enroot_config.hpp"
#include "hooks/run/named_container.hpp"
#include "hooks/run/scratch.hpp"

namespace situla {

/// Where the container's files come from.
struct RootSource {
  enum class Kind {
    mounted,  ///< `path`: a directory on which the image is mounted already, read-only, owner = the user (kernel tier)
    image,    ///< `image`: an open squashfs file, to be served by FUSE or extracted, as `mount` says
    directory,  ///< `path`: an extracted root file system that belongs to the user (`create`)
    layered,    ///< `path`: a container of NamedContainer::Kind::layered
    empty,      ///< no files: what devices would bring into it
  };
  Kind kind = Kind::mounted;
  std::string path;
  UniqueFd image;
  MountKind mount = MountKind::automatic;  ///< for image: fuse, extract, or automatic (fuse when it works)
  std::shared_ptr<const UniqueFd> held{};  ///< of directory and layered, what `path` was when it was found; may be none

  /// A container that was found (find_container), with an identity from now on.
  static RootSource of(const NamedContainer& container);
};

struct PrepareRequest {
  ContainerSpec spec;
  Environment host;  ///< the job's (srun) or the user's (start) environment, as COMPAT.md 2 wants it for preparation
  RootSource root;
  uid_t host_uid = 0;  ///< ids of the user outside; inside they are the same, or 0 with remap_root
  gid_t host_gid = 0;
  bool remap_root = false;  ///< as the id maps of the current user namespace were written
  DeviceSettings devices;   ///< read_device_settings(), before the user namespace
  Isolation isolation;      ///< the other namespaces, made already (PID: made afterwards)
  bool for_step = false;    ///< tasks of a Slurm step will join: its PMIx server's directories are mounted as well
  std::string stage;        ///< an empty directory on a tmpfs of this mount namespace, owned by the user, mode 0700
  std::string
      scratch_name;  ///< "pyxis_<jobid>.<stepid>": directory name under ENROOT_DATA_PATH for a writable upper layer
  ScratchNotice scratch_notice;  ///< may be empty
};

struct PreparedContainer {
  Environment environment;  ///< of the container, after login shell and rc; overwrites the job's (COMPAT.md 2)
  std::string workdir;      ///< of the image; absolute, inside. That of the specification is checked, no more
  std::string root_kind;    ///< ContainerRoot::kind
  UniqueFd changes;         ///< ContainerRoot::changes
  ImageServer server;       ///< of an image that is served, or empty; ends by itself
  UniqueFd
      scratch_parent;  ///< directory that holds the writable upper layer on disk, opened before pivot_root; or none
  std::string
      scratch_name;  ///< its name beneath scratch_parent, to be removed (remove_tree_at) when the container ends
  std::string scratch_path;  ///< the same as a host path, for a cleaner that runs outside; empty when there is none
};

/// What situla.toml says of devices; a file that is wrong is ignored with a warning. Inside a user namespace nobody can
/// tell that it is root's.
DeviceSettings read_device_settings(LogSink& log);

/// Whether the container maps the user to root / is writable: spec first, then ENROOT_REMAP_ROOT /
/// ENROOT_ROOTFS_WRITABLE.
bool wants_remap_root(const ContainerSpec& spec, const EnrootConfig& config);
bool wants_writable(const ContainerSpec& spec, const EnrootConfig& config);

/// The caller has unshared user and mount namespaces and the id maps are written; it is single-threaded. On success the
/// calling process is inside the container (pivot_root done, cwd "/"), no image code runs any more, and its mount, user
/// (and cgroup) namespaces are what tasks join. Order: COMPAT.md section 6. On error the message is complete; nothing
/// outside the namespaces was changed except scratch, which is removed.
Result<PreparedContainer> prepare_container(PrepareRequest request, const EnrootConfig& config, LogSink& log);

}  // namespace situla
