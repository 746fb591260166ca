#include "hooks/inject/edits/apply.hpp"

#include <optional>

#include "common/base/text.hpp"
#include "hooks/inject/edits/host_boundary.hpp"
#include "hooks/inject/edits/leftovers.hpp"
#include "hooks/inject/edits/program.hpp"
#include "hooks/inject/ldcache/library_cache.hpp"

namespace situla {
namespace {

/// Read-only at last, when everything beneath them is there.
std::vector<MountStep> finished_covers(const std::vector<MountStep>& mounts) {
  std::vector<MountStep> steps;
  for (const MountStep& cover : mounts)
    if (cover.kind == StepKind::cover && cover.flags.read_only) {
      steps.push_back(cover);
      steps.back().kind = StepKind::remount;
      steps.back().parameters.clear();
    }
  return steps;
}

}  // namespace

Result<void> apply(const ContainerEdits& edits, const ApplyTarget& target, LogSink& log) {
  // Nearly all hooks of nearly all containers.
  if (edits.mounts.empty() && edits.files.empty() && edits.programs.empty() && edits.libraries.empty()) return {};
  std::optional<RootDir> own;
  if (!edits.in_host_directories) {
    TRY_ASSIGN(own, spare_host_directories(target.root));
  }
  const ApplyTarget spared{own ? *own : target.root, target.root_path, target.working_directory};
  remove_leftovers(edits.mounts, edits.libraries.libraries, spared.root, log);
  TRY(mount_steps(edits.mounts, spared, log));
  TRY(apply_file_changes(edits.files, spared.root, log));
  TRY(mount_steps(finished_covers(edits.mounts), spared, log));
  for (const ProgramEdit& program : edits.programs)
    TRY_CONTEXT((program.origin.empty() ? "" : program.origin + ": ") + "run " + printable(program.path),
                run_program(program, spared, log));
  return edits.libraries.empty() ? Result<void>() : update_library_cache(edits.libraries, spared.root, log);
}

}  // namespace situla
