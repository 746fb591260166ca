# Clean Debian roots, made once below build/lab/roots: the bare system, and one with Slurm on it. Sourced.
# shellcheck shell=bash

roots=$lab_state/roots
# .deb files that some root has needed once; every root sees them as its apt cache, so that nothing is fetched twice.
debs=$lab_state/debs

# enter_directory ROOT CMD...: in that root, with this machine's network. pivot_root, not chroot: dpkg does not mind, but it is the way
# that machines (lib/machine) take, too.
enter_directory() {
  # shellcheck disable=SC2016
  LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    unshare --mount --propagation private bash -euc '
      root=$1 debs=$2
      shift 2
      mount --bind "$root" "$root"
      for top in dev proc sys; do mount --rbind "/$top" "$root/$top"; done
      mount --bind "$debs" "$root/var/cache/apt/archives"
      # Names are looked up as this machine does it, for as long as this takes.
      for file in hosts resolv.conf; do touch "$root/etc/$file"; mount --bind "/etc/$file" "$root/etc/$file"; done
      cd "$root"
      pivot_root . mnt
      umount -l /mnt
      cd /
      exec "$@"' enter-directory "$1" "$debs" "${@:2}"
}

# What apt of this machine was told about proxies and mirrors is none of the root's business: it asks nobody once it runs.
make_bare() {
  "$lab_repo/tests/support/bookworm" "$lab_state"
  cp -a "$lab_state/bookworm" "$1"
  # apt, unlike apt-get, would empty the cache behind itself; and a root that vanishes needs no fsync.
  echo 'Binary::apt::APT::Keep-Downloaded-Packages "true";' >"$1/etc/apt/apt.conf.d/90keep"
  echo force-unsafe-io >"$1/etc/dpkg/dpkg.cfg.d/90unsafe-io"
  enter_directory "$1" apt-get -q update
}

# The bare system with a Slurm that nobody has configured.
make_slurm() {
  cp -a "$roots/bare" "$1"
  # Nothing is started while the root is made.
  printf '#!/bin/sh\nexit 101\n' >"$1/usr/sbin/policy-rc.d"
  chmod 755 "$1/usr/sbin/policy-rc.d"
  enter_directory "$1" apt-get -q install -y --no-install-recommends slurm-wlm munge systemd
  rm "$1/usr/sbin/policy-rc.d"
}

# clean_root bare|slurm: prints where it is; makes it first if nobody has.
clean_root() (
  [ "$1" = bare ] || clean_root bare >/dev/null
  root=$roots/$1
  mkdir -p "$roots"
  exec 9>"$root.lock"
  flock 9
  if [ ! -e "$root.made" ]; then
    rm -rf --one-file-system "$root"
    "make_$1" "$root" >"$root.log" 2>&1 </dev/null || { tail -n 20 "$root.log" >&2; die "making $root failed; the whole log is $root.log"; }
    touch "$root.made"
  fi
  echo "$root"
)

# fetch_for [OPTION]... PACKAGES...: what `apt-get install` of these .deb files (paths) and packages needs, into the cache.
fetch_for() (
  root=$(clean_root bare)
  stamp=$debs/fetched.$(for name in "$@"; do [ -f "$name" ] && dpkg-deb --field "$name" Depends Recommends || echo "$name"; done | sha256sum | cut -c1-16)
  exec 9>"$debs/lock"
  flock 9
  [ ! -e "$stamp" ] || exit 0
  inside=()
  mkdir -p "$debs/local"
  for name in "$@"; do
    [ -f "$name" ] || { inside+=("$name"); continue; }
    cp "$name" "$debs/local/"
    inside+=("/var/cache/apt/archives/local/${name##*/}")
  done
  enter_directory "$root" apt-get -q install -y --download-only "${inside[@]}" >"$debs/fetch.log" 2>&1 </dev/null ||
    { tail -n 20 "$debs/fetch.log" >&2; die "fetching what $* need failed; the whole log is $debs/fetch.log"; }
  rm -r "$debs/local"
  touch "$stamp"
)
