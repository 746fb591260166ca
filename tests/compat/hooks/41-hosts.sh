#!/bin/bash
# The licence server has no entry in the name service.
set -eu

cp /etc/hosts "${ENROOT_RUNTIME_PATH}/hosts"
echo "192.0.2.17 license.site.example license" >> "${ENROOT_RUNTIME_PATH}/hosts"
echo "${ENROOT_RUNTIME_PATH}/hosts /etc/hosts none x-create=file,bind,ro,nosuid,nodev" >> "${ENROOT_MOUNTS}"
