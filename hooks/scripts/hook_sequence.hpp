// Which hooks run for this container, built in or scripts, in which order, and how? COMPAT.md 6.3.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/config/enroot_config.hpp"
#include "hooks/inject/edits/changes.hpp"
#include "hooks/inject/hooks.hpp"
#include "hooks/scripts/host_script.hpp"
#include "hooks/scripts/known_scripts.hpp"

namespace situla {

struct HookStep {
  std::optional<BuiltInHook> built_in;
  std::string script;  ///< path, when it is not built in
};

enum class HookUse {
  command,  ///< a container of the user's: `start`
  step,     ///< of a Slurm step, whose tasks join it
  devices   ///< none that starts: only the hooks that bring devices
};

/// hooks.d of the site, then of the user: executable *.sh files in the order of their names. enroot's own scripts,
/// unchanged, become the built-in hooks; each of those runs once. A site's hooks.d with standard scripts in it is one
/// that enroot's package made: what is not there, or not executable, was taken away on purpose and does not run.
/// Without any of them the standard hooks run as if they were there, but for those whose name is a link to /dev/null.
/// GPUs of AMD and Intel, the fabric and what --container-devices asks for come last, and PMIx in a step, whatever
/// hooks.d holds.
Result<std::vector<HookStep>> hook_sequence(const EnrootConfig& config, HookUse use,
                                            std::span<const KnownScript> known = released_scripts());

/// Makes the hooks' changes, and those of the environment (which `context` refers to); returns what is to be mounted
/// after the hooks, in the order in which built-in hooks asked for it. What scripts ask for is in ENROOT_MOUNTS. In a
/// dry run no script runs; what one would have set counts for nothing.
Result<std::vector<MountStep>> run_hooks(const std::vector<HookStep>& sequence, const HookContext& context,
                                         ScriptHost& scripts, Environment& environment, Changes& changes);

}  // namespace situla
