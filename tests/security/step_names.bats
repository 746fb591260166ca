# lab: --user root
# JOB.STEP names the container without a name that a step runs, for its user and nobody else. COMPAT.md 10.
load ../cluster/helpers

setup() { second=$((681 + BATS_TEST_NUMBER)); }

teardown() {
  as_alice scancel -u alice -s KILL || true
  wait
}

asleep() { pgrep -u alice -f "^[^ ]*sleep $second\$"; }

# unnamed [OPTION]...: a step without a name that runs; its JOB.STEP in $step.
unnamed() {
  as_alice srun --chdir=/ -J unnamed --container-image=registry.test/tiny "$@" sh -c "echo kept >/tmp/mark; exec sleep $second" 3>&- &
  wait_until 20 asleep
  step=$(running_job unnamed).0
}

# before: 'a container with name "2.0" does not exist, and --container-image is not set'
@test "--container-name=JOB.STEP joins a step's read-only container" {
  unnamed
  local mine
  mine=$(readlink "/proc/$(asleep | head -n 1)/ns/mnt")
  run_and_show as_alice srun --chdir=/ --container-name="$step" readlink /proc/self/ns/mnt
  [ "$status" -eq 0 ]
  [ "${lines[-1]}" = "$mine" ]
  as_alice srun --chdir=/ --container-name="$step:exec" true
}

# before: "execve(): true: No such file or directory": an empty root
@test "--container-name=JOB.STEP joins a writable container, whose changes both see" {
  unnamed --container-writable
  as_alice srun --chdir=/ --container-name="$step" sh -c 'echo new >/changed'
  run_and_show as_alice srun --chdir=/ --container-name="$step" cat /changed
  [ "${lines[-1]}" = new ]
}

# before: bob: 'a container with name "4.0" does not exist'; alice's second: an empty root
@test "JOB.STEP of another user, or of a step that does not run here, is an error that says so" {
  unnamed --container-writable
  run_and_show as bob srun --chdir=/ --container-name="$step" true
  [ "$status" -ne 0 ]
  [[ $output == *"step $step runs no container without a name on this node"* ]]
  as_alice scancel -u alice -s KILL
  wait
  run_and_show as_alice srun --chdir=/ --container-name="$step" true
  [ "$status" -ne 0 ]
  [[ $output == *"step $step runs no container without a name on this node"* ]]
  # What a killed step has left is no container either.
  as_alice mkdir -p "/home/alice/.local/share/enroot/pyxis_$step"/{upper,work}
  run_and_show as_alice srun --chdir=/ --container-name="$step" true
  [ "$status" -ne 0 ]
  [[ $output == *"step $step runs no container without a name on this node"* ]]
  rm -rf "/home/alice/.local/share/enroot/pyxis_$step"
}

# before: list printed pyxis_5.0; start: "execve"; list -f: <unknown>; exec: "Invalid argument: 5.0"
@test "list, start and exec know a step by its name, and list -f its image" {
  unnamed --container-writable
  run_and_show as_alice enroot list
  if grep -F "$step" <<<"$output"; then false; fi
  run_and_show as_alice enroot start "pyxis_$step" true
  [ "$status" -ne 0 ]
  [[ $output == *"No such file or directory: /home/alice/.local/share/enroot/pyxis_$step"* ]]
  run_and_show as_alice enroot list -f
  grep -E "^pyxis_$step .*registry.test/tiny\$" <<<"$output"
  grep -E '^NAME .*COMMAND +IMAGE$' <<<"$output"
  run_and_show as_alice enroot exec "$step" cat /tmp/mark
  [ "$status" -eq 0 ]
  [ "${lines[-1]}" = kept ]
  as_alice enroot exec "pyxis_$step" true
  run_and_show as bob enroot exec "$step" true
  [ "$status" -ne 0 ]
  [[ $output == *"step $step runs no container on this node"* ]]
  # The image's name is the user's matter.
  if as bob grep -F tiny "/proc/$(asleep | head -n 1)/mountinfo"; then false; fi
  if as bob enroot list -f | grep -F "$step"; then false; fi
}

# before: passed
@test "a container may have a version for its name" {
  as_alice srun --chdir=/ --container-name=924.10 --container-image=registry.test/tiny true
  as_alice srun --chdir=/ --container-name=924.10 true
  as_alice srun --chdir=/ --container-name=924.03 --container-image=registry.test/tiny true
  as_alice enroot list | grep -x pyxis_924.10
  as_alice enroot remove -f pyxis_924.10 pyxis_924.03
}
