# lab: --user root --plugin-arg use_squashfuse=1 --situla-conf tests/cluster/no_idle.toml
# pyxis's key in plugstack.conf has the same effect.
load helpers

@test "use_squashfuse=1" {
  run_and_show as_alice srun --container-image=registry.test/tiny sh -c 'echo $GREETING; sleep 3' &
  wait_until 10 pgrep -u alice -x sleep
  pgrep -u alice -f squashfuse
  wait
}
