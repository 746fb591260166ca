# Loaded by the suites that compare an imported tree with what umoci unpacks.
setup() {
  export HOME=/root
  work=$(mktemp -d /tmp/situla-test.XXXXXX)
  here=$BATS_TEST_DIRNAME
}
teardown() { rm -rf "$work"; }

# same_tree REFERENCE LAYOUT:TAG (umoci reads no zstd layers; the same content is in the gzip ones)
same_tree() {
  situla import -o "$work/image.sqsh" "docker://registry.test/$1"
  unsquashfs -s "$work/image.sqsh"
  "$here/import-vs-umoci" "$work/image.sqsh" "$SITULA_LAB_IMAGES/$2"
  rm "$work/image.sqsh"
}
