// Which namespaces may the broker hand out, and how are a container's processes ended?
#pragma once

#include <optional>
#include <vector>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/protocol/messages.hpp"
#include "common/sys/mount/id_maps.hpp"
#include "common/sys/mount/namespaces.hpp"

namespace situla {

/// What our own child `builder` has open under a number, as a place that cannot be read (O_PATH): whatever it is, to
/// open and to close it asks no file system. Not to be handed out: it may be more than the user can open.
Result<UniqueFd> look_at_descriptor(pid_t builder, uint32_t number);

/// RootOperation::hand_out_namespaces: opens those that our own child `builder` has open, and checks them.
Result<NamespaceFds> open_found_namespaces(pid_t builder, const Isolation& isolation,
                                           const std::vector<uint32_t>& numbers, uid_t owner);

/// The user namespace that our own child `builder` has made, checked to be one of the user's own and not ours.
Result<UniqueFd> open_user_namespace(pid_t builder, uid_t owner);

/// RootOperation::hand_out_namespaces: opens the namespaces of our own child `builder` and checks them.
Result<NamespaceFds> open_container_namespaces(pid_t builder, const Isolation& isolation, uid_t owner);

/// Whether a process, by its open /proc/<pid>, has this real user id.
bool belongs_to(int proc_fd, uid_t uid);

/// RootOperation::kill_container: SIGKILL to every process of `owner`, or of his range, in that user namespace or in
/// one within; repeats until none is left or two seconds have passed; what is left then is logged.
void end_container(int user_namespace_fd, uid_t owner, const std::optional<IdRange>& range);

}  // namespace situla
