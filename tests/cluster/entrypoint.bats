# lab: --name default
# lab: --name execute_entrypoint --plugin-arg execute_entrypoint=1
# --container-entrypoint: run or not, its output, its failures; what it leaves in the environment, and what not. As alice, on a node.
load helpers

image=registry.test/tiny:entrypoint

# with_entrypoint FILE SCRIPT: an image whose entrypoint is the script.
with_entrypoint() {
  rm -rf tree
  unsquashfs -q -n -d tree "$BATS_FILE_TMPDIR/entrypoint.sqsh" >/dev/null
  printf '#!/bin/sh\n%s\n' "$2" >tree/srv/entry
  chmod 755 tree/srv/entry
  mksquashfs tree "$1" -quiet -no-progress -all-root -noappend >/dev/null
}

setup_file() { situla import -o "$BATS_FILE_TMPDIR/entrypoint.sqsh" docker://registry.test#tiny:entrypoint; }

setup() {
  work=$(mktemp -d "$HOME/entrypoint.XXXXXX")
  cd "$work"
  enroot remove -f pyxis_x 2>/dev/null || true
}

teardown() {
  scancel -u alice 2>/dev/null || true
  wait 2>/dev/null || true
  cd /
  chmod -R u+rwX "$work"
  rm -rf "$work"
}

show='echo "ran=${ENTRYPOINT_RAN-no}"'

# bats file_tags=lab:default

@test "entrypoints are off unless asked for; they run once per node; exports are in all tasks; output only when asked for" {
  run_and_show srun --container-image=$image sh -c "$show"
  [ "${lines[-1]}" = ran=no ]
  run_and_show srun --no-container-entrypoint --container-image=$image sh -c "$show"
  [ "${lines[-1]}" = ran=no ]
  run_and_show srun -n4 --container-entrypoint --container-image=$image sh -c "$show"
  [ "$status" -eq 0 ]
  [ "$(grep -cx ran=yes <<<"$output")" -eq 4 ]
  [[ "$output" != *entrypoint:* ]]
  run_and_show srun -n4 --container-entrypoint --container-entrypoint-log --container-image=$image sh -c "$show"
  [ "$(grep -c entrypoint: <<<"$output")" -eq 1 ]
  run_and_show srun --container-entrypoint --no-container-entrypoint --container-image=$image true
  [ "$status" -ne 0 ]
  [[ "$output" == *'both --container-entrypoint and --no-container-entrypoint'* ]]
  PYXIS_CONTAINER_ENTRYPOINT=1 run_and_show srun --container-image=$image sh -c "$show"
  [ "${lines[-1]}" = ran=yes ]
}

@test "an entrypoint that does not execute its arguments" {
  with_entrypoint own.sqsh 'echo I do as I like; exit 0'
  run_and_show srun --container-entrypoint --container-image=./own.sqsh echo the task ran
  [ "$status" -eq 1 ]
  [[ "$output" == *'if the image has an unusual entrypoint, try using --no-container-entrypoint'* ]]
  if grep -qx 'the task ran' <<<"$output"; then false; fi
  run_and_show srun --container-image=./own.sqsh echo the task ran
  [ "$status" -eq 0 ]
}

@test "an entrypoint that fails: what it printed is shown" {
  with_entrypoint bad.sqsh 'echo out of order >&2; exit 9'
  run_and_show srun -n2 --container-entrypoint --container-image=./bad.sqsh echo the task ran
  [ "$status" -eq 1 ]
  [[ "$output" == *'out of order'* ]]
  [[ "$output" == *9* ]]
  [[ "$output" == *'try using --no-container-entrypoint'* ]]
  if grep -qx 'the task ran' <<<"$output"; then false; fi
}

@test "an entrypoint that takes long: the tasks wait; scancel ends it" {
  with_entrypoint slow.sqsh 'sleep 2; export SLOW=done; exec "$@"'
  run_and_show srun -n2 --container-entrypoint --container-image=./slow.sqsh sh -c 'echo $SLOW'
  [ "$(grep -cx done <<<"$output")" -eq 2 ]
  with_entrypoint hangs.sqsh 'sleep 300; exec "$@"'
  srun --container-entrypoint --container-image=./hangs.sqsh true >out 2>&1 3>&- &
  wait_until 30 pgrep -u alice -x sleep
  scancel -u alice
  wait_until 30 sh -c "! kill -0 $! 2>/dev/null"
  wait_until 30 sh -c '! pgrep -u alice "sleep|situla"'
}

@test "a named container: each step decides anew" {
  srun --no-container-entrypoint --container-name=x --container-image=$image sh -c "$show" >one 2>/dev/null
  srun --container-entrypoint --container-name=x sh -c "$show" >two 2>/dev/null
  srun --container-name=x sh -c "$show" >three 2>/dev/null
  srun --container-entrypoint --container-save=saved.sqsh --container-name=x sh -c "$show" >four 2>/dev/null
  srun --container-image=./saved.sqsh --container-entrypoint sh -c "$show" >five
  [ "$(cat one two three four five | xargs)" = 'ran=no ran=yes ran=no ran=yes ran=yes' ]
}

@test "/etc/rc.local of the image is sourced, with the entrypoint and without" {
  with_entrypoint local.sqsh 'exec "$@"'
  printf 'export FROM_RC_LOCAL=yes\n' >tree/etc/rc.local
  mksquashfs tree local.sqsh -quiet -no-progress -all-root -noappend >/dev/null
  run_and_show srun --container-image=./local.sqsh sh -c 'echo local=$FROM_RC_LOCAL'
  [ "${lines[-1]}" = local=yes ]
  run_and_show srun --container-entrypoint --container-image=./local.sqsh sh -c 'echo local=$FROM_RC_LOCAL'
  [ "${lines[-1]}" = local=yes ]
}

# bats file_tags=lab:execute_entrypoint

@test "execute_entrypoint=1 in plugstack.conf: entrypoints run unless they are refused" {
  run_and_show srun --container-image=$image sh -c "$show"
  [ "${lines[-1]}" = ran=yes ]
  run_and_show srun --no-container-entrypoint --container-image=$image sh -c "$show"
  [ "${lines[-1]}" = ran=no ]
}
