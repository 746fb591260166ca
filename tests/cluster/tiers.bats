# lab: --name extract --user root --situla-conf tests/cluster/tier_extract.toml
# lab: --name fuse --user root --situla-conf tests/cluster/tier_fuse.toml
# lab: --name use_squashfuse --user root --plugin-arg use_squashfuse=1 --situla-conf tests/cluster/no_idle.toml
# The same container on every tier: what users see must not depend on how the image is mounted. use_squashfuse=1 is pyxis's key in
# plugstack.conf and has the effect of mount = "fuse".
load helpers

chosen_tier_is_used() {
  case $SITULA_LAB_NAME in
    extract)
      run pgrep -u alice situla-image
      [ "$status" -eq 1 ]
      ;;
    fuse | use_squashfuse) pgrep -u alice situla-image ;;
  esac
  run findmnt -n -t squashfs
  [ -z "$output" ]
}

@test "images, eight tasks, environment, working directory and user" {
  run_and_show as_alice srun --container-image=registry.test/debian:12 grep PRETTY /etc/os-release
  [ "$status" -eq 0 ]
  [[ "$output" == *bookworm* ]]
  run_and_show as_alice srun -n8 --container-image=registry.test/tiny sh -c 'echo $GREETING; pwd; id -u; stat -c %u /bin/busybox'
  [ "$status" -eq 0 ]
  [ "$(grep -cx hello <<<"$output")" -eq 8 ]
  [ "$(grep -cx /srv <<<"$output")" -eq 8 ]
  [ "$(grep -cx "$(id -u alice)" <<<"$output")" -eq 16 ]
}

@test "a user who is root inside, a writable container, a read-only one" {
  run_and_show as_alice srun --container-remap-root --container-image=registry.test/tiny sh -c 'id -u; stat -c %u /bin/busybox'
  [ "$(grep -cx 0 <<<"$output")" -eq 2 ]
  run_and_show as_alice srun --container-writable --container-image=registry.test/tiny sh -c 'rm /bin/vi && echo new >/new && cat /new && ! ls /bin/vi'
  [ "$status" -eq 0 ]
  run_and_show as_alice srun --container-image=registry.test/tiny sh -c 'touch /new || ls /bin/vi'
  [[ "$output" == *"Read-only file system"* ]]
  [[ "$output" == */bin/vi* ]]
}

@test "nothing is left when a step ends, and after scancel" {
  snapshot
  as_alice srun --container-writable --container-image=registry.test/tiny true
  nothing_left
  as_alice srun --container-image=registry.test/tiny sh -c 'echo started; sleep 100' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 30 grep -q started "$BATS_TEST_TMPDIR/out"
  as_alice scancel -u alice
  nothing_left
}

@test "the tier is the one that was chosen" {
  as_alice srun --container-image=registry.test/tiny sh -c 'echo started; sleep 300' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 30 grep -q started "$BATS_TEST_TMPDIR/out"
  chosen_tier_is_used
  as_alice scancel -u alice
  wait
}

# The process that serves mounted images lives in the container's user namespace, and as long as its mounts do.
@test "kill -9 of the broker, with an image mounted: the task goes on, and nothing is left when it ends" {
  mkdir -p /scratch/alice/tree
  echo mounted >/scratch/alice/tree/text
  mksquashfs /scratch/alice/tree /scratch/alice/data.sqsh -all-root -quiet -no-progress >/dev/null
  chown alice /scratch/alice/data.sqsh
  snapshot
  as_alice srun --chdir=/ --container-writable --container-mounts=/scratch/alice/data.sqsh:/data:sqsh --container-image=registry.test/tiny sh -c 'cat /data/text; sleep 8; cat /data/text; echo over' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 60 grep -q mounted "$BATS_TEST_TMPDIR/out"
  pkill -KILL -x situla-broker
  wait
  cat "$BATS_TEST_TMPDIR/out"
  [ "$(grep -c mounted "$BATS_TEST_TMPDIR/out")" -eq 2 ]
  grep -q over "$BATS_TEST_TMPDIR/out"
  nothing_left
  rm -rf /scratch/alice/tree /scratch/alice/data.sqsh
}
