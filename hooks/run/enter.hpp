// How does a process get inside a container? Root, environment, hooks, mounts, pivot_root: COMPAT.md section 6, steps 1
// to 6.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hooks/inject/edits/edits.hpp"
#include "hooks/run/container_root.hpp"
#include "hooks/run/host_script.hpp"
#include "hooks/run/isolation.hpp"
#include "hooks/run/prepare.hpp"

namespace situla {

/// What `start` has and a Slurm step has not; only `isolation` is of both.
struct ContainerExtras {
  std::vector<std::string> mounts;                 ///< fstab lines of --mount
  std::vector<std::string> environment;            ///< -e words
  std::vector<std::string> command;                ///< what will run: "$@" of the configuration script
  std::optional<std::string> configuration;        ///< --conf: path of the script
  ScriptOutput script_output = ScriptOutput::log;  ///< of hooks and of the configuration script
  Isolation isolation;                             ///< namespaces that were made already, or will be (PID)
  bool changes_in_memory = false;                  ///< a writable image leaves nothing on disk while it runs
  std::string scratch_parent;                      ///< empty: ENROOT_DATA_PATH
};

struct EnteredContainer {
  Environment environment;  ///< before the login shell
  std::string root_kind;    ///< ContainerRoot::kind
  UniqueFd changes;         ///< ContainerRoot::changes
  ImageServer server;
  Scratch scratch;
  std::optional<std::string> rc;  ///< of the configuration script: a script that replaces /etc/rc
  UniqueFd stage;                 ///< the stage's directory, which no path leads to any more: room for temporary files
};

/// As for prepare_container(), but nothing of the image has run yet when it returns.
Result<EnteredContainer> enter_container(PrepareRequest request, const ContainerExtras& extras,
                                         const EnrootConfig& config, LogSink& log);

/// What devices would add to that container (planned_edits()), found in its root before anything of it is done.
Result<ContainerEdits> plan_in_container(PrepareRequest request, const ContainerExtras& extras,
                                         const EnrootConfig& config, LogSink& log);

/// no_new_privs, and for whoever is not root inside an empty bounding set (COMPAT.md 6.6): before anything of the image
/// is executed.
Result<void> restrict_privileges(bool is_root);

/// An unnamed file in the stage, close-on-exec, opened for reading and appending.
Result<UniqueFd> temporary_file(const UniqueFd& stage, std::string_view content = {});

}  // namespace situla
