#!/usr/bin/env bash
# The site's own certificate authority, where each distribution keeps its bundle.
set -eu
source "${ENROOT_LIBRARY_PATH}/common.sh"

bundle=/shared/site/ca-bundle.pem
[ -f "${bundle}" ] || exit 0
for path in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do
    if [ -e "${ENROOT_ROOTFS}${path}" ]; then
        enroot-mount --root "${ENROOT_ROOTFS}" - <<< "${bundle} ${path} none bind,ro,nosuid,nodev"
    fi
done
mkdir -p "${ENROOT_ROOTFS}/etc/site"
cp "$(common::realpath "${bundle}")" "${ENROOT_ROOTFS}/etc/site/ca.pem"
printf "%s=/etc/site/ca.pem\n" SSL_CERT_FILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE >> "${ENROOT_ENVIRON}"
