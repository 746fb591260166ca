# lab: --name linuxproc --user root --nodes 2 --slurm-conf SchedulerParameters=bf_interval=1,sched_interval=1
# lab: --name cgroup --user root --nodes 2 --proctrack cgroup --slurm-conf SchedulerParameters=bf_interval=1,sched_interval=1
# situla attach: a shell in a running job's container, from where jobs are submitted.
load helpers

setup() { cd /home/alice; }

teardown() {
  as_alice scancel -u alice -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
}

# step SECONDS OPTION...: a job whose only step sleeps in a container; its number is in $job.
step() {
  local seconds=$1
  as_alice srun -J attached -w node1 --chdir=/ "${@:2}" sh -c "echo kept >/tmp/mark; cd /srv; exec sleep $seconds" 3>&- &
  wait_until 60 asleep "$seconds"
  job=$(running_job attached)
}

@test "a command in the container without a name: its files, environment and directory" {
  step 701 --container-image=registry.test/tiny
  run_and_show as_alice env OUTSIDE=1 situla attach "$job" sh -c 'cat /tmp/mark; pwd; readlink /proc/self/ns/mnt; echo "of ${SLURM_JOB_ID}.$SLURM_STEP_ID, outside=${OUTSIDE-none}"; exit 7'
  [ "$status" -eq 7 ]
  [[ "$output" == *kept* ]]
  [[ "$output" == */srv* ]]
  [[ "$output" == *"$(readlink "/proc/$(asleep 701 | head -n 1)/ns/mnt")"* ]]
  [[ "$output" == *"of $job.0, outside=none"* ]]
  run_and_show as_alice sh -c "echo 'cat /tmp/mark; echo \$((40 + 2))' | situla attach $job.0"
  [ "$status" -eq 0 ]
  [[ "$output" == *kept* ]]
  [[ "$output" == *42* ]]
}

@test "a job of several parts: its number means the first one" {
  as_alice srun -J parts -w node1 --chdir=/ --container-image=registry.test/tiny sleep 705 : -w node2 --chdir=/ --container-image=registry.test/tiny sleep 705 3>&- &
  wait_until 60 asleep 705
  job=$(squeue -h -u alice -O HetJobID:16 | head -n 1 | tr -d ' ')
  [[ $job =~ ^[0-9]+$ ]]
  run_and_show as_alice situla attach "$job" sh -c 'echo "on $SLURMD_NODENAME"'
  [ "$status" -eq 0 ]
  [ "${lines[-1]}" = "on node1" ]
  run_and_show as_alice situla attach "$job+1" sh -c 'echo "on $SLURMD_NODENAME"'
  [ "$status" -eq 0 ]
  [ "${lines[-1]}" = "on node2" ]
}

@test "a container with a name, the batch script itself, a task of an array, and the second node" {
  step 702 --container-image=registry.test/tiny --container-name=attached --container-writable
  run_and_show as_alice situla attach "$job" cat /tmp/mark
  [ "$status" -eq 0 ]
  [[ "$output" == *kept* ]]
  as_alice scancel -u alice
  wait
  as_alice enroot remove -f pyxis_attached
  printf '#!/bin/sh\necho kept >/tmp/mark\nexec sleep 703\n' >/tmp/script
  as_alice sbatch -J attached -o /dev/null --chdir=/ --array=3,5%1 --container-image=registry.test/tiny /tmp/script
  wait_until 60 asleep 703
  local array
  array=$(squeue -h -t running -n attached -o %F_%K)
  [[ "$array" == *_3 ]]
  run_and_show as_alice situla attach "$array" cat /tmp/mark
  [ "$status" -eq 0 ]
  [[ "$output" == *kept* ]]
  run_and_show as_alice situla attach "$array.batch" cat /tmp/mark
  [ "$status" -eq 0 ]
  as_alice scancel -u alice
  wait_until 60 sh -c '[ -z "$(squeue -h -u alice)" ]'
  step 704 -N2 --ntasks-per-node=1 --container-image=registry.test/tiny
  # step() has seen the one of node1 only.
  wait_until 60 as_alice srun -Q --overlap --jobid="$job" -N1 -n1 -w node2 pgrep -f '^[^ ]*sleep 704$'
  run_and_show as_alice situla attach --node node2 "$job" sh -c 'echo "on $SLURMD_NODENAME"'
  [ "$status" -eq 0 ]
  [[ "$output" == *'on node2'* ]]
}

