#!/usr/bin/env bash
# A scratch directory for each job, removed by the epilog.
set -eu

[ -n "${SLURM_JOB_ID-}" ] && [ -d /shared/scratch ] || exit 0

scratch="/shared/scratch/${SLURM_JOB_USER:-${USER}}.${SLURM_JOB_ID}"
(umask 077 && mkdir -p "${scratch}")
enroot-mount --root "${ENROOT_ROOTFS}" - <<< "${scratch} /scratch none x-create=dir,bind,rw,nosuid,nodev"
cat >> "${ENROOT_ENVIRON}" <<EOM
SCRATCH=/scratch
TMPDIR=/scratch
EOM
