// How do a container's hooks run, built-in ones and scripts, one after the other? COMPAT.md 6.3.
#pragma once

#include <vector>

#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "hooks/inject/edits/changes.hpp"
#include "hooks/inject/hook.hpp"
#include "hooks/scripts/hook_sequence.hpp"
#include "hooks/scripts/host_script.hpp"

namespace situla {

/// Makes the hooks' changes, and those of the environment (which `context` refers to); returns what is to be mounted
/// after the hooks, in the order in which built-in hooks asked for it. What scripts ask for is in ENROOT_MOUNTS. In a
/// dry run no script runs; what one would have set counts for nothing.
Result<std::vector<MountStep>> run_hooks(const std::vector<HookStep>& sequence, const HookContext& context,
                                         ScriptHost& scripts, Environment& environment, Changes& changes);

}  // namespace situla
