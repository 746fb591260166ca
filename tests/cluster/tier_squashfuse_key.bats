# lab: --user root --plugin-arg use_squashfuse=1 --situla-conf tests/cluster/no_idle.toml
# pyxis's key in plugstack.conf has the same effect.
load helpers

@test "use_squashfuse=1" {
  as_alice srun --container-image=registry.test/tiny sh -c 'echo started; sleep 3' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 10 grep -q started "$BATS_TEST_TMPDIR/out"
  pgrep -u alice situla-image
  wait
}
