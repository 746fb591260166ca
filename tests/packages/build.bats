# lab: none
# What packagers do with the sources: the tarball and its list of licences, parts left out, the plugin for another Slurm, other flags and
# places, the hook library for programs of others. Builds lie two levels below the sources and have the flags of the preset release where
# that does not matter: so the compiler cache has nearly all of them.
# shellcheck disable=SC2030,SC2031

bats_require_minimum_version 1.5.0
repository=$(cd "$BATS_TEST_DIRNAME/../.." && pwd -P)

setup_file() {
  "$repository/packaging/make-tarball" --output "$BATS_FILE_TMPDIR/first" 2>/dev/null
  version=$(sed -n 's/^project(situla VERSION \([0-9.]*\).*/\1/p' "$repository/CMakeLists.txt")
  export version
  mkdir "$BATS_FILE_TMPDIR/unpacked"
  tar -C "$BATS_FILE_TMPDIR/unpacked" -xf "$BATS_FILE_TMPDIR/first/situla-$version.tar.xz"
}

setup() {
  tarball=$BATS_FILE_TMPDIR/first/situla-$version.tar.xz
  licences=$BATS_FILE_TMPDIR/first/situla-$version.spdx.json
  unpacked=$BATS_FILE_TMPDIR/unpacked/situla-$version
}

# configure NAME OPTION...: by the preset release, so that the compiler cache has what was compiled, in build/NAME, from nothing.
configure() {
  rm -rf "$repository/build/$1"
  cmake --preset release -S "$repository" -B "$repository/build/$1" -DBUILD_TESTING=OFF "${@:2}"
}

files_in() { (cd "$1" && find . ! -type d | sort); }

@test "the tarball: the same from a checkout and from an unpacked tarball, complete, nothing of git" {
  [ ! -e "$unpacked/.git" ]
  cmp "$repository/LICENSE" "$unpacked/LICENSE"
  (umask 077; "$unpacked/packaging/make-tarball" --output "$BATS_TEST_TMPDIR/second")
  cmp "$tarball" "$BATS_TEST_TMPDIR/second/${tarball##*/}"
  cmp "$licences" "$BATS_TEST_TMPDIR/second/${licences##*/}"
  [ -z "$(tar -tvf "$tarball" | grep -v ' root/root ')" ]
  SOURCE_DATE_EPOCH=1000000000 "$unpacked/packaging/make-tarball" --output "$BATS_TEST_TMPDIR/third"
  tar -tvf "$BATS_TEST_TMPDIR/third/${tarball##*/}" --utc | grep -q '2001-09-09 01:46'
}

@test "the list of licences: valid expressions, every identifier defined, every package of install-deps" {
  jq -e '.spdxVersion == "SPDX-2.3" and .dataLicense == "CC0-1.0" and (.packages[0] | .name == "situla" and .licenseDeclared == "Apache-2.0")' "$licences"
  [ "$(jq -r '.packages[0].checksums[0].checksumValue' "$licences")" = "$(sha256sum <"$tarball" | cut -d' ' -f1)" ]
  [ "$(jq -r '[.packages[].SPDXID] as $known | .relationships[] | .spdxElementId, .relatedSpdxElement | select(IN($known[]) | not)' "$licences")" = "" ]
  [ "$(jq -r '[.packages[].SPDXID] | length - (unique | length)' "$licences")" = 0 ]
  # What goes into programs and is installed here has a version.
  [ "$(jq -r '.packages[] | select(.versionInfo == null) | .name' "$licences" | grep -E '^(lib|nlohmann|zlib)')" = "" ]
  # Debian's reader of SPDX expressions.
  jq -r '.packages[].licenseDeclared' "$licences" | sort -u | grep -v '^LicenseRef-' | /usr/bin/python3 -c '
import sys
from license_expression import get_spdx_licensing
wrong = [(line, found.errors) for line in sys.stdin if (found := get_spdx_licensing().validate(line.strip())).errors]
sys.exit(str(wrong) if wrong else 0)'
  missing=$(comm -13 <(jq -r '.packages[].name' "$licences" | sort) <("$repository/packaging/install-deps" --list | sort -u))
  [ -z "$missing" ] || { echo "packaging/dependencies.tsv lacks: $missing"; false; }
}

# What this machine has set up for its own Situla is not what is tested: it may want FUSE. Hidden, and not another directory's built in:
# so the compiler cache has what does not depend on the parts.
without_site() {
  # shellcheck disable=SC2016
  unshare --mount sh -c 'for d in /etc/situla /etc/enroot; do [ ! -d $d ] || mount -t tmpfs tmpfs $d; done; exec "$@"' without-site "$@"
}

