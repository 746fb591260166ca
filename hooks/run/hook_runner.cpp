#include "hooks/run/hook_runner.hpp"

#include <algorithm>
#include <array>

#include "hooks/inject/edits/apply.hpp"
#include "hooks/inject/hook.hpp"
#include "hooks/mount/apply.hpp"
#include "hooks/mount/fstab.hpp"
#include "hooks/run/container_environment.hpp"

namespace situla {

namespace {

/// What a scene does not hold itself.
struct Surroundings {
  const RootDir& root;
  const Environment& environment;
  const UserEntry& user;
};

InjectContext context_of(const HookScene& scene, const Surroundings& surroundings, const Environment& environment,
                         LogSink& log) {
  return {scene.root,
          surroundings.root,
          surroundings.environment,
          environment,
          surroundings.user,
          scene.config.flag("ENROOT_REMAP_ROOT"),
          scene.config.flag("ENROOT_MOUNT_HOME"),
          scene.config.flag("ENROOT_RESTRICT_DEV"),
          scene.config.flag("ENROOT_UNSHARE_IPC"),
          log,
          scene.device_settings,
          scene.wanted_devices,
          scene.root_path,
          scene.uid == 0 && scene.config.flag("ENROOT_ALLOW_SUPERUSER")};
}

/// Those whose whole work is edits, and the one that decides a variable of theirs.
bool is_about_devices(const HookStep& step) {
  constexpr std::array<BuiltInHook, 4> kAboutDevices = {BuiltInHook::mig_config, BuiltInHook::nvidia,
                                                        BuiltInHook::mellanox, BuiltInHook::wanted_devices};
  return step.built_in && std::find(kAboutDevices.begin(), kAboutDevices.end(), *step.built_in) != kAboutDevices.end();
}

}  // namespace

Result<std::vector<MountStep>> run_hooks(const HookScene& scene, Environment& environment, LogSink& log) {
  const EnrootConfig& config = scene.config;
  const Environment host = expansion_environment(scene.host, config, scene.root_path);
  const UserEntry user = look_up_user(scene.uid, scene.gid, scene.host);
  TRY_ASSIGN(const RootDir host_root, RootDir::open("/"));
  const InjectContext context = context_of(scene, {host_root, host, user}, environment, log);
  std::vector<MountStep> mounts;
  TRY_ASSIGN(const std::vector<HookStep> sequence, hook_sequence(config, scene.use));
  for (const HookStep& step : sequence) {
    if (!step.built_in) {
      TRY(scene.scripts.run(step.script, environment));
      continue;
    }
    TRY_ASSIGN(Proposal proposal, run_built_in_hook(*step.built_in, context));
    if (!proposal.mounts_at_once.empty())
      TRY(mount_steps(proposal.mounts_at_once, current_directory(), {scene.root, scene.root_path}, log));
    TRY(apply_file_changes(proposal.files, scene.root, log));
    TRY(apply(proposal.edits, {scene.root, scene.root_path}, log));
    environment.merge(proposal.edits.environment);
    mounts.insert(mounts.end(), proposal.mounts.begin(), proposal.mounts.end());
    environment.merge(proposal.environment);
  }
  if (scene.configuration != nullptr) TRY(scene.configuration->hooks(environment));
  TRY_ASSIGN(const std::string lines, scene.scripts.mounts());
  TRY_ASSIGN(const std::vector<MountStep> asked, parse_literal_fstab(lines, 0, "ENROOT_MOUNTS"));
  mounts.insert(mounts.end(), asked.begin(), asked.end());
  return mounts;
}

Result<ContainerEdits> planned_edits(const HookScene& scene, Environment environment, LogSink& log) {
  const Environment host = expansion_environment(scene.host, scene.config, scene.root_path);
  const UserEntry user = look_up_user(scene.uid, scene.gid, scene.host);
  TRY_ASSIGN(const RootDir host_root, RootDir::open("/"));
  const InjectContext context = context_of(scene, {host_root, host, user}, environment, log);
  ContainerEdits edits;
  TRY_ASSIGN(const std::vector<HookStep> sequence, hook_sequence(scene.config, scene.use));
  for (const HookStep& step : sequence) {
    if (!is_about_devices(step)) continue;
    TRY_ASSIGN(Proposal proposal, run_built_in_hook(*step.built_in, context));
    environment.merge(proposal.edits.environment);
    environment.merge(proposal.environment);
    append(edits, std::move(proposal.edits));
  }
  return edits;
}

}  // namespace situla
