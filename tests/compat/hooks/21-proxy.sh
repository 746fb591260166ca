#! /bin/bash
# Compute nodes reach the outside through a proxy only.
set -euo pipefail

for var in http_proxy https_proxy no_proxy; do
    if [ -n "${!var-}" ]; then
        printf "%s=%s\n" "${var}" "${!var}" >> "${ENROOT_ENVIRON}"
        printf "%s=%s\n" "${var^^}" "${!var}" >> "${ENROOT_ENVIRON}"
    fi
done