@test "steps on several nodes: of those of the node that is meant the last one, and nobody else's of Situla" {
  as_alice salloc -Q -J attached -N2 --chdir=/ sh -c 'srun --overlap -N1 -n1 -w node1 --container-image=registry.test/tiny sleep 713 & sleep 1
    srun --overlap -N1 -n1 -w node2 sleep 714 & srun --overlap -N1 -n1 -w node1 -J situla-prefetch sleep 715; wait' 3>&- &
  wait_until 60 asleep 713
  wait_until 60 asleep 715
  job=$(running_job attached)
  wait_until 60 as_alice srun -Q --overlap --jobid="$job" -N1 -n1 -w node2 pgrep -f '^[^ ]*sleep 714$'
  run_and_show as_alice situla attach -w node1 "$job" sh -c 'echo "on $SLURMD_NODENAME"'
  [ "$status" -eq 0 ]
  [ "${lines[-1]}" = "on node1" ]
  run_and_show as_alice situla attach -w node2 "$job" true
  [ "$status" -ne 0 ]
  [[ "$output" == *"runs no container on this node"* ]]
  run_and_show as_alice situla attach -w node2 "$job.0" true
  [[ "$output" == *"$job.0 does not run on node2"*"$job.0 runs on node1"* ]]
}

@test "on a terminal it is an interactive shell" {
  step 705 --container-image=registry.test/debian:12
  cat >"$BATS_TEST_TMPDIR/talk" <<E
set timeout 30
spawn situla attach $job
expect -re {[\$#] }
send "tty; cat /tmp/mark; exit 3\r"
expect -re {/dev/pts/\d+.*kept}
expect eof
catch wait result
exit [lindex \$result 3]
E
  chmod -R a+rX "$BATS_RUN_TMPDIR"
  run_and_show as_alice expect "$BATS_TEST_TMPDIR/talk"
  [ "$status" -eq 3 ]
  [[ "$output" == *kept* ]]
}

@test "what cannot be attached to is said, and nobody gets at another's job" {
  run_and_show as_alice situla attach
  [ "$status" -eq 1 ]
  [[ "$output" == *'attach: JOB is required'* ]]
  run_and_show as_alice situla attach here
  [[ "$output" == *'Invalid argument: here'*'a job is meant by its number'* ]]
  run_and_show as_alice situla attach 99999
  [ "$status" -eq 1 ]
  [[ "$output" == *'job 99999 runs no step'* ]]
  step 706 --container-image=registry.test/tiny
  run_and_show as_alice situla attach "$job.7" true
  [ "$status" -eq 1 ]
  [[ "$output" == *"step $job.7 does not run"*"of this job there run: $job.0"* ]]
  run_and_show as_alice situla attach --node node9 "$job" true
  [[ "$output" == *"does not run on node9"* ]]
  run_and_show as bob situla attach "$job" cat /tmp/mark
  [ "$status" -ne 0 ]
  if grep -qx kept <<<"$output"; then false; fi
  as_alice scancel -u alice
  wait
  as_alice srun -J attached -w node1 --chdir=/ sleep 707 3>&- &
  wait_until 60 asleep 707
  job=$(running_job attached)
  run_and_show as_alice situla attach "$job" true
  [ "$status" -ne 0 ]
  [[ "$output" == *"step $job.0 runs no container on this node"* ]]
}

@test "what attaches ends with the job, and leaves the job's step alone" {
  step 708 --container-image=registry.test/tiny
  as_alice situla attach "$job" sleep 709 3>&- &
  wait_until 60 asleep 709
  # Another one meanwhile, and beside a step without a container: the step that has one is meant.
  as_alice srun --jobid="$job" --overlap --chdir=/ sleep 711 3>&- &
  wait_until 60 asleep 711
  run_and_show as_alice situla attach "$job" cat /tmp/mark
  [ "$status" -eq 0 ]
  [[ "$output" == *kept* ]]
  pkill -u alice -f '^[^ ]*sleep 711$'
  pkill -u alice -f '^[^ ]*sleep 709$'
  wait_until 30 sh -c '! pgrep -u alice -f "^[^ ]*sleep 709\$"'
  asleep 708
  as_alice situla attach "$job" sleep 710 3>&- &
  wait_until 60 asleep 710
  as_alice scancel "$job"
  wait_until 60 sh -c '! pgrep -u alice -x sleep'
}
