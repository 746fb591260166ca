# lab: --nodes 2 --user root --proctrack cgroup --slurm-conf SchedulerParameters=bf_interval=1,sched_interval=1
# job_comment of situla.toml: what a job's record in Slurm says of the images of its steps.
load helpers

settings=/etc/situla/situla.toml
digest='sha256:[0-9a-f]{64}'
size='[0-9.]+[KM]iB'

setup() { cd /home/alice; }
teardown() {
  umount /usr/bin/squeue 2>/dev/null || true
  as_alice scancel -u alice -s KILL 2>/dev/null || true
  [ -z "${listener:-}" ] || kill "$listener"
  wait 2>/dev/null || true
  rm -f "$settings"
}

# For the steps that come.
set_to() {
  printf 'job_comment = "%s"\n' "$1" >"$settings.new"
  mv "$settings.new" "$settings"
}

# said JOB Comment|AdminComment
said() { scontrol show job "$1" | sed -n "s/^   $2=//p" | sed 's/ *$//'; }
# says JOB Comment|AdminComment REGEX: the whole of it.
says() { [[ $(said "$1" "$2") =~ ^$3$ ]]; }
words() { [ "$(said "$1" "$2" | grep -o 'situla: ' | wc -l)" -eq "$3" ]; }
# When a test fails, that is what one wants to know.
wait_for() {
  wait_until 40 "$@" && return
  scontrol show job "$2"
  return 1
}
no_recorder() { [ -z "$(srun -N2 --ntasks-per-node=1 sh -c 'pgrep -af "^(/[^ ]*/)?(situla-recorder|squeue|scontrol) " || true')" ]; }

# The image is on both nodes, and mounted.
fetch() { as_alice srun -N2 --ntasks-per-node=1 --container-image=registry.test/tiny true; }

# start NAME ARGUMENT...: a step of alice's that runs until it is cancelled; its job is in $job.
start() {
  as_alice srun --job-name="$1" "${@:2}" sleep 300 >"$BATS_TEST_TMPDIR/$1.out" 2>&1 3>&- &
  job=$(running_job "$1")
}

@test "off, as it is by default: nothing is said" {
  start plain --container-image=registry.test/tiny
  sleep 3
  [ -z "$(said "$job" Comment)" ]
  [ -z "$(said "$job" AdminComment)" ]
  no_recorder
}

@test "comment: name as typed, digest, size and source, behind what was there" {
  set_to comment
  start comment --comment='project = "x"; 5%' --container-image=docker://registry.test/tiny:latest
  wait_for says "$job" Comment "project = \"x\"; 5% situla: docker://registry.test/tiny:latest $digest $size (registry|store);"
  [[ $(said "$job" Comment) == *" $(situla digest registry.test/tiny) "* ]]
  [ -z "$(said "$job" AdminComment)" ]
  wait_until 20 no_recorder
}

@test "admin_comment: the same where only root writes, and the user's own comment stays as it is" {
  set_to admin_comment
  start admin --comment=mine --container-image=registry.test/tiny
  scontrol update JobId="$job" AdminComment='checked by root'
  wait_for words "$job" AdminComment 1
  says "$job" Comment mine
  run as_alice scontrol update JobId="$job" AdminComment=forged
  [ "$status" -ne 0 ]
}

@test "admin_comment, a step of two nodes: one of them says it, once, and the step ends as any other" {
  set_to admin_comment
  for image in registry.test/tiny registry.test/debian:12; do
    # shellcheck disable=SC2016 # on the nodes
    timeout 90 runuser -u alice -- env HOME=/home/alice USER=alice srun -J two -N2 --ntasks-per-node=2 --container-image=$image \
      sh -c 'echo "task on $SLURM_NODEID"; for i in $(seq 12); do sleep 0.5; done' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
    local srun=$!
    job=$(running_job two)
    wait_for says "$job" AdminComment "situla: $image $digest $size (registry|store);"
    wait $srun
    cat "$BATS_TEST_TMPDIR/out"
    [ "$(grep -c 'task on [01]' "$BATS_TEST_TMPDIR/out")" -eq 4 ]
    words "$job" AdminComment 1
  done
  wait_until 20 no_recorder
}

@test "two nodes, steps that are over at once: none of them waits, and nothing is left" {
  set_to admin_comment
  fetch
  snapshot
  for _ in {1..8}; do
    run_and_show timeout 60 runuser -u alice -- env HOME=/home/alice USER=alice srun -N2 --ntasks-per-node=1 --container-image=registry.test/tiny hostname
    [ "$status" -eq 0 ]
    [ "$(grep -c '^node[12]$' <<<"$output")" -eq 2 ]
  done
  nothing_left
}

@test "a job of several steps: each image once, also when they start at the same time" {
  set_to comment
  local image
  for image in tiny debian:12 weird multiarch; do
    as_alice srun -N1 -w node1 --container-image=registry.test/$image true || true
  done
  # shellcheck disable=SC2016
  as_alice salloc -J steps -N2 -n8 --comment=first bash -c '
    for image in tiny debian:12 weird multiarch tiny tiny; do
      srun --overlap -N1 -n1 --container-image=registry.test/$image sleep 300 &
    done
    wait' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  job=$(running_job steps)
  wait_for words "$job" Comment 4
  sleep 2
  words "$job" Comment 4
  says "$job" Comment "first( situla: registry.test/(tiny|debian:12|weird|multiarch) $digest $size (registry|store);){4}"
  [ "$(said "$job" Comment | grep -o 'registry.test/[a-z:0-9]*' | sort -u | wc -l)" -eq 4 ]
}

