# lab: --plugin-arg execute_entrypoint=1
# execute_entrypoint=1 in plugstack.conf: entrypoints run unless a user does not want it.
load helpers

@test "entrypoints run unless they are refused" {
  run_and_show srun --container-image=registry.test/tiny:entrypoint sh -c 'echo "ran=${ENTRYPOINT_RAN-no}"'
  [ "${lines[-1]}" = ran=yes ]
  run_and_show srun --no-container-entrypoint --container-image=registry.test/tiny:entrypoint sh -c 'echo "ran=${ENTRYPOINT_RAN-no}"'
  [ "${lines[-1]}" = ran=no ]
}
