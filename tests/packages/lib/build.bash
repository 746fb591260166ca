# The packages of this tree, for suites that install them. Sourced; repository is the tree.
# shellcheck shell=bash disable=SC2154

packages=$repository/build/lab/packages

# build_packages: into $packages/1, and the same as revision 2 into $packages/2, when a source is newer than they are. Compiled as the preset
# release is, so that the compiler cache has nearly all of it; a second build of the whole would tell apt nothing that these do not.
build_packages() (
  mkdir -p "$packages"
  exec 9>"$packages/lock"
  flock 9
  cd "$repository" || exit 1
  if [ -e "$packages/made" ] && [ -z "$(find CMakeLists.txt packaging common hooks plugin conf -newer "$packages/made" -print -quit)" ]; then exit 0; fi
  rm -rf "$packages"/[0-9] && mkdir "$packages/1" "$packages/2"
  touch "$packages/made.new"
  DEB_BUILD_OPTIONS="preset-release noautodbgsym" packaging/build-deb --output "$packages/1" || exit 1
  for package in "$packages"/1/*.deb; do
    case $package in *-dbgsym_*) continue ;; esac
    repack "$package" 2 "$packages/2" || exit 1
  done
  mv "$packages/made.new" "$packages/made"
)

# repack PACKAGE REVISION DIR [CMD...]: the package as that revision; CMD changes its unpacked tree, which is its last word.
repack() (
  tree=$(mktemp -d)
  trap 'rm -rf "$tree"' EXIT
  dpkg-deb --raw-extract "$1" "$tree" || exit 1
  version=$(dpkg-deb --field "$1" Version) || exit 1
  sed -i "s/$version/${version%-*}-$2/g" "$tree/DEBIAN/control" || exit 1
  [ $# -lt 4 ] || "${@:4}" "$tree" || exit 1
  # Small and fast: nobody downloads it.
  dpkg-deb -Zgzip -z1 --root-owner-group --build "$tree" "$3" >/dev/null
)
