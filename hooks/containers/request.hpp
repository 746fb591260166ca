// What shall a container be? What srun, `situla start` or a bundle ask for, with what only the host's side can tell.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "common/base/log.hpp"
#include "common/base/unique_fd.hpp"
#include "common/spec/container_spec.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/mount/subordinate_ids.hpp"
#include "hooks/config/enroot_config.hpp"
#include "hooks/containers/named_container.hpp"
#include "hooks/containers/scratch.hpp"
#include "hooks/mount/step.hpp"

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
  std::string mounted{};  ///< of layered: where its image is mounted already, as for Kind::mounted; empty: nowhere
  std::shared_ptr<const UniqueFd> held{};  ///< of directory and layered, what `path` was when it was found; may be none

  /// A container that was found (find_container), with an identity from now on.
  static RootSource of(const NamedContainer& container);
};

/// What `situla start` and a bundle are told on their command lines.
struct StartOptions {
  std::vector<std::string> mounts;       ///< --mount: "SRC:DST[:TYPE[:OPTIONS]]", the fields of an fstab line
  std::vector<std::string> environment;  ///< --env: NAME or NAME=VALUE
  std::string rc;                        ///< --rc: path of a script that replaces /etc/rc; may be empty
  std::string configuration;             ///< --conf: path of a script; may be empty
  bool root = false, writable = false;
  Isolation isolation;  ///< --pid --net --ipc --uts
};

/// Does a container need ids besides its user's own (common/sys/mount/id_maps.hpp)?
struct RangeWish {
  bool wanted = false;               ///< if there is a range; in the container's user namespace: there is one
  std::optional<IdRange> exactly{};  ///< it has files of this one
};

struct ContainerRequest {
  /// Of the calling user, who is in his directory and in no user namespace yet: there nobody can tell that situla.toml
  /// is root's. What the specification says beats the configuration.
  static ContainerRequest of_this_user(ContainerSpec spec, Environment host, EnrootConfig config, LogSink& log);
  /// The same for a command of his. `config` has the directives of the configuration script already.
  /// spec: what the options are put on top of.
  static ContainerRequest of_start(StartOptions options, Environment host, EnrootConfig config, LogSink& log,
                                   ContainerSpec spec = {});

  RootSource root;
  ContainerSpec spec;
  Environment host;     ///< the job's (srun) or the user's (start) environment, as COMPAT.md 2 wants it for preparation
  EnrootConfig config;  ///< with what the specification says on top, for hooks and scripts
  uid_t uid = 0;        ///< of the user outside; inside it is the same, or 0 with remap_root
  gid_t gid = 0;
  bool remap_root = false, writable = false, mount_home = false;
  RangeWish range;            ///< range_wish()
  IdRangeRule id_ranges;      ///< of situla.toml
  Isolation isolation;        ///< the namespaces beside user, mount and cgroup namespace
  DeviceSettings devices;     ///< of situla.toml
  bool slurm_inside = false;  ///< a step has Slurm's commands: neither situla.toml nor the user says otherwise

  std::string step;  ///< "pyxis_JOB.STEP": tasks of this Slurm step will join; empty: a command of the user's
  ScratchNotice scratch_notice;  ///< may be empty

  ImagePlaces mounted_images;  ///< of registries, that mounts name

  StartOptions start;                ///< of a command
  std::vector<std::string> command;  ///< empty: what /etc/rc says, or a shell

  [[nodiscard]] bool for_step() const { return !step.empty(); }
  /// An empty directory on a tmpfs of the container's mount namespace, owned by the user, mode 0700.
  [[nodiscard]] std::string stage() const { return config.runtime_path(); }
  [[nodiscard]] uid_t inside_uid() const { return remap_root ? 0 : uid; }
  [[nodiscard]] gid_t inside_gid() const { return remap_root ? 0 : gid; }
  /// Root who is allowed to be root of the node in containers: `start` makes no user namespace then.
  [[nodiscard]] bool real_root() const { return uid == 0 && config.flag("ENROOT_ALLOW_SUPERUSER"); }
};

/// situla.toml; one that is wrong is ignored with a warning.
SiteConfig load_site_config(LogSink& log);

}  // namespace situla
