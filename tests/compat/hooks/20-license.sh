#!/usr/bin/env bash
# Commercial codes find the licence server by a file that the site keeps on its shared file system.
set -eu

license_dir=/shared/site/licenses
[ -r "${license_dir}/license.dat" ] || exit 0

echo "${license_dir} /opt/licenses none x-create=dir,bind,ro,nosuid,nodev" >> "${ENROOT_MOUNTS}"
if ! grep -q '^LM_LICENSE_FILE=' "${ENROOT_ENVIRON}"; then
    echo "LM_LICENSE_FILE=/opt/licenses/license.dat" >> "${ENROOT_ENVIRON}"
fi
