// How does an ordinary user start a container by hand, without any privileged helper? `situla start`.
#pragma once

#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "hooks/containers/request.hpp"
#include "hooks/inject/edits/edits.hpp"
#include "hooks/scripts/hook_sequence.hpp"

namespace situla {

/// This single-threaded process becomes the container's command: same terminal, process group, signals and standard
/// descriptors, all others closed; its exit code is the command's. So it returns on failure only, but for a command in
/// a PID namespace of its own, whose exit code it returns. Nothing is left afterwards, however it ends: everything is
/// in this process's namespaces, apart from the tree of an image that had to be extracted (under ENROOT_TEMP_PATH),
/// which a waiting child removes.
Result<int> start_container(ContainerRequest request, LogSink& log);

/// What start_container() would change in the container's root, part by part, in the order of application: no script
/// runs, and no program of the image. This single-threaded process is in the namespaces of that container afterwards,
/// and good for nothing but to say what it found.
Result<std::vector<ContainerEdits>> plan_start(ContainerRequest request, HookUse use, LogSink& log);

}  // namespace situla
