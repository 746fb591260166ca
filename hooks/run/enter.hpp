// How does a process get inside a container? Root, environment, hooks, mounts, pivot_root: COMPAT.md section 6, steps 1
// to 6.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/spec/environment.hpp"
#include "hooks/containers/container_root.hpp"
#include "hooks/inject/edits/edits.hpp"
#include "hooks/scripts/hook_sequence.hpp"

namespace situla {

/// The container that this process is in.
struct Container {
  ContainerRoot root;             ///< no path leads to root.path any more
  Environment environment;        ///< before the login shell; after it, when prepare_container() made the container
  std::string workdir;            ///< of the image, absolute, inside; known to prepare_container() only
  std::optional<std::string> rc;  ///< of the configuration script: a script that replaces /etc/rc
  UniqueFd stage;                 ///< the stage's directory, which no path leads to any more
  std::chrono::milliseconds hooks_time{0}, session_time{0};  ///< what hooks took, and login shell with /etc/rc

  /// An unnamed file in the stage, close-on-exec, opened for reading and appending: for what only the preparation
  /// needs.
  [[nodiscard]] Result<UniqueFd> temporary_file(std::string_view content = {}) const;
};

/// The caller has unshared user and mount namespaces and the id maps are written; it is single-threaded. On success the
/// calling process is inside (pivot_root done, cwd "/"), and nothing of the image has run yet. On error the message is
/// complete; nothing outside the namespaces was changed except scratch, which is removed. The request's image is
/// closed: who serves it has it open.
Result<Container> enter_container(ContainerRequest& request, LogSink& log);

/// What that would change in the container's root, part by part, found without doing more of it than the mounts that
/// hooks look at. Scripts are named and do not run.
Result<std::vector<ContainerEdits>> plan_in_container(ContainerRequest& request, HookUse use, LogSink& log);

}  // namespace situla
