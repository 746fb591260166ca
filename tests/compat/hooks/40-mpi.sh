#!/usr/bin/env bash
# The MPI libraries that fit the interconnect, before those of the image.
set -euo pipefail
source "${ENROOT_LIBRARY_PATH}/common.sh"

mpi=/shared/site/mpi
[ -d "${mpi}/lib" ] || exit 0
common::checkcmd grep sed enroot-mount

for library in "${mpi}"/lib/*.so*; do
    library=$(common::realpath "${library}")
    printf "%s /opt/site/mpi/lib/%s none x-create=file,bind,ro,nosuid,nodev,private\n" "${library}" "${library##*/}"
done | enroot-mount --root "${ENROOT_ROOTFS}" -

path=$(grep '^LD_LIBRARY_PATH=' "${ENROOT_ENVIRON}" | tail -n 1 | cut -d '=' -f 2- || :)
echo "LD_LIBRARY_PATH=/opt/site/mpi/lib${path:+:${path}}" >> "${ENROOT_ENVIRON}"
