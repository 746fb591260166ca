# The RPM packages: what is in them, what they ask for, what their scriptlets do, switching from enroot and pyxis and back.
# No RPM distribution is needed: rpm installs into an empty root with just what scriptlets call (lib/rpm.bash). Nothing here is run by dnf.
# lab: none

setup_file() {
  export repo=${BATS_TEST_DIRNAME%/tests/packages}
  export top=$repo/build/rpm-test fakes=$BATS_FILE_TMPDIR/fakes
  export packages=$top/packages
  mkdir -p "$fakes"
  . "$BATS_TEST_DIRNAME/lib/rpm.bash"
  build_rpms
  fake_packages
}

setup() {
  . "$BATS_TEST_DIRNAME/lib/rpm.bash"
  root=$BATS_TEST_TMPDIR/root
}

# The packages, and their next build, whose configuration has one more line.
build_rpms() {
  local id
  # What is compressed well takes a third of all the time.
  printf '%%_binary_payload w1.gzdio\n%%_source_payload w1.gzdio\n%%_tmppath %s\n' "$BATS_FILE_TMPDIR" >"$BATS_FILE_TMPDIR/payload"
  export RPMBUILD_OPTIONS="--with preset --load=$BATS_FILE_TMPDIR/payload"
  id=$(cd "$repo" && git ls-files -z --cached --others --exclude-standard -- CMakeLists.txt common conf hooks packaging plugin | xargs -0 sha256sum 2>/dev/null | sha256sum)
  [ "$(cat "$top/id" 2>/dev/null)" != "$id" ] || return 0
  rm -rf "$top"
  # Not a subshell before ||: there, a command that fails would not end it.
  bash -euc '
    cd "$1"
    packaging/build-rpm --top "$2/1" --output "$2/packages" --noclean
    sources=$(echo "$2"/1/BUILD/situla-*)
    echo "# of the next version" | tee -a "$sources/conf/situla.toml" >>"$sources/conf/plugstack.conf.d/situla.conf"
    rpmbuild -bb --noprep --nodeps $RPMBUILD_OPTIONS --define "_topdir $2/1" --define "_rpmdir $2/next" --define "situla_build 2" "$2/1/SPECS/situla.spec"
    mv "$2"/next/*/*.rpm "$2/next/"
    rm -rf "$2/1/BUILD" "$2/1/BUILDROOT"' build "$repo" "$top" >"$top.log" 2>&1 || { tail -n 60 "$top.log" >&2; return 1; }
  echo "$id" >"$top/id"
}

# Of other people, and "base": everything that Situla's packages want from a distribution.
fake_packages() {
  local version
  for version in 22.05.8 22.05.11 22.06.0 23.11.4 2.205; do slurm_package $version; done
  slurm_package 22.05.8 slurm-ohpc
  enroot_package 3.5.0
  enroot_package 4.1.2
  pyxis_package 0.20.0
  {
    rpm -qp --requires "$packages"/*.x86_64.rpm "$packages"/*.noarch.rpm | grep -vE '^(rpmlib|config|\(?slurm|situla|enroot)' | sort -u | sed 's/^/Provides: /'
    printf '%%description\nThe distribution.\n%%files\n'
  } | make_package base 1
}

package() { printf '%s\n' "$packages/$1"-[0-9]*.rpm | grep -v '\.src\.rpm$'; }
next() { echo "$top/next/$1"-[0-9]*.rpm; }
fake() { echo "$fakes/$1.rpm"; }

# In a mount namespace of its own: systemd-tmpfiles wants /proc, and nothing may stay mounted. With mounted=yes an image is, too.
transaction() {
  # shellcheck disable=SC2016
  unshare --mount bash -euc '
    root=$1 image=$1/run/situla/images/1
    mount -t proc proc "$root/proc"
    [ -z "${mounted-}" ] || mount -t tmpfs image "$image"
    "$2" "$root" "${@:3}"
    [ -z "${mounted-}" ] || ! mountpoint -q "$image" || { echo "still mounted"; exit 1; }' \
    transaction "$root" "$BATS_TEST_DIRNAME/lib/rpm-transaction" "$@"
}

# A node with Slurm, and what is named.
node() {
  make_root "$root"
  transaction "+$(fake base-1)" "+$(fake slurm-22.05.8)" "$@"
}

# What is in the root but rpm's database, links included.
listing() { (cd "$root" && find . -path ./var/lib/rpm -prune -o -path ./usr/lib/sysimage -prune -o -print | sort); }

# expect_equal WHAT <EXPECTED: shows the difference.
expect_equal() { diff <(cat) <(printf '%s\n' "$1"); }

@test "the guide for packagers, from the tarball; another build in another directory makes the same packages" {
  mkdir "$BATS_TEST_TMPDIR/tree"
  tar -C "$BATS_TEST_TMPDIR/tree" --strip-components 1 -xf "$(echo "$top"/1/SOURCES/situla-*.tar.xz)"
  "$repo/tests/guides/blocks" packager "$repo/packaging/guides/packager.md" >"$BATS_TEST_TMPDIR/commands"
  (cd "$BATS_TEST_TMPDIR/tree" && bash "$BATS_TEST_TMPDIR/commands")
  made=$BATS_TEST_TMPDIR/tree/build
  # rpm writes the spec as it expanded it into source packages, directories and all: of those, the files.
  sums() { (cd "$1" && for file in *.rpm; do case $file in *.src.rpm) rpm2cpio "$file" ;; *) cat "$file" ;; esac | sha256sum | sed "s/-/$file/"; done) }
  diff <(sums "$packages") <(sums "$made/packages")
  [ "$(echo "$made"/packages/situla-*.spdx.json)" != "$made/packages/situla-*.spdx.json" ]
  [ "$(rpm -qp --qf '%{NAME}' "$made"/source-package/*.src.rpm)" = situla ]
  run rpm -qp --qf '%{NAME} %{SOURCERPM}\n' "$made"/plugin-only/*.rpm
  [ "$(wc -l <<<"$output")" = 2 ]
  [[ $output == *"situla-slurm-plugin situla-"* ]]
}

@test "rpmlint finds nothing but what situla.rpmlintrc argues" {
  run rpmlint -c "$repo/packaging/rpm/situla.rpmlintrc" "$packages"
  echo "$output"
  [ "$status" -eq 0 ]
  [[ $output == *" 0 errors, 0 warnings, "* ]]
}

@test "the version is that of CMakeLists.txt; the plugin's release names its Slurm" {
  version=$(sed -n 's/^project(situla VERSION \([0-9.]*\).*/\1/p' "$repo/CMakeLists.txt")
  run rpm -qp --qf '%{NAME} %{VERSION} %{RELEASE} %{ARCH}\n' "$packages"/*.rpm
  expect_equal "$(sort <<<"$output" | sed 's/ x86_64$/ ARCH/')" <<LIST
situla $version 1 ARCH
situla $version 1 ARCH
situla-devel $version 1 ARCH
situla-enroot $version 1 noarch
situla-slurm-plugin $version 1.slurm22.05 ARCH
LIST
}

@test "the packages have these files, with these owners, modes and flags" {
  for name in situla situla-slurm-plugin situla-enroot; do
    echo "== $name"
    rpm -qp --qf '[%{FILEMODES:perms} %{FILEUSERNAME}:%{FILEGROUPNAME} %{FILEFLAGS:fflags} %{FILENAMES}\n]' "$(package "$name")" | sed 's/  / - /'
  done >"$BATS_TEST_TMPDIR/files"
  # Pages and documents come and go; there has to be one of every kind.
  for kind in '/usr/share/man/man1/situla-start.1.gz' '/usr/share/man/man8/spank_situla.8.gz' '/usr/share/doc/situla-.*/README.md' '/usr/share/licenses/situla-.*/LICENSE'; do
    grep -q "^-rw-r--r-- root:root [dl-]* $kind$" "$BATS_TEST_TMPDIR/files" || { echo "no $kind"; false; }
  done
  diff "$BATS_TEST_DIRNAME/rpm.files" <(grep -vE ' /usr/share/(man|doc|licenses)/| /usr/lib/\.build-id' "$BATS_TEST_TMPDIR/files")
}

