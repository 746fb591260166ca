#!/usr/bin/env bash
# Projects whose time is used up may not start containers.
set -eu
source "${ENROOT_LIBRARY_PATH}/common.sh"

if [ "${SITE_PROJECT-}" = expired ]; then
    common::log WARN "project ${SITE_PROJECT} has no time left"
    exit 13
fi
