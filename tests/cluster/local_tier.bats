# lab: --nodes 2 --user root --situla-conf tests/cluster/local_tier.toml
# One store for several nodes, and copies on each node's disk: who runs from which, and who does not.
load helpers

log=$SITULA_LAB/logs/slurmd.node1.log
tier=/var/lib/situla

setup_file() { install -d -o situla -g situla -m 700 /shared/store; }
setup() {
  rm -rf /shared/store/* "${tier:?}"/*
}
teardown() {
  as_alice scancel -u alice -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
  wait_until 30 none_mounted
}

# on_node1 IMAGE ARGUMENT...
on_node1() { as_alice srun -w node1 --overlap --container-image="$1" "${@:2}"; }
# mounted DIRECTORY...: loop devices of files below them. By device and inode: the machine has loop devices of other tests, of files with such names.
mounted() {
  losetup -n -O BACK-MAJ:MIN,BACK-INO | awk 'NR == FNR {ours[$1 " " $2]; next} ($1 " " $2) in ours {count++} END {print count + 0}' \
    <(find "$@" -type f -exec stat -c '%Hd:%Ld %i' {} + 2>/dev/null) -
}
none_mounted() { [ "$(mounted /shared/store "$tier")" -eq 0 ]; }
copies() { find "$tier/images" -name '*.sqsh' 2>/dev/null | wc -l; }
# As a step of this image would end that runs for as long as it takes.
make_copy() {
  : >"$BATS_TEST_TMPDIR/began"
  on_node1 "$1" sleep 300 3>&- &
  wait_until 60 eval '[ -n "$(find "$tier/images" -name "*.sqsh" -newer "$BATS_TEST_TMPDIR/began" 2>/dev/null)" ]'
  as_alice scancel -u alice
  wait
  wait_until 30 none_mounted
}
source_of_last() {
  wait_until 30 eval '[ "$(lines_of_steps)" -gt '"$marked"' ]'
  grep -o 'source=[a-z-]*' "$log" | tail -n 1
}
lines_of_steps() { grep -c 'source=' "$log"; }
mark() { marked=$(lines_of_steps); }

@test "the first step runs from the store while the copy is made; the next one reads the copy, and nothing of the store's file" {
  on_node1 registry.test/debian:12 sh -c 'echo started; sleep 300' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 60 grep -qx started "$BATS_TEST_TMPDIR/out"
  [ "$(mounted /shared/store/)" -eq 1 ]
  [ "$(copies)" -eq 0 ]
  wait_until 60 eval '[ "$(copies)" -eq 1 ]'
  [ "$(mounted /shared/store/)" -eq 1 ]
  [ "$(mounted "$tier/")" -eq 0 ]
  cmp /shared/store/images/sha256/*.sqsh "$tier"/images/sha256/*.sqsh
  # Nobody else gets at it.
  [ -z "$(find "$tier" ! -user situla -o ! -type l -perm /077)" ]
  [ -z "$(find "$tier/images" -name '*.part')" ]

  # Beside the first one, which goes on with what it has.
  on_node1 registry.test/debian:12 sh -c 'echo started; sleep 300' >"$BATS_TEST_TMPDIR/second" 2>&1 3>&- &
  wait_until 60 grep -qx started "$BATS_TEST_TMPDIR/second"
  [ "$(mounted /shared/store/)" -eq 1 ]
  [ "$(mounted "$tier/")" -eq 1 ]
  as_alice scancel -u alice
  wait
  wait_until 30 none_mounted

  # Nothing but zeros in the store's file: a node without a copy cannot start it.
  image=$(echo /shared/store/images/sha256/*.sqsh)
  dd if=/dev/zero of="$image" bs=1M count="$(($(stat -c %s "$image") >> 20))" conv=notrunc status=none
  mark
  # shellcheck disable=SC2016
  run_and_show on_node1 registry.test/debian:12 sh -c '. /etc/os-release; echo $ID; cat /usr/bin/* | wc -c'
  [ "$status" -eq 0 ]
  [[ $output == *debian* ]]
  [ "$(source_of_last)" = source=local ]
  run_and_show as_alice srun -w node2 --container-image=registry.test/debian:12 true
  [ "$status" -ne 0 ]
  situla images --metrics | grep -x 'situla_image_local_total 2'
}

@test "all users of an image have one copy, and named containers its mount" {
  make_copy registry.test/debian:12
  mark
  run_and_show as bob srun -w node1 --container-image=registry.test/debian:12 true
  [ "$status" -eq 0 ]
  [ "$(source_of_last)" = source=local ]
  run_and_show on_node1 registry.test/debian:12 --container-name=kept true
  [ "$status" -eq 0 ]
  as_alice srun -w node1 --container-name=kept sh -c 'echo started; sleep 300' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 60 grep -qx started "$BATS_TEST_TMPDIR/out"
  [ "$(mounted /shared/store/)" -eq 0 ]
  as_alice scancel -u alice
  wait
  as_alice enroot remove -f pyxis_kept
}

@test "who may not have an image does not get it from the copy" {
  make_copy auth.test/tiny
  mark
  run_and_show on_node1 auth.test/tiny true
  [ "$status" -eq 0 ]
  [ "$(source_of_last)" = source=local ]
  run_and_show as bob srun -w node1 --container-image=auth.test/tiny true
  [ "$status" -ne 0 ]
  run ! as bob sh -c "ls $tier/images"
}

@test "an image that was removed from the store is fetched again, whatever lies on the node" {
  make_copy registry.test/debian:12
  old=$(echo "$tier"/images/sha256/*.sqsh)
  situla rm registry.test/debian:12
  mark
  run_and_show on_node1 registry.test/debian:12 true
  [ "$status" -eq 0 ]
  [ "$(source_of_last)" = source=registry ]
  # One that is gone from the store goes with the next copy.
  situla rm registry.test/debian:12
  [ -e "$old" ]
  make_copy registry.test/tiny
  [ ! -e "$old" ]
  [ "$(copies)" -eq 1 ]
}

found() { jq -r '.checks[] | select(.name == "local-tier") | .found' <<<"$output"; }

@test "a directory that is not the service user's: steps run from the store, and the doctor says so" {
  chown root "$tier"
  mark
  run_and_show on_node1 registry.test/debian:12 sleep 25
  [ "$status" -eq 0 ]
  [ "$(source_of_last)" = source=registry ]
  [ "$(copies)" -eq 0 ]
  run --separate-stderr situla doctor --json
  [[ $(found) == "$tier does not belong to situla: no copies are made" ]]
  chown situla "$tier"
  run --separate-stderr situla doctor --json
  [[ $(found) == "$tier, tmpfs, "*" free; copies of images take memory of the node"* ]]
}

@test "where the kernel does not id-map images, a copy has views beside it that the store could not have" {
  disk=/var/tmp/tier
  truncate -s 600M $disk.xfs
  mkfs.xfs -q $disk.xfs
  mkdir -p $disk
  mount -o loop $disk.xfs $disk
  install -d -o situla -m 700 $disk/copies
  tier=$disk/copies
  sed "s|^local_tier.*|local_tier = \"$tier\"|" "$BATS_TEST_DIRNAME/local_tier.toml" >"$BATS_TEST_TMPDIR/situla.toml"
  cp /etc/situla/situla.toml "$BATS_TEST_TMPDIR/before.toml"
  (cat "$BATS_TEST_TMPDIR/situla.toml" && echo 'image_owner = "reflink"') >/etc/situla/situla.toml
  make_copy registry.test/debian:12
  mark
  run_and_show on_node1 registry.test/debian:12 stat -c %U /bin/sh
  [ "$status" -eq 0 ]
  [[ $output == *alice* ]]
  [ "$(source_of_last)" = source=local ]
  grep 'source=local' "$log" | tail -n 1 | grep 'mount=reflink'
  cp "$BATS_TEST_TMPDIR/before.toml" /etc/situla/situla.toml
  umount -l $disk
}
