# lab: --nodes 2
# A save that fails fails the step, and nothing else about its tasks changes: exit codes, signals, terminals, cancelling. As alice, on
# node1.
load ../cluster/helpers

setup() {
  work=$(mktemp -d "$HOME/status.XXXXXX")
  cd "$work"
}

teardown() {
  scancel -u alice 2>/dev/null || true
  wait 2>/dev/null || true
  cd /
  chmod -R u+rwX "$work"
  rm -rf "$work"
}

# saving OPTION... COMMAND: the job's directory is /w inside, and the container is saved to x.sqsh there.
saving() { run_and_show srun --container-image=registry.test/tiny --container-mounts="$work:/w" --container-save=x.sqsh "$@"; }

# The directory was good when the step began.
spoil='mkdir /w/x.sqsh'

# before: srun's exit status was 0, below the error "--container-save x.sqsh: Is a directory"
@test "a save that fails after the last task: srun fails, and says why" {
  saving sh -c "$spoil"
  [ "$status" -eq 1 ]
  [[ "$output" == *'error: situla: --container-save x.sqsh'* ]]
  [ "$(ls -A)" = x.sqsh ]
}

# before: 0 for all of them
@test "a save that fails with many tasks, with a PID namespace, and on a terminal" {
  saving -n4 sh -c "[ \$SLURM_PROCID != 2 ] || { sleep 0.5; $spoil; }"
  [ "$status" -eq 1 ]
  [ "$(grep -c 'error: situla: --container-save x.sqsh' <<<"$output")" -eq 1 ]
  rmdir x.sqsh
  saving --container-unshare=pid sh -c "$spoil"
  [ "$status" -eq 1 ]
  rmdir x.sqsh
  run_and_show script -qec "srun --pty --container-image=registry.test/tiny --container-mounts=$work:/w --container-save=x.sqsh sh -c '$spoil'" /dev/null
  [ "$status" -eq 1 ]
}

# before: 0
@test "one node of two cannot save: the step fails, the other's file is there" {
  srun -N2 --ntasks-per-node=1 mkdir /tmp/status
  cd /
  run_and_show srun -N2 -n4 --container-image=registry.test/tiny --container-mounts=/tmp/status:/w --container-save=/tmp/status/x.sqsh \
    sh -c "[ \$SLURM_NODEID.\$SLURM_LOCALID != 1.0 ] || $spoil"
  [ "$status" -eq 1 ]
  [[ "$output" == *'node2: error: situla: --container-save /tmp/status/x.sqsh'* ]]
  [ -f /tmp/status/x.sqsh ]
  srun -N2 --ntasks-per-node=1 rm -r /tmp/status
}

# before: the same
@test "what the tasks returned stays, whether the save succeeds or fails" {
  saving sh -c 'exit 42'
  [ "$status" -eq 42 ]
  [ -f x.sqsh ]
  saving -n4 sh -c 'exit $SLURM_PROCID'
  [ "$status" -eq 3 ]
  saving sh -c 'kill -9 $$'
  [ "$status" -eq 137 ]
  saving sh -c 'kill -SEGV $$'
  [ "$status" -eq 139 ]
  [ -z "$(find . -name '*core*')" ]
  saving /bin/none
  [ "$status" -eq 2 ]
  [ -f x.sqsh ]
  rm x.sqsh
  saving sh -c "$spoil; exit 7"
  [ "$status" -eq 7 ]
}

# before: the same
@test "a task sees what it always saw: its number, its group, its terminal, the end of its input" {
  saving sh -c 'echo "$$ $SLURM_TASK_PID"; sleep 0 | cat; ls /proc/self/fd | wc -l'
  [ "$(grep -E '^[0-9]+ [0-9]+$' <<<"$output" | tr ' ' '\n' | sort -u | wc -l)" -eq 1 ]
  [ "$(grep -cxE '[345]' <<<"$output")" -eq 1 ]
  run_and_show bash -c 'seq 1000 | srun --container-image=registry.test/tiny --container-save=x.sqsh sh -c "wc -l; exec >&- 2>&-"'
  [ "${lines[-1]}" = 1000 ]
  run_and_show script -qec 'srun --pty --container-image=registry.test/tiny --container-save=x.sqsh sh -ic "tty; sleep 0; exit 3"' /dev/null
  [ "$status" -eq 3 ]
  [[ "$output" == */dev/pts/* ]]
  [[ "$output" != *'job control'* ]]
}