@test "without GPUs, CDI and FUSE: their code and libraries are gone, and who asks for them is told" {
  configure parts -DSITULA_GPU=OFF -DSITULA_CDI=OFF -DSITULA_FUSE=OFF
  cd "$repository/build/parts"
  # Whoever builds no suites needs none of their packages: packaging/quickstart has not installed them.
  if grep -q '^Catch2_DIR\|^FUSE3_' CMakeCache.txt; then false; fi
  if grep -q 'yaml-cpp\|image_server\|nvml_main\|situla-inventory' build.ninja; then false; fi
  ninja situla situla-bundle-start situla-printenv enroot-mount
  run -0 --separate-stderr without_site hooks/cli/situla version
  [ "$output" = "situla $version"$'\n'"built without: gpu, cdi, fuse" ]
  without_site hooks/cli/situla doctor >"$BATS_TEST_TMPDIR/doctor" || true
  [ "$(grep -c 'this Situla was built without' "$BATS_TEST_TMPDIR/doctor")" -ge 3 ]

  mkdir -p "$BATS_TEST_TMPDIR"/{image/{bin,etc,dev,proc,sys,tmp,run,var,root},home}
  cp /bin/busybox "$BATS_TEST_TMPDIR/image/bin/sh"
  mksquashfs "$BATS_TEST_TMPDIR/image" "$BATS_TEST_TMPDIR/tiny.sqsh" -all-root -quiet -no-progress
  run -0 without_site env NVIDIA_VISIBLE_DEVICES=void hooks/cli/situla inject --dry-run "$BATS_TEST_TMPDIR/tiny.sqsh"
  run -1 without_site env NVIDIA_VISIBLE_DEVICES=all hooks/cli/situla inject --dry-run "$BATS_TEST_TMPDIR/tiny.sqsh"
  [[ $output == *"this Situla was built without NVIDIA GPUs"*hint* ]]
  run -1 without_site hooks/cli/situla inject --dry-run --devices amd.com/gpu=all "$BATS_TEST_TMPDIR/tiny.sqsh"
  [[ $output == *"this Situla was built without CDI specifications"*hint* ]]
}

@test "the plugin alone: neither pkg-config nor a library's headers beyond Slurm's are asked for" {
  configure plugin-alone -DSITULA_PROGRAMS=OFF -DCMAKE_INSTALL_PREFIX=/usr -DSITULA_PLUGIN_DIR=lib64/slurm -DPKG_CONFIG_EXECUTABLE=/bin/false
  ninja -C "$repository/build/plugin-alone"
  DESTDIR=$BATS_TEST_TMPDIR/d cmake --install "$repository/build/plugin-alone"
  [ "$(files_in "$BATS_TEST_TMPDIR/d" | grep -v '/man/')" = ./usr/lib64/slurm/spank_situla.so ]
  run -1 configure plugin-alone -DSITULA_PROGRAMS=OFF -DCMAKE_FIND_ROOT_PATH="$BATS_TEST_TMPDIR" -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY
  [[ $output == *"slurm/spank.h is missing"* ]]
}

@test "the programs alone: without Slurm's headers" {
  configure programs-alone -DSITULA_PLUGIN=OFF -DCMAKE_FIND_ROOT_PATH="$BATS_TEST_TMPDIR" -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY
  targets=$(ninja -C "$repository/build/programs-alone" -t targets all)
  [[ $targets == *situla-broker* && $targets != *spank_situla.so* ]]
}

# build_apart DIR: from the tarball, read-only, without network and compiler cache, out of tree, with Debian's flags for all hardening,
# and without precompiled headers, as the packages are built: with them one build in three or so has other debugging data.
build_apart() {
  # shellcheck disable=SC2016
  unshare --mount --net bash -euc '
    mkdir -p "$1"
    tar -C "$1" -xf "$2"
    cd "$1"/situla-*
    eval "$(DEB_BUILD_MAINT_OPTIONS=hardening=+all dpkg-buildflags --export=sh)"
    mount --bind . . && mount -o remount,bind,ro .
    cmake -S . -B "$1/b" -G Ninja -DCMAKE_BUILD_TYPE=None -DBUILD_TESTING=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON
    CCACHE_DISABLE=1 ninja -C "$1/b" situla_base situla_spec situla-printenv' build-apart "$1" "$tarball"
}

@test "two builds from read-only tarballs, without git and network, in different directories: the same files" {
  build_apart "$BATS_TEST_TMPDIR/here"
  build_apart "$BATS_TEST_TMPDIR/elsewhere/deeper"
  files=$(cd "$BATS_TEST_TMPDIR/here/b" && find . -name 'libsitula_*.a' -o -name situla-printenv -type f)
  [ "$(wc -l <<<"$files")" -eq 3 ]
  while read -r file; do
    cmp "$BATS_TEST_TMPDIR/here/b/$file" "$BATS_TEST_TMPDIR/elsewhere/deeper/b/$file"
  done <<<"$files"
}

