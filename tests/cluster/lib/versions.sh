# Roots of other distributions, each with a Slurm of another version. Sourced by versions.
# shellcheck shell=bash

lab_roots=$lab_state/roots
# What only unit tests, style checks and measurements need.
left_out='catch2|libbenchmark-dev|clang-.*|libclang-.*|podman|debootstrap|hyperfine|zsh|bash-completion|isal|libpmix.*|libpmi2.*'

# The base system. Debian's keys are here; Ubuntu's are a package of trixie.
bootstrap() {
  local name=$1 root=$2
  case $name in
    trixie | sid)
      debootstrap --variant=minbase --include=ca-certificates "$name" "$root" ;;
    noble | resolute)
      make_root trixie
      in_root trixie apt-get -q install -y ubuntu-keyring
      debootstrap --variant=minbase --include=ca-certificates --components=main,universe \
        --keyring="$lab_roots/trixie/usr/share/keyrings/ubuntu-archive-keyring.gpg" "$name" "$root" \
        "" gutsy ;; # the script that knows where Ubuntu's archive is
  esac
}

# Everything of packaging/install-deps that the distribution has by the same name.
make_root() {
  local name=$1
  local root=$lab_roots/$name
  [ ! -e "$root.made" ] || return 0
  echo "versions: making $root (log: $root.log)" >&2
  mkdir -p "$lab_roots"
  rm -rf --one-file-system "$root"
  {
    bootstrap "$name" "$root"
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    # Mirrors and clocks disagree: an archive that was not renewed for days is good enough.
    in_root "$name" apt-get -q -o Acquire::Check-Valid-Until=false update
    in_root "$name" bash -c "(packaging/install-deps --list; echo util-linux-extra) | grep -vxE '$left_out' | sort >/tmp/wanted &&
      apt-cache pkgnames | sort | comm -12 - /tmp/wanted | xargs apt-get -q install -y --no-install-recommends && apt-get clean"
  } >"$root.log" 2>&1 </dev/null || { tail -n 20 "$root.log" >&2; die "making $root failed; the whole log is $root.log"; }
  touch "$root.made"
}

# The plugin, and with --everything all programs, for this distribution's Slurm.
build_in_root() {
  local name=$1 log=$lab_roots/$1.build.log
  if [ "$everything" = yes ]; then
    in_root "$name" bash -c "cmake --preset release -DBUILD_TESTING=OFF && tests/cluster/run --prepare"
  else
    in_root "$name" bash -c "cmake --preset release -DBUILD_TESTING=OFF -DCMAKE_INSTALL_PREFIX='$lab_prefix' \
      -DSITULA_LIBEXEC_DIR='$lab_prefix/libexec/situla' && cmake --build --preset release --target spank_situla &&
      rm -rf '$lab_prefix' && cp -a /host-lab/prefix '$lab_prefix' && cp build/release/plugin/spank_situla.so '$lab_prefix/lib/slurm/'"
  fi >"$log" 2>&1 || { tail -n 30 "$log" >&2; die "building in $name failed; the whole log is $log"; }
}

# in_root NAME CMD...: in the repository. pivot_root, not chroot: no user namespace can be made in a chroot.
in_root() {
  local name=$1
  shift
  # shellcheck disable=SC2016
  LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    unshare --mount --propagation private bash -euc '
      root=$1 repo=$2 state=$3
      shift 3
      mount --bind "$root" "$root"
      for top in dev proc sys; do mount --rbind "/$top" "$root/$top"; done
      mkdir -p "$root$repo" "$root.tree" "$root/host-lab"
      mount --bind "$repo" "$root$repo"
      mount --bind "$root.tree" "$root$repo/build"
      mount --bind "$state" "$root/host-lab"
      for folder in images registry tls; do
        mkdir -p "$root.tree/lab/$folder" "$state/$folder"
        mount --bind "$state/$folder" "$root$repo/build/lab/$folder"
      done
      cd "$root"
      pivot_root . mnt
      umount -l /mnt
      cd "$repo"
      exec "$@"' in-root "$lab_roots/$name" "$lab_repo" "$lab_state" "$@"
}