@test "what the packages ask for, offer and exclude" {
  version=$(rpm -qp --qf '%{VERSION}' "$(package situla)")
  # What rpm finds in programs by itself: libraries, but nothing of Slurm's, and no interpreter.
  named() { rpm -qp "--$1" "$(package "$2")" | grep -vE '^(rpmlib|config|rtld)\(|\.so\.[0-9]*[()]|\.so\(' || true; }
  expect_equal "$(for name in situla situla-slurm-plugin situla-enroot situla-devel; do
    for what in requires provides conflicts obsoletes; do named $what $name | sed "s/^/$name $what: /"; done
  done)" <<LIST
situla requires: /bin/sh
situla requires: /bin/sh
situla requires: /bin/sh
situla requires: /bin/sh
situla requires: /bin/sh
situla requires: /usr/bin/systemd-sysusers
situla requires: /usr/bin/systemd-tmpfiles
situla requires: bash
situla requires: ca-certificates
situla provides: situla = $version-1
situla provides: situla(x86-64) = $version-1
situla-slurm-plugin requires: (slurm >= 22.05 with slurm < 22.06)
situla-slurm-plugin requires: /bin/sh
situla-slurm-plugin requires: situla(x86-64) = $version
situla-slurm-plugin provides: situla-slurm-plugin = $version-1.slurm22.05
situla-slurm-plugin provides: situla-slurm-plugin(x86-64) = $version-1.slurm22.05
situla-slurm-plugin conflicts: nvslurm-plugin-pyxis
situla-enroot requires: /bin/sh
situla-enroot requires: /bin/sh
situla-enroot requires: /usr/sbin/update-alternatives
situla-enroot requires: /usr/sbin/update-alternatives
situla-enroot requires: situla = $version
situla-enroot provides: /usr/bin/enroot
situla-enroot provides: enroot = 4.1.2
situla-enroot provides: enroot+caps = 4.1.2
situla-enroot provides: situla-enroot = $version-1
situla-enroot conflicts: enroot
situla-enroot conflicts: enroot+caps
situla-enroot conflicts: enroot-hardened
situla-enroot conflicts: enroot-hardened+caps
situla-devel requires: /usr/bin/pkg-config
situla-devel requires: expected-devel
situla-devel requires: isa-l-devel(x86-64)
situla-devel requires: libarchive-devel(x86-64)
situla-devel requires: libcurl-devel(x86-64)
situla-devel requires: libzstd-devel(x86-64)
situla-devel requires: openssl-devel(x86-64)
situla-devel requires: squashfs-tools-ng-devel(x86-64)
situla-devel requires: yaml-cpp-devel(x86-64)
situla-devel provides: pkgconfig(situla) = $version
situla-devel provides: situla-devel = $version-1
situla-devel provides: situla-devel(x86-64) = $version-1
LIST
  run rpm -qp --requires "$packages"/*.rpm
  [[ $output != *libslurm* ]]
}

@test "installed: the account, the directories, the name enroot, and the program runs" {
  node "+$(package situla)" "+$(package situla-slurm-plugin)" "+$(package situla-enroot)"
  run grep ^situla-import: "$root/etc/passwd"
  [[ $output =~ ^situla-import:[^:]*:[0-9]+:[0-9]+:Situla.*:/usr/sbin/nologin$ ]]
  run grep ^situla: "$root/etc/passwd"
  [[ $output =~ ^situla:[^:]*:([0-9]+):([0-9]+):Situla.*:/var/lib/situla:/usr/sbin/nologin$ ]]
  account=${BASH_REMATCH[1]}:${BASH_REMATCH[2]}
  run grep -c '^situla:' "$root/etc/group"
  [ "$output" = 1 ]
  expect_equal "$(cd "$root" && stat -c '%a %u:%g %n' etc/situla etc/situla/situla.toml var/lib/situla run/situla run/situla/* etc/slurm/plugstack.conf.d)" <<LIST
755 0:0 etc/situla
644 0:0 etc/situla/situla.toml
700 $account var/lib/situla
755 0:0 run/situla
700 0:0 run/situla/containers
700 0:0 run/situla/images
700 0:0 run/situla/jobs
755 0:0 run/situla/root
755 0:0 etc/slurm/plugstack.conf.d
LIST
  [ "$(readlink "$root/usr/bin/enroot")" = /etc/alternatives/enroot ]
  [ "$(readlink "$root/etc/alternatives/enroot")" = /usr/bin/situla ]
  for page in man1/enroot.1.gz man1/enroot-import.1.gz man5/enroot.conf.5.gz; do
    target=$(readlink "$root$(readlink "$root/usr/share/man/$page")")
    [ -s "$root$target" ] || { echo "$page -> $target"; false; }
  done
  rpm_in "$root" --verify situla situla-slurm-plugin situla-enroot

  add_libraries "$root" "$root/usr/bin/situla"
  version=$(rpm -qp --qf '%{VERSION}' "$(package situla)")
  run chroot "$root" /usr/bin/situla version
  [ "$status" -eq 0 ]
  [[ $output == *"$version"* ]]
  run chroot "$root" /usr/bin/enroot version
  [ "$status" -eq 0 ]
}

@test "the plugin goes with its own Slurm only" {
  make_root "$root"
  transaction "+$(fake base-1)" "+$(package situla)"
  plugin=$(package situla-slurm-plugin)
  for other in 22.06.0 23.11.4 2.205; do
    run transaction "+$(fake slurm-$other)" "+$plugin"
    [ "$status" -ne 0 ]
    [[ $output == *"slurm >= 22.05 with slurm < 22.06"*"is needed by situla-slurm-plugin"* ]]
  done
  run transaction "+$plugin"
  [ "$status" -ne 0 ]
  # OpenHPC's Slurm has another name: `--define 'slurm_package slurm-ohpc'` is for that.
  run transaction "+$(fake slurm-ohpc-22.05.8)" "+$plugin"
  [ "$status" -ne 0 ]

  transaction "+$(fake slurm-22.05.8)" "+$plugin"
  transaction "+$(fake slurm-22.05.11)"
  run transaction "+$(fake slurm-23.11.4)"
  [ "$status" -ne 0 ]
  [[ $output == *"is needed by (installed) situla-slurm-plugin"* ]]
  [ "$(rpm_in "$root" -q slurm)" = slurm-22.05.11-1.noarch ]
}

@test "the spec for other names and versions of Slurm, and for parts" {
  cp "$top/1/SPECS/situla.spec" "$top/1/SOURCES/situla.sysusers" "$BATS_TEST_TMPDIR/"
  query() { rpmspec -q --define "_sourcedir $BATS_TEST_TMPDIR" "$@" "$BATS_TEST_TMPDIR/situla.spec"; }
  run query --define 'slurm_version 25.11' --define 'slurm_package slurm-ohpc' --define 'dist .el9' --define 'rhel 9' --requires
  [[ $output == *"(slurm-ohpc >= 25.11 with slurm-ohpc < 25.12)"* ]]
  run query --define 'slurm_version 24.11' --define 'dist .el9' --without programs --qf '%{NAME}-%{RELEASE}\n'
  [[ $output == *"situla-slurm-plugin-1.slurm24.11.el9"* ]]
  [[ $output != *situla-enroot* ]]
  run query --without plugin
  [[ $output != *plugin* && $output == *situla-enroot* ]]
  # Enterprise Linux 8 needs another compiler; 9, 10 and Fedora do not.
  requires() { rpmspec -q --buildrequires --define "_sourcedir $BATS_TEST_TMPDIR" "$@" "$BATS_TEST_TMPDIR/situla.spec"; }
  requires --define 'rhel 8' | grep -qx gcc-toolset-13-gcc-c++
  requires --define 'rhel 9' | grep -qx 'gcc-c++ >= 11'
  requires --define 'fedora 43' | grep -qx 'gcc-c++ >= 11'
  if requires --without cdi | grep yaml; then false; fi
}

@test "a plugin is not built for a Slurm whose headers are of another version" {
  mkdir -p "$BATS_TEST_TMPDIR/SOURCES"
  cp "$top"/1/SOURCES/* "$BATS_TEST_TMPDIR/SOURCES/"
  run rpmbuild -bc --nodeps --without programs --define "_topdir $BATS_TEST_TMPDIR" --define "_tmppath $BATS_TEST_TMPDIR" \
    --define 'slurm_version 24.11' "$top/1/SPECS/situla.spec"
  [ "$status" -ne 0 ]
  [[ $output == *"The plugin is to be for Slurm 24.11, but /usr/include/slurm has the headers of 22.05"* ]]
}

@test "a second Slurm, with its version in the name and a place of its own: the plugin alone is built, for that one" {
  place=$BATS_TEST_TMPDIR/opt/slurm22.06/include
  mkdir -p "$BATS_TEST_TMPDIR/SOURCES" "$place" "$BATS_TEST_TMPDIR/package"
  cp "$top"/1/SOURCES/* "$BATS_TEST_TMPDIR/SOURCES/"
  cp -r /usr/include/slurm "$place/"
  sed -i 's/^\(#define[[:space:]]*SLURM_VERSION_NUMBER\).*/\1 0x160600/' "$place/slurm/slurm_version.h"
  other=(--define 'slurm_package slurm22.06' --define 'slurm_devel slurm22.06-devel' --define "slurm_includedir $place")
  # shellcheck disable=SC2086 # words
  rpmbuild -bb --nodeps $RPMBUILD_OPTIONS --without programs "${other[@]}" --define "_topdir $BATS_TEST_TMPDIR" "$top/1/SPECS/situla.spec"
  cd "$BATS_TEST_TMPDIR"
  [ "$(echo RPMS/*/*)" = "$(echo RPMS/*/situla-slurm-plugin-[0-9]*-1.slurm22.06.*.rpm)" ]
  rpm -qp --requires RPMS/*/*.rpm | grep -qxF '(slurm22.06 >= 22.06 with slurm22.06 < 22.07)'
  rpmspec -q --buildrequires --define "_sourcedir $PWD/SOURCES" --without programs "${other[@]}" "$top/1/SPECS/situla.spec" | grep -qx slurm22.06-devel
  (cd package && rpm2cpio ../RPMS/*/*.rpm | cpio --extract --make-directories --quiet)
  # What a slurmd looks at before it loads a plugin, in one that a library of Slurm lets load here.
  run python3 -c 'import ctypes, sys
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
print(hex(ctypes.c_uint.in_dll(ctypes.CDLL(sys.argv[2]), "plugin_version").value))' /usr/lib/*/slurm-wlm/libslurmfull.so package/usr/lib*/slurm/spank_situla.so
  [ "$output" = 0x160600 ]
}

