# What a site has that uses pyxis and enroot: packages with the names, files and configuration files of NVIDIA's (their contents are ours and say
# who they are), and what the site and a user wrote. Loaded by moving.bats.
# shellcheck shell=bash

# stand_in NAME VERSION CONTROL-LINE...: a package of the tree in $tree; what lies in its /etc is a configuration file.
stand_in() {
  local name=$1 version=$2
  shift 2
  mkdir -p "$tree/DEBIAN"
  {
    printf '%s\n' "Package: $name" "Version: $version" "Architecture: amd64" "Maintainer: tests" "$@" "Description: stands in for NVIDIA's $name"
  } >"$tree/DEBIAN/control"
  if [ -d "$tree/etc" ]; then (cd "$tree" && find etc -type f -printf '/%p\n') >"$tree/DEBIAN/conffiles"; fi
  dpkg-deb -Zgzip -z1 --root-owner-group --build "$tree" "$old_packages" >/dev/null
  rm -rf "$tree"
}

# script FILE: an executable with the lines of standard input.
script() {
  mkdir -p "$(dirname "$1")"
  { echo '#!/bin/bash'; cat; } >"$1"
  chmod 755 "$1"
}

make_enroot() {
  local name
  echo 'echo "enroot stand-in 4.0.1"' | script "$tree/usr/bin/enroot"
  for name in aufs2ovlfs makeself mksquashovlfs mount nsenter switchroot; do echo exit 1 | script "$tree/usr/bin/enroot-$name"; done
  mkdir -p "$tree"/usr/lib/enroot "$tree"/usr/share/{enroot/hooks.d,bash-completion/completions} "$tree"/etc/enroot/{environ.d,mounts.d,hooks.d}
  for name in bundle common docker init runtime; do echo '# stand-in' >"$tree/usr/lib/enroot/$name.sh"; done
  echo '# stand-in' >"$tree/usr/share/bash-completion/completions/enroot"
  printf '#ENROOT_%s\n' LIBRARY_PATH SYSCONF_PATH RUNTIME_PATH DATA_PATH ROOTFS_WRITABLE >"$tree/etc/enroot/enroot.conf"
  echo 'TERM=${TERM}' >"$tree/etc/enroot/environ.d/10-terminal.env"
  cp "$repository"/conf/mounts.d/*.fstab "$tree/etc/enroot/mounts.d/"
  stand_in enroot 4.0.1-1 "Depends: bash (>= 4.2)"
}

make_caps() {
  mkdir -p "$tree/usr/share/doc/enroot+caps"
  echo '# stand-in' >"$tree/usr/share/doc/enroot+caps/copyright"
  stand_in enroot+caps 4.0.1-1 "Depends: enroot (= 4.0.1-1)"
}

# A plugin that has the option and says who it is; Debian's Slurm does not look into pyxis's directory, so the line names the whole path.
make_pyxis() {
  local folder=usr/lib/x86_64-linux-gnu/slurm
  mkdir -p "$tree/$folder" "$tree/usr/share/pyxis"
  cc -shared -fPIC -o "$tree/$folder/spank_pyxis.so" -x c - <<'C'
#include <slurm/spank.h>
SPANK_PLUGIN(pyxis, 1)
static int say(int value, const char* image, int remote) {
  (void)value;
  if (!remote) slurm_info("pyxis stand-in: %s", image);
  return 0;
}
static struct spank_option image = {"container-image", "IMAGE", "image", 1, 0, say};
int slurm_spank_init(spank_t spank, int count, char** words) {
  (void)count, (void)words;
  return spank_option_register(spank, &image);
}
C
  echo "required /$folder/spank_pyxis.so" >"$tree/usr/share/pyxis/pyxis.conf"
  stand_in nvslurm-plugin-pyxis 0.20.0-1 "Depends: enroot (>= 1.1.0)"
}

make_stand_ins() {
  local tree
  tree=$(mktemp -d)
  old_packages=$1
  mkdir -p "$old_packages"
  make_enroot && make_caps && make_pyxis
}

# What the site wrote, on the machine: a changed enroot.conf, a hook, a mount, variables, and pyxis's line with an argument.
write_site() {
  on bash -eu <<'SITE'
mkdir -p /srv/site /data
chmod 1777 /data
echo "from the site's directory" >/srv/site/file
cat >/etc/enroot/enroot.conf <<'CONF'
ENROOT_DATA_PATH        /data/enroot-$(id -un)
ENROOT_ROOTFS_WRITABLE  yes
CONF
cat >/etc/enroot/hooks.d/50-site.sh <<'HOOK'
#!/bin/bash
source "${ENROOT_LIBRARY_PATH}/common.sh"
echo "SITE_HOOK=ran for ${USER}" >>"${ENROOT_ENVIRON}"
HOOK
chmod 755 /etc/enroot/hooks.d/50-site.sh
echo '/srv/site /srv/site none x-create=dir,bind,ro' >/etc/enroot/mounts.d/50-site.fstab
echo 'SITE_VARIABLE=${HOSTNAME:-set}' >/etc/enroot/environ.d/50-site.env
echo "$(cat /usr/share/pyxis/pyxis.conf) execute_entrypoint=0" >/etc/slurm/plugstack.conf.d/pyxis.conf
SITE
}

# What a user has: credentials, an image as a file, and an extracted container.
write_user() {
  local root=$machine/image
  mkdir -p "$root"/{bin,etc,dev,proc,sys,tmp,run,var}
  cp /bin/busybox "$root/bin/busybox"
  for name in sh cat echo mkdir; do ln "$root/bin/busybox" "$root/bin/$name"; done
  echo 'PATH=/bin' >"$root/etc/environment"
  : >"$root/etc/fstab"
  printf '%s\n' '# enroot-provenance: docker://old' 'exec "$@"' >"$root/etc/rc"
  echo 'written in the time of enroot' >"$root/etc/mark"
  mksquashfs "$root" "$machine/old.sqsh" -all-root -quiet -no-progress >/dev/null
  on bash -eu <<'USER'
mkdir -p ~alice/.config/enroot /data/enroot-alice
echo 'machine auth.test login alice password secret' >~alice/.config/enroot/.credentials
chmod 600 ~alice/.config/enroot/.credentials
cp -a /shared/image /data/enroot-alice/old
cp /shared/old.sqsh ~alice/
chown -R alice:alice ~alice/.config ~alice/old.sqsh /data/enroot-alice
USER
  rm -rf "$root"
}