@test "a file says what is known of it; a container that was there says nothing" {
  set_to comment
  as_alice situla import -o /home/alice/tiny.sqsh docker://registry.test/tiny
  start file --container-image=/home/alice/tiny.sqsh
  wait_for says "$job" Comment 'situla: /home/alice/tiny.sqsh file;'
  as_alice srun --container-name=kept --container-image=registry.test/tiny true
  start named --container-name=kept --container-image=registry.test/tiny
  sleep 3
  [ -z "$(said "$job" Comment)" ]
}

@test "a batch script in a container, and the tasks of an array: each has its own" {
  set_to comment
  # shellcheck disable=SC2016 # in the job
  printf '#!/bin/sh\ncase $SLURM_ARRAY_TASK_ID in 1) image=tiny ;; *) image=debian:12 ;; esac\nsrun --container-image=registry.test/$image sleep 300\n' >array.sh
  array=$(as_alice sbatch --parsable -o /dev/null --comment=array --array=1-3 array.sh)
  each() {
    wait_for words "${array}_$1" Comment 1
    says "${array}_$1" Comment "array situla: registry.test/$2 $digest $size (registry|store);"
  }
  each 1 tiny
  each 2 debian:12
  each 3 debian:12
  as_alice scancel "$array"
  printf '#!/bin/sh\nsleep 300\n' >batch.sh
  job=$(as_alice sbatch --parsable -o /dev/null --container-image=registry.test/tiny batch.sh)
  wait_for says "$job" Comment "situla: registry.test/tiny $digest $size (registry|store);"
}

@test "the parts of a heterogeneous job: each has its own" {
  set_to comment
  printf '#!/bin/sh\n#SBATCH -n1 --comment=one\n#SBATCH hetjob\n#SBATCH -n1 --comment=two\n' >parts.sh
  # shellcheck disable=SC2129
  printf 'srun --het-group=0 --container-image=registry.test/tiny sleep 300 &\n' >>parts.sh
  printf 'srun --het-group=1 --container-image=registry.test/debian:12 sleep 300 &\nwait\n' >>parts.sh
  job=$(as_alice sbatch --parsable -o /shared/parts.out parts.sh)
  part() { scontrol show job "$job+$1" | sed -n 's/^   Comment=//p' | sed 's/ *$//'; }
  says_part() { [[ $(part "$1") =~ ^$2$ ]]; }
  wait_until 60 says_part 0 "one situla: registry.test/tiny $digest $size (registry|store);" || scontrol show job "$job"
  wait_until 60 says_part 1 "two situla: registry.test/debian:12 $digest $size (registry|store);" || scontrol show job "$job"
  says_part 0 "one situla: registry.test/tiny $digest $size (registry|store);"
  says_part 1 "two situla: registry.test/debian:12 $digest $size (registry|store);"
}

@test "a comment that is full stays as it is, and the node's log says why" {
  set_to comment
  local full
  full=$(printf '%01000d' 0)
  listen_to_log
  start full -w node1 --comment="$full" --container-image=registry.test/tiny
  wait_until 30 grep -q "situla-recorder.*job $job: its image is not in its Comment: there is no room: Slurm takes 1024 bytes" /tmp/node.log
  says "$job" Comment "$full"
}

# What programs of this node tell syslog goes to /tmp/node.log.
listen_to_log() {
  rm -f /dev/log
  python3 -c 'import os, socket
line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
line.bind("/dev/log")
os.chmod("/dev/log", 0o666)
while True:
    with open("/tmp/node.log", "ab") as log: log.write(line.recv(65536) + b"\n")' 3>&- &
  listener=$!
  wait_until 10 test -S /dev/log
}

# stand_in LINE...: in the place of this node's squeue, for its steps.
stand_in() {
  # The tests ask the real one.
  mkdir -p /run/bin
  cp /usr/bin/squeue /run/bin/
  PATH=/run/bin:$PATH
  printf '%s\n' '#!/bin/sh' "$@" >/run/squeue
  chmod 755 /run/squeue
  mount --bind /run/squeue /usr/bin/squeue
}

@test "Slurm does not answer: the step starts, runs and ends, and what waits for an answer ends with it" {
  set_to admin_comment
  fetch
  snapshot
  stand_in 'echo $$ >/run/asked' 'exec sleep 987'
  rm -f /run/asked
  run_and_show timeout 60 runuser -u alice -- env HOME=/home/alice USER=alice srun -w node1 --container-image=registry.test/tiny sh -c 'sleep 2; echo went on'
  [ "$status" -eq 0 ]
  [[ $output == *"went on"* ]]
  [ -e /run/asked ]
  umount /usr/bin/squeue
  nothing_left
}

@test "whatever is killed, nobody goes on: the broker, the task, slurmstepd, the recorder" {
  set_to admin_comment
  stand_in 'exec sleep 987'
  fetch
  snapshot
  asks() { pgrep -f '^sleep 987$' >/dev/null; }
  asks_no_more() { ! asks && ! pgrep -x situla-recorder >/dev/null; }
  local who
  for who in situla-broker situla-recorder sleep-300 slurmstepd; do
    start kill -w node1 --container-image=registry.test/tiny
    wait_until 30 asks
    case $who in
      sleep-300) pkill -KILL -f '^(/bin/)?sleep 300$' ;;
      slurmstepd) kill -KILL "$(pgrep -f "^slurmstepd: \[$job\.0\]")" ;;
      *) kill -KILL "$(pgrep -x "$who")" ;;
    esac
    wait_until 20 asks_no_more
    as_alice scancel "$job" 2>/dev/null || true
    wait || true
  done
  umount /usr/bin/squeue
  pkill -KILL -u alice -f '^(/bin/)?sleep 300$' || true
  nothing_left 60
}
