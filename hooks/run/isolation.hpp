// Which namespaces does `start` make, and what does each need to be of use? COMPAT.md 1 (--container-unshare) and 4
// (ENROOT_UNSHARE_*).
#pragma once

#include "common/base/result.hpp"
#include "common/spec/container_spec.hpp"
#include "hooks/containers/request.hpp"

namespace situla {

/// For unshare_namespaces(): net, ipc and uts. A PID namespace comes last of all, when everything is mounted.
unsigned namespace_bits(const Isolation& isolation);

/// The calling process is in the new namespaces afterwards, all but the PID namespace; the loopback interface is up,
/// and the stage, which is made if it is missing, is a tmpfs. Of the user's groups it has those that /etc/subgid lets
/// him map. A range is wanted afterwards only if there is one.
Result<void> enter_own_namespaces(ContainerRequest& request, LogSink& log);

/// no_new_privs, and for whoever is not root inside an empty bounding set (COMPAT.md 6.6): before anything of the image
/// is executed.
Result<void> restrict_privileges(bool is_root);

}  // namespace situla
