# The same container on every tier: what users see must not depend on how the image is mounted. Loaded by tier_*.bats, which
# choose the tier in situla.toml.

check_the_main_road_on_this_tier() {
  run_and_show as_alice srun --container-image=registry.test/debian:12 grep PRETTY /etc/os-release
  [ "$status" -eq 0 ]
  [[ "$output" == *bookworm* ]]
  run_and_show as_alice srun -n8 --container-image=registry.test/tiny sh -c 'echo $GREETING; pwd; id -u; stat -c %u /bin/busybox'
  [ "$status" -eq 0 ]
  [ "$(grep -cx hello <<<"$output")" -eq 8 ]
  [ "$(grep -cx /srv <<<"$output")" -eq 8 ]
  [ "$(grep -cx "$(id -u alice)" <<<"$output")" -eq 16 ]
}

check_root_inside_and_writing_on_this_tier() {
  run_and_show as_alice srun --container-remap-root --container-image=registry.test/tiny sh -c 'id -u; stat -c %u /bin/busybox'
  [ "$(grep -cx 0 <<<"$output")" -eq 2 ]
  run_and_show as_alice srun --container-writable --container-image=registry.test/tiny sh -c 'rm /bin/vi && echo new >/new && cat /new && ! ls /bin/vi'
  [ "$status" -eq 0 ]
  run_and_show as_alice srun --container-image=registry.test/tiny sh -c 'touch /new || ls /bin/vi'
  [[ "$output" == *"Read-only file system"* ]]
  [[ "$output" == */bin/vi* ]]
}

check_nothing_is_left_on_this_tier_after_an_end_and_afte() {
  snapshot
  as_alice srun --container-writable --container-image=registry.test/tiny true
  nothing_left
  as_alice srun --container-image=registry.test/tiny sh -c 'echo started; sleep 100' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 15 grep -q started "$BATS_TEST_TMPDIR/out"
  as_alice scancel -u alice
  nothing_left 8
}

check_the_tier_is_the_one_that_was_chosen() {
  as_alice srun --container-image=registry.test/tiny sh -c 'echo started; sleep 3' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 10 grep -q started "$BATS_TEST_TMPDIR/out"
  chosen_tier_is_used
  wait
}
