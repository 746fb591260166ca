# lab: --name cgroup --user root --slurm-conf MessageTimeout=60 --proctrack cgroup --situla-conf tests/cluster/no_idle.toml
# lab: --name linuxproc --user root --slurm-conf MessageTimeout=60 --proctrack linuxproc --situla-conf tests/cluster/no_idle.toml
# Many steps at once on one node, the same for every way in which Slurm tracks processes. All of them must succeed, and nothing may be
# left. One job holds more processors than there are, and its steps overlap, so that all really run at the same time.
load helpers

# at_once COUNT COMMAND...: that many srun in one job, after $before has run in it. What they printed is in out.N, how they ended in
# failed.N.
at_once() {
  local count=$1
  shift
  {
    echo '#!/bin/bash'
    echo "cd $outputs"
    echo "${before:-}"
    printf 'for ((i = 1; i <= %d; i++)); do\n  {' "$count"
    printf ' %q' srun --overlap -n1 "$@"
    printf ' >"out.$i" 2>&1 3>&- || echo "$?" >"failed.$i"; } &\ndone\nwait\n'
  } >"$outputs/at_once"
  chmod 755 "$outputs/at_once"
  as_alice salloc -Q -n16 "$outputs/at_once" 3>&-
}

# all_succeeded COUNT WORD: each srun ended well and printed the word once.
all_succeeded() {
  local failed
  for failed in "$outputs"/failed.*; do
    [ -e "$failed" ] || break
    echo "step ${failed##*.}: exit status $(cat "$failed")"
    cat "$outputs/out.${failed##*.}"
  done
  [ ! -e "$failed" ]
  grep -Lx "$2" "$outputs"/out.* | xargs -r tail -v -n +1
  [ "$(cat "$outputs"/out.* | grep -cx "$2")" -eq "$1" ]
}

setup() {
  # Of alice, who writes there.
  outputs=$(mktemp -d /tmp/situla-test.XXXXXX)
  chmod 777 "$outputs"
  as_alice enroot remove -f pyxis_x 2>/dev/null || true
}

teardown() {
  as_alice scancel -u alice 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$outputs"
}

@test "a hundred unnamed steps at once" {
  as_alice srun --container-image=registry.test/tiny true
  snapshot
  at_once 100 --container-image=registry.test/tiny sh -c 'echo $GREETING; sleep 2'
  all_succeeded 100 hello
  nothing_left
}

@test "fifty steps reuse one container at once" {
  as_alice srun --container-name=x --container-image=registry.test/tiny true
  snapshot
  at_once 50 --container-name=x:no_exec sh -c 'echo $GREETING; sleep 2'
  all_succeeded 50 hello
  nothing_left
}

# How many steps have joined one that ran.
joined() { cat "$SITULA_LAB"/logs/slurmd.*.log | grep -c 'reusing existing container namespaces' || true; }

# The step that made the container ends at some moment while fifty others look for it, join it or, when it has ended, start it.
@test "fifty steps attach while the first one ends" {
  local seed=${SEED:-$RANDOM} delay before
  RANDOM=$seed
  echo "again with SEED=$seed"
  as_alice srun --container-name=x --container-image=registry.test/tiny true
  snapshot
  before_joining=$(joined)
  for _ in 1 2 3; do
    rm -f "$outputs"/*
    delay=$((RANDOM % 1500))
    delay=$((delay / 1000)).$(printf %03d $((delay % 1000)))
    echo "the first step ends $delay s after the others begin"
    before="srun --overlap -n1 --container-name=x sh -c 'echo started; exec sleep $delay' >first 2>&1 &
      until grep -sq started first; do sleep 0.02; done"
    at_once 50 --container-name=x sh -c 'echo $GREETING; sleep 0.5'
    all_succeeded 50 hello
  done
  # The first step's or, when it had ended, each other's; on a busy machine all fifty of a round may look before one of them has begun.
  [ "$(joined)" -gt "$before_joining" ]
  nothing_left
}
