// Which hooks are built in? One function each, behaving as enroot's standard script of that name (COMPAT.md 6, last
// paragraph). It looks and proposes edits; it never mounts or writes.
#pragma once

#include "common/base/result.hpp"
#include "hooks/inject/edits/edits.hpp"
#include "hooks/inject/hook.hpp"

namespace situla {

/// In the order of the table in hooks.cpp.
enum class BuiltInHook {
  aptfix,
  cgroups,
  devices,
  drm,
  fabric,
  home,
  localtime,
  mellanox,
  mig_config,
  nvidia,
  shadow,
  sharp,
  slurm_pmi,
  slurm_pmix,
  slurm_pytorch,
  wanted_devices
};

/// What one of them proposes; the error names it.
Result<ContainerEdits> run_built_in_hook(BuiltInHook hook, const HookContext& context);

/// 10-aptfix: apt in a remapped-root container must not try to become _apt.
Result<ContainerEdits> aptfix_hook(const HookContext& context);
/// 10-cgroups: of each hierarchy the container sees its own group, in a step that of all its tasks, read-only.
Result<ContainerEdits> cgroups_hook(const HookContext& context);
/// 10-devices: a /dev with nothing but the usual devices, for ENROOT_RESTRICT_DEV and with an IPC namespace of its own.
Result<ContainerEdits> devices_hook(const HookContext& context);
/// 10-home: the user's home directory, on /root when remapped, if the user asked for it.
Result<ContainerEdits> home_hook(const HookContext& context);
/// 10-localtime: the host's time zone.
Result<ContainerEdits> localtime_hook(const HookContext& context);
/// 10-shadow: passwd and group entries for root, nobody and the user; a home directory from /etc/skel.
Result<ContainerEdits> shadow_hook(const HookContext& context);

/// 98-nvidia: GPUs and their driver, by NVIDIA_VISIBLE_DEVICES and its company.
Result<ContainerEdits> nvidia_hook(const HookContext& context);
/// 99-mellanox: network adapters, by MELLANOX_VISIBLE_DEVICES.
Result<ContainerEdits> mellanox_hook(const HookContext& context);
/// In every container, whatever hooks.d holds: the nodes of GPUs whose drivers are the kernel's (AMD, Intel), by what
/// Slurm gave to the job, or AMD_VISIBLE_DEVICES.
Result<ContainerEdits> drm_hook(const HookContext& context);
/// In every container, whatever hooks.d holds: the node's libraries of the network fabric, as the site says, unless
/// SITULA_FABRIC=off in the job or the image.
Result<ContainerEdits> fabric_hook(const HookContext& context);
/// In every container, whatever hooks.d holds: what --container-devices, or the site, asks for.
Result<ContainerEdits> wanted_devices_hook(const HookContext& context);

/// extra/50-mig-config: all MIG configuration devices where nvidia-smi says that MIG is enabled.
Result<ContainerEdits> mig_config_hook(const HookContext& context);
/// extra/50-sharp: variables of NCCL and SHARP in jobs that use a SHARP network.
Result<ContainerEdits> sharp_hook(const HookContext& context);
/// extra/50-slurm-pmi: SLURM_*, PMIX_* and PMI_* variables, and the directories of the PMIx server.
Result<ContainerEdits> slurm_pmi_hook(const HookContext& context);
/// In every Slurm step, also without that script: PMIX_MCA_ptl, PMIX_MCA_psec and PMIX_MCA_gds as far as they are not
/// set, the directories of the step's PMIx server, as far as they are there, and with remapped root munge's, because
/// the server believes nobody else.
Result<ContainerEdits> slurm_pmix_hook(const HookContext& context);
/// extra/50-slurm-pytorch: what torch.distributed reads, from Slurm's variables; only what the container lacks.
Result<ContainerEdits> slurm_pytorch_hook(const HookContext& context);

/// "node1" of "node[1-3,7],other": the first name of a Slurm host list.
std::string first_host(std::string_view list);

}  // namespace situla
