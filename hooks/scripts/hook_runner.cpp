#include "hooks/scripts/hook_runner.hpp"

#include <algorithm>
#include <iterator>

namespace situla {

Result<std::vector<MountStep>> run_hooks(const std::vector<HookStep>& sequence, const HookContext& context,
                                         ScriptHost& scripts, Environment& environment, Changes& changes) {
  std::vector<MountStep> mounts;
  for (const HookStep& step : sequence) {
    if (!step.built_in) {
      changes.note_script(step.script);
      if (!changes.dry_run()) TRY(scripts.run(step.script, environment));
      continue;
    }
    TRY_ASSIGN(ContainerEdits edits, run_built_in_hook(*step.built_in, context));
    environment.merge(edits.environment);
    std::move(edits.mounts_after_hooks.begin(), edits.mounts_after_hooks.end(), std::back_inserter(mounts));
    edits.mounts_after_hooks.clear();
    TRY(changes.make(std::move(edits)));
  }
  return mounts;
}

}  // namespace situla
