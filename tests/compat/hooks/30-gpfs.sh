#!/bin/bash
# Every parallel file system of the cluster, at the same place as outside.
set -eu
shopt -s nullglob

for fs in /shared/gpfs/*; do
    [ -d "${fs}" ] || continue
    cat << EOM >> "${ENROOT_MOUNTS}"
${fs} ${fs} none x-create=dir,rbind,rw,nosuid,nodev,rslave,nofail
EOM
done
