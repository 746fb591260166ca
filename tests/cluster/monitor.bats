# lab: --name port-range --nodes 4 --user root --slurm-conf SrunPortRange=61000-61400 --slurm-conf SchedulerParameters=bf_interval=1,sched_interval=1
# lab: --name any-port --nodes 3 --user root --slurm-conf SchedulerParameters=bf_interval=1,sched_interval=1
# What the nodes of a step have in common is said once: an error with the list of nodes, the progress of the slowest. On node1's machine.
load helpers

setup() {
  srun -Q -N"$(sinfo -h -o %D)" --ntasks-per-node=1 sh -c 'rm -rf /var/lib/situla/images /var/lib/situla/layers /var/lib/situla/grants'
  cd /home/alice
}

teardown() {
  pkill -CONT -x situla-monitor || true
  as_alice scancel -u alice -s KILL 2>/dev/null || true
}

monitors() { pgrep -x situla-monitor; }
no_monitors() { ! monitors; }
steps() { squeue -h --steps -o '%i %j' | grep -v -e extern -e interactive; }

# errors: how many lines of $output tell an error of ours that is no hint.
errors() { grep -Ec 'error: situla: ' <<<"$(grep -v 'situla: hint' <<<"$output")"; }

# told_of NODE...: what failed on these nodes is told together. On a busy machine one may be later than the monitor waits, and has a line of its own.
told_of() {
  local list
  for list in $(sed -nE 's/.*srun: error: situla: (node[],[0-9-]+)( \([0-9]+ tasks\))?: .*/\1/p' <<<"${output//$'\r'/}"); do scontrol show hostnames "$list"; done |
    sort >"$BATS_TEST_TMPDIR/named"
  diff <(printf '%s\n' "$@") "$BATS_TEST_TMPDIR/named"
  [ "$(errors)" -le $((($# + 1) / 2)) ]
  [ "$(grep -c 'situla: hint' <<<"$output")" -le 1 ]
}

# bats file_tags=lab:port-range
@test "one failure on four nodes and eight tasks is one message with the list of nodes" {
  snapshot
  run_and_show as_alice srun -N4 -n8 --container-image=registry.test/nosuchimage true
  [ "$status" -eq 1 ]
  told_of node1 node2 node3 node4
  grep -Eq '^srun: error: situla: node[^ ]*: .*nosuchimage.* \[image-not-found\]$' <<<"$output"
  [ "$(grep -c 'situla: hint' <<<"$output")" -eq 1 ]
  # Slurm's own words about plugins and tasks that could not be started are not there, and what srun says of the tasks comes last.
  if grep -q slurmstepd <<<"$output"; then false; fi
  [[ "$output" == *"[image-not-found]"*"Exited with exit code 1"* ]]
  wait_until 10 no_monitors
  nothing_left
}

@test "an error of each task has their number; one of some nodes names these; the nodes' logs have it, too" {
  mkdir -p /shared/closed
  echo >/shared/closed/image.sqsh
  chmod 700 /shared/closed
  run_and_show as_alice srun -N4 -n8 --container-image=/shared/closed/image.sqsh true
  [ "$status" -ne 0 ]
  told_of node1 node2 node3 node4
  [[ "$output" == *"srun: error: situla: node"*" tasks): "*"/shared/closed/image.sqsh: Permission denied"* ]]
  for node in 1 2 3 4; do grep -q 'situla: .*/shared/closed/image.sqsh: Permission denied' "$SITULA_LAB/logs/slurmd.node$node.log"; done
  as_alice srun -Q -N4 --container-image=registry.test/tiny true
  srun -Q -N2 -w node[2,4] mkdir /tmp/here
  run_and_show as_alice srun -N4 -n8 --container-image=registry.test/tiny --container-mounts=/tmp/here:/here true
  [ "$status" -ne 0 ]
  told_of node1 node3
  [[ "$output" == *"srun: error: situla: node"*": "*"/tmp/here"* ]]
  srun -Q -N2 -w node[2,4] rmdir /tmp/here
}

@test "a step of one node has no monitor; one of several has one, on a port of the site's, which ends with srun, however that ends" {
  as_alice srun -Q -N1 -n2 -w node1 --container-image=registry.test/tiny sleep 305 &
  wait_until 20 asleep 305
  if monitors; then false; fi
  as_alice scancel -u alice
  wait || true
  as_alice srun -Q -N2 -w node[1-2] -n2 --container-image=registry.test/tiny sleep 306 &
  wait_until 20 monitors
  monitor=$(monitors)
  [ "$(ps -o user= -p "$monitor")" = alice ]
  port=$(ss -Hltnp | grep -F "pid=$monitor," | awk '{ sub(".*:", "", $4); print $4 }' | sort -u)
  [ "$port" -ge 61000 ]
  [ "$port" -le 61400 ]
  wait_until 20 asleep 306
  # The nodes have nothing more to say: nobody is connected. The variable is nobody's but the plugin's.
  wait_until 10 sh -c "[ -z \"\$(ss -Htn state established '( sport = :$port )')\" ]"
  if tr '\0' '\n' <"/proc/$(asleep 306 | head -n 1)/environ" | grep -q MONITOR; then false; fi
  as_alice pkill -KILL -x srun
  wait_until 10 no_monitors
  as_alice scancel -u alice
  wait || true
}

@test "without an answer every node says it itself: the monitor was killed, or is stopped" {
  for signal in KILL STOP; do
    srun -Q -N2 -w node[1-2] sh -c 'rm -rf /var/lib/situla/images /var/lib/situla/layers /var/lib/situla/grants'
    as_alice srun -N2 -w node[1-2] -n4 --container-image=fault.test/slow-3 --container-workdir=/no/such true 2>told &
    wait_until 20 monitors
    pkill "-$signal" -x situla-monitor
    wait $! || true
    cat told
    [ "$(grep -c '/no/such' told)" -eq 2 ]
    grep -q 'slurmstepd-node1: error: situla: .*/no/such' told
    grep -q 'slurmstepd-node2: error: situla: .*/no/such' told
    pkill -CONT -x situla-monitor || true
    wait_until 10 no_monitors
    [ "$(grep -c '/no/such' told)" -eq 2 ]
    rm told
  done
}

# in_terminal SCRIPT: stdin and stderr are a terminal of 100 columns, whose output is $output.
in_terminal() {
  run_and_show as_alice timeout 90 script -qec "stty cols 100 rows 30; $1" /dev/null </dev/null
}

@test "one bar for the nodes of a step, which names the slowest; what failed takes its place" {
  in_terminal "srun -N3 -n3 --container-image=fault.test/slow-4 true"
  [ "$status" -eq 0 ]
  [[ "$output" =~ "importing fault.test/slow-4 on "[1-3]" nodes, the slowest node"[1-3] ]]
  [[ "$output" == *"total ["*"MiB/s"* ]]
  if grep -q 'first of' <<<"$output"; then false; fi
  # One line remains of it.
  [ "$(grep -Eo 'importing fault.test/slow-4 on [^:]*: [0-9.]+ s' <<<"$output" | wc -l)" -eq 1 ]
  srun -Q -N3 sh -c 'rm -rf /var/lib/situla/images /var/lib/situla/layers /var/lib/situla/grants'
  in_terminal "srun -N3 -n3 --container-image=fault.test/slow-4 --container-workdir=/no/such true"
  [ "$status" -ne 0 ]
  # The nodes get there one after the other, on a busy machine; nothing of the bar stands before the first of their words.
  [ "$(grep -c 'situla: hint' <<<"$output")" -eq 1 ]
  [[ "$output" == *"srun: error: situla: node"*"/no/such"* ]]
  [[ "${output##*"error: situla:"}" != *"total ["* ]]
}

@test "srun --pty: lines begin at the left" {
  in_terminal "srun --pty -N2 -w node1,node2 --container-image=registry.test/nosuchimage true"
  [ "$status" -ne 0 ]
  told_of node1 node2
  [[ "$output" == *$'srun: error: situla: node'*$'[image-not-found]\r\n'* ]]
}

@test "--export=NONE, salloc, a batch script: the same" {
  run_and_show as_alice srun --export=NONE -N2 -w node[1-2] --container-image=registry.test/nosuchimage true
  told_of node1 node2
  run_and_show as_alice salloc -Q -N2 -w node[1-2] srun --container-image=registry.test/nosuchimage true
  told_of node1 node2
  printf '#!/bin/sh\nsrun --container-image=registry.test/nosuchimage true\n' >/home/alice/script
  run_and_show as_alice sbatch -Q -W -N2 -w node[1-2] -o /home/alice/out /home/alice/script
  output=$(cat /home/alice/out)
  echo "$output"
  told_of node1 node2
}

# With SrunPortRange an srun of Slurm 22.05 that starts a heterogeneous step fails now and then, whoever's plugins it has: its threads try the same
# port first (srand48(getpid())), and the one that comes between the other's bind and listen tries no other.
# bats file_tags=lab:any-port
@test "a heterogeneous step: one message for all of its nodes" {
  run_and_show as_alice srun -N2 --container-image=registry.test/nosuchimage true : -N1 true
  [ "$status" -ne 0 ]
  told_of node1 node2 node3
  run_and_show as_alice srun -N2 --container-image=registry.test/nosuchimage true : -N1 --container-image=registry.test/neither true
  grep -Eq '^srun: error: situla: node(\[1-2\]|[12]): .*nosuchimage' <<<"$output"
  grep -q '^srun: error: situla: node3: .*neither' <<<"$output"
  run_and_show as_alice srun -N2 --container-image=registry.test/nosuchimage true : -N1 --no-container true
  told_of node1 node2
}
