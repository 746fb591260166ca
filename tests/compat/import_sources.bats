# lab: --user root
# Images in files, as skopeo writes them: the same tree as umoci has for the layout they came from.
bats_require_minimum_version 1.5.0

load import_trees

# same_as LAYOUT:TAG REFERENCE...
same_as() {
  local layout=$1 reference images=()
  shift
  for reference; do
    images+=("$work/${#images[@]}.sqsh")
    situla import -o "${images[-1]}" "$reference"
  done
  "$here/import-vs-umoci" "${images[@]}" "$SITULA_LAB_IMAGES/$layout"
  rm "${images[@]}"
}

# every_form NAME:TAG: copies of a layout's image by skopeo
every_form() {
  local image=oci:$SITULA_LAB_IMAGES/$1
  cd "$work"
  skopeo copy -q "$image" oci:layout:t
  skopeo copy -q "$image" oci-archive:oci.tar:t
  skopeo copy -q "$image" docker-archive:docker.tar:x/y:t
  skopeo copy -q "$image" dir:dir
  same_as "$1" "$image" oci:layout "oci:$work/layout:t" oci-archive:oci.tar oci-archive:oci.tar:t \
    docker-archive:docker.tar docker-archive:docker.tar:x/y:t docker-archive:docker.tar:@0 dir:dir "dir:$work/dir"
}

@test "tiny, in every form" { every_form tiny:latest; }

@test "weird, in every form" { every_form weird:latest; }

@test "debian, in every form" { every_form debian:12; }

@test "zstd layers of a layout" {
  same_as tiny:latest "oci:$SITULA_LAB_IMAGES/tiny:zstd"
  same_as weird:latest "oci:$SITULA_LAB_IMAGES/weird:zstd"
}

@test "an index in a layout is chosen from by platform" {
  cd "$work"
  skopeo copy -q --all "oci:$SITULA_LAB_IMAGES/multiarch:latest" dir:dir
  skopeo copy -q --all "oci:$SITULA_LAB_IMAGES/multiarch:latest" oci-archive:oci.tar:t
  local reference machine
  for machine in amd64 arm64; do
    for reference in "oci:$SITULA_LAB_IMAGES/multiarch:latest" dir:dir oci-archive:oci.tar; do
      situla import -a "$machine" -o "$machine.sqsh" "$reference"
      skopeo copy -q --override-arch "$machine" "oci:$SITULA_LAB_IMAGES/multiarch:latest" "oci:$machine:latest"
      "$here/import-vs-umoci" "$machine.sqsh" "$machine:latest"
      rm -r "$machine.sqsh" "$machine"
    done
  done
}

@test "several tags: the error names them" {
  run situla import -o "$work/x.sqsh" "oci:$SITULA_LAB_IMAGES/weird"
  [ "$status" = 1 ]
  [[ "$output" == *"failed to import docker image: oci:"*"several images"*"oci:$SITULA_LAB_IMAGES/weird:latest"* ]]
  [ ! -e "$work/x.sqsh" ]
}

@test "a compressed archive is refused with what to do" {
  cd "$work"
  skopeo copy -q "oci:$SITULA_LAB_IMAGES/tiny:latest" docker-archive:a.tar:tiny:1
  gzip a.tar
  run situla import docker-archive:a.tar.gz
  [ "$status" = 1 ]
  [[ "$output" == *"compressed with gzip"*"hint: decompress it first: gunzip a.tar.gz"* ]]
}

@test "default names, and nothing but the image is written" {
  cd "$work"
  skopeo copy -q "oci:$SITULA_LAB_IMAGES/tiny:latest" docker-archive:tiny.tar:tiny:1
  situla import docker-archive:tiny.tar:tiny:1
  [ "$(ls)" = "$(printf 'tiny.sqsh\ntiny.tar')" ]
  run situla import docker-archive:tiny.tar
  [ "$status" = 1 ]
  [[ "$output" == *"File already exists: tiny.sqsh"* ]]
}
