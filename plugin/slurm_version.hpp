// Which Slurm is this built for, and what differs between its versions? Slurm's headers are included here and nowhere
// else.
//
// From 22.05 to 26.05 nothing that the plugin uses has changed in the headers; README.md beside this file lists the
// versions that were built and run. What Slurm does differently, and the plugin must allow for:
//
// SlurmdParameters=contain_spank (24.05 on, with job_container/tmpfs): task_exit runs in a process that shares
// slurmstepd's memory but not its descriptors, in the job's mount namespace. A descriptor closed there stays open in
// slurmstepd.
//
// slurm_spank_init that fails on a node drains it for a batch job. Since 25.11 slurm_spank_init_failure_mode would
// choose; it stays at the default, because only a wrong plugstack.conf makes ours fail.
#pragma once

extern "C" {
#include <slurm/slurm.h>
#include <slurm/spank.h>
}

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(22, 5, 0)
#error "Situla needs Slurm 22.05 or newer"
#endif
