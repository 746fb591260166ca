#!/usr/bin/env bash
# enroot start --conf build.sh IMAGE COMMAND...: compiles in memory, sources from the host.
# ENROOT_ROOTFS_WRITABLE no

readonly sources=/shared/sources

environ() {
    echo "SOURCES=/src"
    echo "MAKEFLAGS=-j$(nproc)"
}

mounts() {
    echo "${sources} /src none x-create=dir,rbind,ro"
    echo "tmpfs /build tmpfs x-create=dir,size=64m,mode=1777"
}

hooks() {
    common::log INFO "sources from ${sources}"
    [ -d "${sources}" ] || common::err "no sources: ${sources}"
}

rc() {
    cd /build
    exec "$@"
}