@test "the hook library: a program made with nothing but pkg-config, and the headers are complete" {
  configure devel -DSITULA_DEVEL=ON -DCMAKE_INSTALL_PREFIX=/opt/situla -DCMAKE_INSTALL_LIBDIR=lib
  ninja -C "$repository/build/devel" situla_archive
  DESTDIR=$BATS_TEST_TMPDIR/d cmake --install "$repository/build/devel" --component devel
  rm -rf "$repository/build/devel/packaging/devel/libsitula.a"
  # Every header that one of them includes is there.
  (cd "$BATS_TEST_TMPDIR/d/opt/situla/include" && grep -rhoE '#include <situla/[^>]*>' . | sort -u | sed 's/.*<\(.*\)>/\1/' | xargs ls >/dev/null)
  if grep -rn '#include "' "$BATS_TEST_TMPDIR/d/opt/situla/include"; then false; fi

  export PKG_CONFIG_SYSROOT_DIR=$BATS_TEST_TMPDIR/d PKG_CONFIG_PATH=$BATS_TEST_TMPDIR/d/opt/situla/lib/pkgconfig
  [ "$(pkg-config --modversion situla)" = "$version" ]
  # shellcheck disable=SC2046
  c++ -std=c++20 "$BATS_TEST_DIRNAME/library_user.cpp" -o "$BATS_TEST_TMPDIR/user" $(pkg-config --cflags --libs --static situla)
  mkdir -p "$BATS_TEST_TMPDIR/image/etc"
  echo from-the-image >"$BATS_TEST_TMPDIR/image/etc/hostname"
  mksquashfs "$BATS_TEST_TMPDIR/image" "$BATS_TEST_TMPDIR/image.sqsh" -comp zstd -quiet -no-progress
  run -0 "$BATS_TEST_TMPDIR/user" nvcr.io#nvidia/pytorch:24.10-py3 "$BATS_TEST_TMPDIR/image.sqsh" /data:/mnt:ro
  [[ $output == *"registry nvcr.io, repository nvidia/pytorch"*"zstd, 3 inodes"*"hostname from-the-image"*"bind /data on /mnt"*"linux/arm64"* ]]
  run -1 "$BATS_TEST_TMPDIR/user" nvcr.io#nvidia/pytorch "$BATS_TEST_TMPDIR/image/etc/hostname" /data
}

@test "components: each file belongs to one of them; --prefix and DESTDIR hold for links, too" {
  build=$repository/build/release
  cmake --preset release -S "$repository" >/dev/null
  cmake --build "$build" --target common/all hooks/all plugin/all packaging/all
  DESTDIR=$BATS_TEST_TMPDIR/all cmake --install "$build" --prefix /opt/s >/dev/null
  for component in runtime plugin enroot; do
    DESTDIR=$BATS_TEST_TMPDIR/$component cmake --install "$build" --prefix /opt/s --component $component >/dev/null
    files_in "$BATS_TEST_TMPDIR/$component"
  done | sort >"$BATS_TEST_TMPDIR/one by one"
  files_in "$BATS_TEST_TMPDIR/all" | diff - "$BATS_TEST_TMPDIR/one by one"
  [ "$(files_in "$BATS_TEST_TMPDIR/plugin" | grep -v '/man/')" = ./opt/s/lib/slurm/spank_situla.so ]
  # Nothing but other names of what the runtime has.
  [ -z "$(find "$BATS_TEST_TMPDIR/enroot" -type f)" ]
  [ "$(readlink "$BATS_TEST_TMPDIR/enroot/opt/s/bin/enroot")" = situla ]
  [ -z "$(find "$BATS_TEST_TMPDIR/all" -xtype l)" ]
}

@test "programs load what the list of licences calls dynamic, and nothing else" {
  programs=$(find "$repository/build/release/hooks" "$repository/build/release/plugin" -type f -perm -u+x -name 'situla*' -not -path '*/CMakeFiles/*')
  loaded=$(for program in $programs; do readelf -dW "$program"; done | sed -n 's/.*(NEEDED).*\[lib\(.*\)\.so.*\]/\1/p' | sort -u)
  [ "$(awk -F'\t' '$2 == "dynamic" {print $3}' "$repository/packaging/dependencies.tsv" | sort)" = "$loaded" ]
}

@test "what is compiled for an old libcurl compiles" {
  for version in 0x073d00 0x074600; do
    g++ -std=c++20 -fsyntax-only -Wall -Wextra -Wconversion -Wshadow -Werror -Wno-deprecated-declarations -D_GNU_SOURCE \
      -DSITULA_LIBCURL_VERSION=$version -I"$repository" "$repository/hooks/registry/curl_transport.cpp"
  done
}
