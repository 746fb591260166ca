# lab: --name cgroup --proctrack cgroup
# lab: --name linuxproc --proctrack linuxproc
# lab: --name pgid --proctrack pgid
# A step with --container-save gets signals as any other, the same for every way in which Slurm tracks processes. As alice, on a node.
load ../cluster/helpers

setup() {
  work=$(mktemp -d "$HOME/signals.XXXXXX")
  cd "$work"
}

teardown() {
  scancel -s KILL -u alice 2>/dev/null || true
  wait 2>/dev/null || true
  cd /
  rm -rf "$work"
}

# start OPTION... COMMAND
start() {
  srun --container-image=registry.test/tiny --container-mounts="$work:/w" --container-save=x.sqsh "$@" >out 2>&1 3>&- &
  srun_pid=$!
  wait_until 20 grep -q started out
}

ended() {
  wait_until 20 sh -c "! kill -0 $srun_pid 2>/dev/null"
  status=0
  wait "$srun_pid" || status=$?
  echo "status=$status"
  cat out
}

@test "signals that the program catches come once" {
  start -n2 sh -c 'trap "echo got usr1 >>/w/log$SLURM_PROCID" USR1; trap "echo got term >>/w/log$SLURM_PROCID; exit 5" TERM; echo started; while :; do sleep 0.1; done'
  wait_until 30 sh -c '[ "$(grep -c started out)" -eq 2 ]'
  scancel -s USR1 -u alice
  wait_until 30 grep -q usr1 log0
  wait_until 30 grep -q usr1 log1
  scancel -s TERM -u alice
  ended
  [ "$status" -eq 5 ]
  for log in log0 log1; do
    [ "$(cat $log)" = $'got usr1\ngot term' ]
  done
}

@test "SIGSTOP stops the program, SIGCONT continues it" {
  start sh -c 'echo started; i=0; while :; do i=$((i+1)); echo $i >/w/count; sleep 0.1; done'
  scancel -s STOP -u alice
  # What a cgroup's freezer stops is shown as D.
  wait_until 30 pgrep -u alice -r T,D -f '^[^ ]*sh -c echo started'
  first=$(cat count)
  sleep 0.5
  [ "$(cat count)" = "$first" ]
  scancel -s CONT -u alice
  wait_until 30 sh -c "[ \"\$(cat count)\" != '$first' ]"
  scancel -s KILL -u alice
  ended
  [ "$status" -ne 0 ]
}

# What a task has started ends with the step as well. Its signals may come before the task's own, which then goes on.
@test "scancel ends everything that the tasks have started" {
  start sh -c 'sleep 987 & sleep 987 | cat & echo started; wait; exit 3'
  scancel -u alice
  ended
  [ "$status" -ne 0 ]
  wait_until 30 sh -c '! pgrep -u alice -x sleep'
}

@test "a program that ends its process group" {
  start sh -c 'sleep 986 & echo started; sleep 0.5; kill 0; sleep 30'
  ended
  [ "$status" -eq 143 ]
  wait_until 30 sh -c '! pgrep -u alice -x sleep'
}