@test "upgrade: changed configuration stays, the choice of enroot stays, nothing is made twice" {
  node "+$(package situla)" "+$(package situla-slurm-plugin)" "+$(package situla-enroot)"
  echo 'mount = "fuse"' >>"$root/etc/situla/situla.toml"
  echo image >"$root/var/lib/situla/image"
  mkdir "$root/run/situla/images/1"
  before=$(cat "$root/etc/passwd" "$root/etc/group")
  transaction "+$(next situla)" "+$(next situla-slurm-plugin)" "+$(next situla-enroot)"
  [ "$(rpm_in "$root" -q --qf '%{RELEASE}' situla)" = 2 ]
  grep -q fuse "$root/etc/situla/situla.toml"
  grep -q 'of the next version' "$root/etc/situla/situla.toml.rpmnew"
  # Nobody changed this one.
  grep -q 'of the next version' "$root/etc/slurm/plugstack.conf.d/situla.conf"
  [ "$(readlink "$root/etc/alternatives/enroot")" = /usr/bin/situla ]
  [ "$(cat "$root/etc/passwd" "$root/etc/group")" = "$before" ]
  [ -e "$root/var/lib/situla/image" ] && [ -d "$root/run/situla/images/1" ]
}

@test "erased: nothing is left but the account" {
  node
  before=$(listing)
  transaction "+$(package situla)" "+$(package situla-slurm-plugin)" "+$(package situla-enroot)"
  echo image >"$root/var/lib/situla/image"
  mkdir "$root/run/situla/images/1"
  mounted=yes transaction -situla -situla-slurm-plugin -situla-enroot
  # systemd-sysusers keeps the files it replaced, and its lock; update-alternatives a log, umount its directory.
  expect_equal "$(listing | grep -vE '^\./etc/(passwd-|group-|g?shadow-?|\.pwd\.lock)$|^\./(var/log/alternatives.log|run/mount)$')" <<<"$before"
}

