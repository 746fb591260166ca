// How does an ordinary user start a container by hand, without any privileged helper? `situla start`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/container_spec.hpp"
#include "common/spec/environment.hpp"
#include "hooks/inject/edits/edits.hpp"
#include "hooks/run/enroot_config.hpp"
#include "hooks/run/isolation.hpp"
#include "hooks/run/prepare.hpp"

namespace situla {

struct StartRequest {
  RootSource root;     ///< image (a squashfs file) or directory (a container made by `create`)
  ContainerSpec spec;  ///< remap_root and writable from --root and --rw; unset ones follow the configuration
  Environment host;    ///< the user's
  std::vector<std::string> mounts;           ///< --mount: "SRC:DST[:TYPE[:OPTIONS]]", the fields of an fstab line
  std::vector<std::string> environment;      ///< --env: NAME or NAME=VALUE
  std::optional<std::string> rc;             ///< --rc: path of a script that replaces /etc/rc
  std::optional<std::string> configuration;  ///< --conf: path of a configuration script
  Isolation isolation;                       ///< --pid --net --ipc --uts
  std::vector<std::string> command;          ///< empty: what /etc/rc says, or a shell
};

/// This single-threaded process becomes the container's command: same terminal, process group, signals and standard
/// descriptors, all others closed; its exit code is the command's. So it returns on failure only, but for a command in
/// a PID namespace of its own, whose exit code it returns. The directives of the configuration script count here
/// already. Nothing is left afterwards, however it ends: everything is in this process's namespaces, apart from the
/// tree of an image that had to be extracted (under ENROOT_TEMP_PATH), which a waiting child removes.
Result<int> start_container(StartRequest request, const EnrootConfig& config, LogSink& log);

/// What devices would add to a container that start_container() started: nothing of it is done, no script runs, and no
/// program of the image. This single-threaded process is in the namespaces of that container afterwards, and good for
/// nothing but to say what it found.
Result<ContainerEdits> plan_devices(StartRequest request, const EnrootConfig& config, LogSink& log);

/// An argument of --mount as a line of fstab.
std::string mount_argument_line(std::string_view argument);

}  // namespace situla
