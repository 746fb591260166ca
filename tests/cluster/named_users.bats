# lab: --user root
# Containers of one name and several users: nobody sees, joins or removes another's. As root, who submits for both.
load helpers

@test "two users have containers of the same name, which run at the same time" {
  as_alice srun --chdir=/ --container-writable --container-name=x --container-image=registry.test/tiny sh -c 'echo of alice >/mark'
  run_and_show as bob srun --chdir=/ --container-name=x cat /mark
  [ "$status" -eq 1 ]
  [[ "$output" == *'a container with name "x" does not exist'* ]]
  as_alice srun --chdir=/ --container-name=x sleep 8 3>&- &
  wait_until 10 pgrep -u alice -x sleep
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
