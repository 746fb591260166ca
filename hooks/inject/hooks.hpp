// Which hooks are built in? One function each, behaving as enroot's standard script of that name (COMPAT.md 6, last
// paragraph).
#pragma once

#include "hooks/inject/hook.hpp"

namespace situla {

/// 10-aptfix: apt in a remapped-root container must not try to become _apt.
Result<Proposal> aptfix_hook(const InjectContext& context);
/// 10-cgroups: of each hierarchy the container sees its own group, read-only.
Result<Proposal> cgroups_hook(const InjectContext& context);
/// 10-devices: a /dev with nothing but the usual devices, for ENROOT_RESTRICT_DEV and with an IPC namespace of its own.
Result<Proposal> devices_hook(const InjectContext& context);
/// 10-home: the user's home directory, on /root when remapped, if the user asked for it.
Result<Proposal> home_hook(const InjectContext& context);
/// 10-localtime: the host's time zone.
Result<Proposal> localtime_hook(const InjectContext& context);
/// 10-shadow: passwd and group entries for root, nobody and the user; a home directory from /etc/skel.
Result<Proposal> shadow_hook(const InjectContext& context);

/// 98-nvidia: GPUs and their driver, by NVIDIA_VISIBLE_DEVICES and its company.
Result<Proposal> nvidia_hook(const InjectContext& context);
/// 99-mellanox: network adapters, by MELLANOX_VISIBLE_DEVICES.
Result<Proposal> mellanox_hook(const InjectContext& context);
/// In every container, whatever hooks.d holds: what --container-devices, or the site, asks for.
Result<Proposal> wanted_devices_hook(const InjectContext& context);

/// extra/50-mig-config: all MIG configuration devices where nvidia-smi says that MIG is enabled.
Result<Proposal> mig_config_hook(const InjectContext& context);
/// extra/50-sharp: variables of NCCL and SHARP in jobs that use a SHARP network.
Result<Proposal> sharp_hook(const InjectContext& context);
/// extra/50-slurm-pmi: SLURM_*, PMIX_* and PMI_* variables, and the directories of the PMIx server.
Result<Proposal> slurm_pmi_hook(const InjectContext& context);
/// In every Slurm step, also without that script: the directories of the step's PMIx server, as far as they are there,
/// and with remapped root munge's, because the server believes nobody else.
Result<Proposal> slurm_pmix_hook(const InjectContext& context);
/// extra/50-slurm-pytorch: what torch.distributed reads, from Slurm's variables; only what the container lacks.
Result<Proposal> slurm_pytorch_hook(const InjectContext& context);

/// "node1" of "node[1-3,7],other": the first name of a Slurm host list.
std::string first_host(std::string_view list);

}  // namespace situla
