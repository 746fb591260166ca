// Which namespaces does `start` make, and what does each need to be of use? COMPAT.md 1 (--container-unshare) and 4
// (ENROOT_UNSHARE_*).
#pragma once

#include <string>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/spec/container_spec.hpp"
#include "hooks/run/enroot_config.hpp"

namespace situla {

/// An option or the configuration asks for it.
Isolation wanted_isolation(const Isolation& options, const EnrootConfig& config);

/// For unshare_namespaces(): net, ipc and uts. A PID namespace comes last of all, when everything is mounted.
unsigned namespace_bits(const Isolation& isolation);

struct NamespaceRequest {
  Isolation isolation;
  bool user = true;  ///< false: root stays root of the node (ENROOT_ALLOW_SUPERUSER)
  bool remap_root = false;
  uid_t uid = 0;
  gid_t gid = 0;
  std::string stage;  ///< directory on which a tmpfs of the new namespace is mounted
};

/// Root who is allowed to be root of the node in containers: without a user namespace.
bool is_superuser(const EnrootConfig& config);

/// The calling process is in the new namespaces afterwards, all but the PID namespace; the loopback interface is up,
/// and the stage is a tmpfs. `stage` is the directory as it was opened before, which must be the same still.
Result<void> enter_namespaces(const NamespaceRequest& request, const UniqueFd& stage);

}  // namespace situla
