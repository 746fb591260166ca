# lab: --situla-conf tests/cluster/tier_extract.toml
# A site that wants images extracted: `mount = "extract"` in situla.toml. As alice, on a node.
bats_require_minimum_version 1.5.0

setup() {
  work=$(mktemp -d "$HOME/containers.XXXXXX")
  cd "$work"
  export ENROOT_DATA_PATH=$work/data
}

teardown() {
  cd /
  chmod -R u+rwX "$work"
  rm -rf "$work"
}

@test "create and load make directory trees; a user may ask for layers" {
  enroot import -o tiny.sqsh docker://registry.test#tiny
  enroot create -n a tiny.sqsh
  [ -x data/a/bin/busybox ]
  enroot load -n b docker://registry.test#tiny
  [ -x data/b/bin/busybox ]
  SITULA_CREATE=layered enroot create -n c tiny.sqsh
  [ -f data/c/.situla/image.sqsh ]
  for name in a b c; do
    enroot start --rw "$name" touch /mark
    [ "$(enroot start "$name" ls /mark)" = /mark ]
  done
}
