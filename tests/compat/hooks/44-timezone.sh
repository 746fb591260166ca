#!/bin/sh
# All of the cluster logs in one time zone.
set -e
zone=Europe/Berlin
echo "TZ=$zone" >> "$ENROOT_ENVIRON"
echo "$zone" > "$ENROOT_ROOTFS/etc/timezone"