@test "erased where the administrator changed the plugin's line: Slurm finds no line of a plugin that is gone, not even by plugstack.conf.d/*" {
  node
  transaction "+$(package situla)" "+$(package situla-slurm-plugin)"
  echo '# of the site' >>"$root/etc/slurm/plugstack.conf.d/situla.conf"
  transaction -situla -situla-slurm-plugin
  [ -z "$(ls "$root/etc/slurm/plugstack.conf.d")" ]
  grep -q '# of the site' "$root/etc/slurm/plugstack.conf.d/.situla.conf.rpmsave"
}

@test "from enroot and pyxis: one transaction, and their configuration is in force" {
  node "+$(fake enroot-4.1.2)" "+$(fake enroot+caps-4.1.2)" "+$(fake nvslurm-plugin-pyxis-0.20.0)"
  echo 'ENROOT_ROOTFS_WRITABLE yes' >>"$root/etc/enroot/enroot.conf"
  echo 'echo site' >>"$root/etc/enroot/hooks.d/10-home.sh"
  echo '/data /data none bind' >"$root/etc/enroot/mounts.d/90-site.fstab"
  new=("+$(package situla)" "+$(package situla-slurm-plugin)" "+$(package situla-enroot)")

  run transaction "${new[@]}"
  [ "$status" -ne 0 ]
  [[ $output == *"nvslurm-plugin-pyxis conflicts with situla-slurm-plugin"* && $output == *"enroot conflicts with situla-enroot"* && $output == *"enroot+caps conflicts with situla-enroot"* ]]

  run transaction "${new[@]}" -enroot -enroot+caps -nvslurm-plugin-pyxis
  [ "$status" -eq 0 ]
  [[ $output == *"situla: kept /etc/enroot/enroot.conf"* ]]
  [ "$(readlink "$root/usr/bin/enroot")" = /etc/alternatives/enroot ]
  expect_equal "$(cd "$root/etc/enroot" && find . -type f | sort)" <<'LIST'
./enroot.conf
./hooks.d/10-home.sh
./mounts.d/90-site.fstab
LIST
  grep -qx 'ENROOT_ROOTFS_WRITABLE yes' "$root/etc/enroot/enroot.conf"
  [ -x "$root/etc/enroot/hooks.d/10-home.sh" ]
  # Who asks for enroot is served: pyxis itself does.
  rpm_in "$root" -q --whatprovides 'enroot' | grep -q situla-enroot

  # And back.
  run transaction "+$(fake enroot-4.1.2)" "+$(fake enroot+caps-4.1.2)" "+$(fake nvslurm-plugin-pyxis-0.20.0)" -situla-enroot -situla-slurm-plugin -situla
  [ "$status" -eq 0 ]
  run chroot "$root" /usr/bin/enroot
  [ "$output" = "the real enroot 4.1.2" ]
  grep -qx 'ENROOT_ROOTFS_WRITABLE yes' "$root/etc/enroot/enroot.conf"
  grep -qx 'echo site' "$root/etc/enroot/hooks.d/10-home.sh"
  [ -e "$root/etc/enroot/mounts.d/10-system.fstab" ]
  [ -e "$root/etc/enroot/mounts.d/90-site.fstab" ]
  [ ! -e "$root/etc/alternatives/enroot" ]
}

@test "Situla beside enroot: an upgrade of enroot moves nothing, its removal keeps what the site wrote" {
  node "+$(fake enroot-3.5.0)" "+$(package situla)"
  echo 'ENROOT_ROOTFS_WRITABLE yes' >>"$root/etc/enroot/enroot.conf"
  echo old >"$root/etc/enroot/old.conf.rpmsave"
  transaction "+$(fake enroot-4.1.2)"
  [ -e "$root/etc/enroot/old.conf.rpmsave" ] && [ ! -e "$root/etc/enroot/old.conf" ]
  rm "$root/etc/enroot/old.conf.rpmsave"
  run chroot "$root" /usr/bin/enroot
  [ "$output" = "the real enroot 4.1.2" ]
  transaction -enroot
  grep -qx 'ENROOT_ROOTFS_WRITABLE yes' "$root/etc/enroot/enroot.conf"
  # Later, the name.
  transaction "+$(package situla-enroot)"
  [ "$(readlink "$root/usr/bin/enroot")" = /etc/alternatives/enroot ]
}
