# lab: --user root
# Containers of one name and several users: nobody sees, joins or removes another's. As root, who submits for both.
load helpers

@test "two users have containers of the same name, which run at the same time" {
  as_alice srun --chdir=/ --container-writable --container-name=x --container-image=registry.test/tiny sh -c 'echo of alice >/mark'
  run_and_show as bob srun --chdir=/ --container-name=x cat /mark
  [ "$status" -eq 1 ]
  [[ "$output" == *'a container with name "x" does not exist'* ]]
  as_alice srun --chdir=/ --container-name=x sleep 300 3>&- &
  wait_until 30 pgrep -u alice -x sleep
  run_and_show as bob srun --chdir=/ --container-name=x:exec cat /mark
  [ "$status" -eq 1 ]
  [[ "$output" == *'the container "x" is not running'* ]]
  run_and_show as bob srun --chdir=/ --container-name=x --container-image=registry.test/tiny sh -c 'ls /mark; id -un'
  [[ "$output" == *'/mark: No such file'* ]]
  as_alice scancel -u alice
  wait
}

@test "another's directory as ENROOT_DATA_PATH opens nothing" {
  run_and_show as bob env ENROOT_DATA_PATH=/home/alice/.local/share/enroot srun --chdir=/ --container-name=x cat /mark
  [ "$status" -ne 0 ]
  if grep -qx 'of alice' <<<"$output"; then false; fi
}

# asleep SECONDS: the program of a task, as Slurm found it.
ended() { [ -z "$(asleep "$1")" ]; }

# step_daemon JOB: the slurmstepd of its first step.
step_daemon() { pgrep -f "^slurmstepd: \[$1\.0\]"; }

@test "kill -9 of a slurmstepd ends the tasks of its step, and not those of another one in the same container" {
  local first second
  as_alice srun --chdir=/ -J made --container-name=shared --container-image=registry.test/debian:12 sleep 361 3>&- &
  wait_until 90 asleep 361
  as_alice srun --chdir=/ -J joined --container-name=shared:exec sleep 362 3>&- &
  wait_until 90 asleep 362
  first=$(running_job made) second=$(running_job joined)
  kill -9 $(step_daemon "$first")
  wait_until 30 ended 361
  asleep 362
  kill -9 $(step_daemon "$second")
  wait_until 30 ended 362
  as_alice scancel -s KILL -u alice
  wait
}

@test "kill -9 of the broker: the task goes on, and its end leaves nothing that others would try to join" {
  as_alice srun --chdir=/ --container-name=lonely --container-image=registry.test/debian:12 sleep 363 3>&- &
  wait_until 90 asleep 363
  [ -n "$(find /run/situla/containers -type s)" ]
  pkill -KILL -x situla-broker
  sleep 0.5
  asleep 363
  pkill -u alice -f "^[^ ]*sleep 363\$"
  wait
  wait_until 30 bash -c '[ -z "$(find /run/situla/containers -mindepth 1)" ]'
}
