// What does the broker hold of a finished container? Its namespaces: all tasks join them, and the last close frees
// them.
#pragma once

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/sys/namespaces.hpp"

namespace situla {

struct ContainerNamespaces {
  UniqueFd user, mount, cgroup;
};

/// The user namespace that our own child `builder` has made, checked to be one of the user's own and not ours.
Result<UniqueFd> open_user_namespace(pid_t builder, uid_t owner);

/// RootOperation::hand_out_namespaces: opens the namespaces of our own child `builder` and checks that they are the
/// user's own.
Result<ContainerNamespaces> open_container_namespaces(pid_t builder, uid_t owner);

/// RootOperation::kill_container: SIGKILL to every process of `owner` in that user namespace; repeats until none is
/// left or two seconds have passed.
Result<void> kill_container(int user_namespace_fd, uid_t owner);

}  // namespace situla
