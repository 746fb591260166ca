#!/usr/bin/env bash
# enroot start --conf notebook.sh IMAGE [PORT]: a server with a token of its own.
#ENROOT_REMAP_ROOT=y
#ENROOT_ROOTFS_WRITABLE=y

port=${1:-8888}
token=$(printf '%s' "${USER}-${port}" | sha256sum | cut -c 1-16)

environ() {
    cat <<- EOM
	NOTEBOOK_PORT=${port}
	NOTEBOOK_TOKEN="${token}"
	EOM
}

hooks() {
    mkdir -p "${ENROOT_ROOTFS}/root/.notebook"
    printf 'port = %s\n' "${port}" > "${ENROOT_ROOTFS}/root/.notebook/config"
    [ "$(grep '^NOTEBOOK_PORT=' "${ENROOT_ENVIRON}")" = "NOTEBOOK_PORT=${port}" ]
}

rc() {
    cd /root/.notebook || exit 1
    echo "serving on ${NOTEBOOK_PORT} with ${NOTEBOOK_TOKEN}, $# words"
    exec cat config
}
