# lab: --name linuxproc --user root --slurm-conf KillWait=5 --slurm-conf MessageTimeout=60 --slurm-conf SchedulerParameters=bf_interval=1,sched_interval=1 --slurm-conf TaskPlugin=task/affinity --slurm-conf Prolog=/etc/slurm/prolog --slurm-conf Epilog=/etc/slurm/epilog --slurm-conf TaskProlog=/etc/slurm/task_prolog --slurm-conf TaskEpilog=/etc/slurm/task_epilog --slurm-file tests/cluster/slurm/prolog --slurm-file tests/cluster/slurm/epilog --slurm-file tests/cluster/slurm/task_prolog --slurm-file tests/cluster/slurm/task_epilog --situla-conf tests/cluster/no_idle.toml
# lab: --name cgroup --user root --proctrack cgroup --slurm-conf TaskPlugin=task/affinity,task/cgroup --situla-conf tests/cluster/no_idle.toml
# lab: --name pgid --user root --proctrack pgid --situla-conf tests/cluster/no_idle.toml
# What Slurm does around a task it does around a task in a container: signals, limits, prologs, requeue, arrays, and more. What depends
# on how Slurm tracks processes is tried in each lab.
load helpers

container=(--container-image=/shared/tiny.sqsh --container-mounts=/shared,/etc/slurm)

# both NAME OPTION...: the same srun on the host and in a container, at the same time; what differs is shown.
both() {
  local name=$1
  shift
  as_alice srun "$@" >"$BATS_TEST_TMPDIR/$name.bare" 2>&1 </dev/null 3>&- &
  as_alice srun "${container[@]}" "$@" >"$BATS_TEST_TMPDIR/$name.inside" 2>&1 </dev/null 3>&- &
}
# The same in one job, one after the other: for what depends on the processors that the job was given.
both_in_one_job() {
  local name=$1
  shift
  # shellcheck disable=SC2016
  as_alice salloc -Q -n2 bash -c 'name=$1 count=$2; srun "${@:3+count}" >"/shared/$name.bare" 2>&1; srun "${@:3}" >"/shared/$name.inside" 2>&1' \
    bash "$name" ${#container[@]} "${container[@]}" "$@" >/dev/null 2>&1 </dev/null 3>&- &
}
# Without what Slurm says when it is busy.
lines_of() { grep -v -E -e '^srun: (job [0-9]+ (queued|has been)|Job [0-9]+ step creation (temporarily|still) disabled|Step created for job)' -e '^situla: import' "$1" | sed 's/StepId=[0-9.]*/StepId=N/' | sort; }
compare() {
  diff <(lines_of "$BATS_TEST_TMPDIR/$1.bare") <(lines_of "$BATS_TEST_TMPDIR/$1.inside") || { echo "$1"; return 1; }
}

# expect_view NAME OPTION... : task_view's lines that differ from those without a container are exactly those on standard input.
expect_view() {
  local name=$1
  shift
  as_alice srun --cpu-bind=none "$@" /shared/task_view >"$BATS_TEST_TMPDIR/$name" 2>/dev/null </dev/null 3>&-
  diff "$BATS_TEST_TMPDIR/bare" "$BATS_TEST_TMPDIR/$name" | grep '^[<>]' | tr -d '\t' | grep -v -E '^[<>] (CapBnd|Cpus_allowed_list):' >"$BATS_TEST_TMPDIR/difference" || true
  diff - "$BATS_TEST_TMPDIR/difference" || { echo "$name"; return 1; }
}

filter_only() {
  printf '%s\n' '< Seccomp:0' '< Seccomp_filters:0' '> Seccomp:2' '> Seccomp_filters:1'
}

helpers() { pgrep -f '^(/[^ ]*/)?situla-(broker|builder|init)|squashfs' || true; }
# Without those that were there before the program was started: of the late jobs, which end when Slurm finds them.
own_helpers() { helpers | grep -v -x -F -e "$others" || true; }

# start_program OPTION...: task_view that writes down its signals, and what runs beside it.
start_program() {
  rm -f "$BATS_TEST_TMPDIR/signals"
  signals=/shared/signals.$BATS_TEST_NUMBER
  rm -f "$signals"
  others=$(helpers)
  as_alice srun -J program "${container[@]}" "$@" /shared/task_view signals "$signals" >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  srun_pid=$!
  wait_until 30 grep -qs ready "$signals"
  # The builder ends by itself, but for the one that serves the image.
  [[ "$*" == *unshare=pid* ]] || wait_until 30 one_builder
  before=$(own_helpers)
}
one_builder() { [ "$(pgrep -f '^(/[^ ]*/)?situla-builder' | grep -c -v -x -F -e "$others")" -le 1 ]; }

# ended STATUS: by itself; what it said is shown.
ended() {
  local status=0
  wait "$srun_pid" || status=$?
  cat "$BATS_TEST_TMPDIR/out"
  [ "$status" -eq "$1" ]
}

signals_reach_the_program() {
  local name
  start_program "$@"
  for name in USR1 USR2 HUP ALRM URG QUIT; do
    as_alice scancel --signal="$name" -n program
    wait_until 30 grep -qx "SIG$name" "$signals"
  done
  sleep 0.2
  # Each once, in order, and nothing besides.
  [ "$(tail -n +2 "$signals" | tr '\n' ' ')" = "SIGUSR1 SIGUSR2 SIGHUP SIGALRM SIGURG SIGQUIT " ]
  [ "$(own_helpers)" = "$before" ]
  # Stopped and continued, as Slurm suspends a step. What a cgroup's freezer stops is shown as D.
  as_alice scancel --signal=STOP -n program
  wait_until 30 pgrep -u alice -r T,D
  as_alice scancel --signal=CONT -n program
  wait_until 30 grep -qx SIGCONT "$signals"
  as_alice scancel --signal=TERM -n program
  ended 7
  [ "$(grep -cx SIGTERM "$signals")" -eq 1 ]
}

helpers_are() { [ "$(helpers)" = "$1" ]; }
no_own_helpers() { [ -z "$(own_helpers)" ]; }

# The script traps a signal; with --batch it alone gets it.
signals_of_batch() {
  local name=batch${*//[^a-z]/} job
  cat >/home/alice/trap.sh <<'SCRIPT'
#!/bin/sh
trap 'echo script got USR1; kill -9 $child; exit 3' USR1
(trap 'echo child got USR1' USR1; while :; do sleep 0.1; done) &
child=$!
echo started
wait
SCRIPT
  rm -f "/shared/$name.out"
  job=$(as_alice sbatch --parsable -J program -o "/shared/$name.out" "${container[@]}" "$@" /home/alice/trap.sh)
  wait_until 20 grep -qs started "/shared/$name.out"
  sleep 0.3
  as_alice scancel --batch --signal=USR1 "$job"
  wait_until 30 grep -q 'script got USR1' "/shared/$name.out"
  wait_until 30 job_ended "$job"
  cat "/shared/$name.out"
  [ "$(grep -c 'got USR1' "/shared/$name.out")" -eq 1 ]
  scontrol show job "$job" | grep -q 'ExitCode=3:0'
}
job_ended() { ! squeue -h -j "$1" -t all -o %T | grep -q -E 'PENDING|RUNNING|COMPLETING'; }

sleeper_is_gone() { ! pgrep -u alice -fx 'sleep 100'; }

# What somebody types, with pauses: Ctrl-C drops what was typed ahead.
type_keys() {
  wait_until 20 grep -qs ready "$1"
  printf 'stty size; sleep 100\n'
  wait_until 30 pgrep -u alice -fx 'sleep 100' >/dev/null
  printf '\003'
  wait_until 30 sleeper_is_gone >/dev/null
  sleep 0.5
  printf 'echo after=$?\nsleep 50 & sleep 0.1; kill %%1; wait %%1; echo job=$?\nexit 5\n'
  sleep 0.5
}

pending() { [ "$(squeue -h -j "$1" -o %T)" = PENDING ]; }

late_jobs_are_gone() { [ -z "$(squeue -h -n late,later -o %A)" ]; }

setup_file() {
  install -m 755 "$BATS_TEST_DIRNAME/../../build/release/tests/cluster/task_view" /shared/task_view
  as_alice situla import -o /shared/tiny.sqsh docker://registry.test/tiny
  [ "$SITULA_LAB_NAME" != linuxproc ] || start_late_jobs
}

# Slurm looks for jobs that are late every half minute: these wait while the other tests run.
start_late_jobs() {
  mkdir -p -m 1777 /shared/notes
  cd /home/alice
  as_alice sbatch -J late -o /shared/late.out --container-image=/shared/tiny.sqsh --container-mounts=/shared,/etc/slurm \
    --wrap 'exec /shared/task_view signals /shared/late.signals'
  as_alice sbatch -J later -o /shared/later.out --wrap "srun --container-image=/shared/tiny.sqsh --container-mounts=/etc/slurm sh -c 'trap \"echo got TERM\" TERM; echo started; while :; do sleep 0.2; done'"
  wait_until 20 grep -qs ready /shared/late.signals
  wait_until 20 grep -qs started /shared/later.out
  local name
  for name in late later; do
    scontrol update "JobId=$(squeue -h -n $name -o %A)" EndTime=now+1
  done
}

setup() { cd /home/alice; }

# The late jobs stay.
teardown() {
  # One name at a time, as scancel takes it; there is a job that is late on purpose.
  local name
  for name in program holder sh task_view sleep; do as_alice scancel -n "$name" 2>/dev/null || true; done
  wait 2>/dev/null || true
}

# bats test_tags=lab:linuxproc
@test "options of srun that change how tasks start do the same in a container" {
  local name names
  echo given >/shared/input
  printf '0 /bin/echo zero\n1-2 /bin/echo task %%t of it\n' >/shared/multi
  (umask 027; both umask sh -c 'umask'; wait) &
  (ulimit -n 512; ulimit -c 0; both limits --propagate=ALL sh -c 'ulimit -n; ulimit -c'; wait) &
  (ulimit -n 512; both no-limits --propagate=NONE sh -c 'ulimit -c'; wait) &
  both input --input=/shared/input cat
  both label -n3 --label echo here
  both multi -n3 --multi-prog /shared/multi
  both overcommit -n40 --overcommit -N1 echo one
  both exclusive -n2 --exclusive sh -c 'echo $SLURM_PROCID'
  both export --export=NONE /bin/sh -c 'echo "$SLURM_NTASKS:${HIDDEN-hidden}"'
  both export-one --export=HIDDEN=seen,PATH sh -c 'echo "$HIDDEN"'
  both unbuffered -n2 --unbuffered echo text
  both output -n2 -o "/shared/%x.%t" true
  both_in_one_job affinity -n2 --cpu-bind=rank sh -c 'grep Cpus_allowed_list /proc/self/status'
  both nice --nice=5 sh -c 'cut -d" " -f19 /proc/self/stat'
  both status -n4 sh -c 'exit $SLURM_PROCID'
  both missing /no/such/program
  wait
  cp /shared/affinity.* "$BATS_TEST_TMPDIR/"
  [ -s /shared/affinity.bare ]
  names=$(cd "$BATS_TEST_TMPDIR" && echo ./*.bare)
  for name in $names; do compare "$(basename "$name" .bare)"; done
}

# The bounding set is that of the user namespace, the filter makes chown(2) and its like succeed; nothing else.
@test "the program finds around it what it would find without a container, but for the filter and its namespace's capabilities" {
  as_alice srun --cpu-bind=none /shared/task_view >"$BATS_TEST_TMPDIR/bare" 2>/dev/null
  filter_only | expect_view plain "${container[@]}"
  filter_only | expect_view name "${container[@]}" --container-name=view --container-writable
  as_alice srun -J holder --container-name=view "${container[@]}" sh -c 'echo started; exec sleep 60' >"$BATS_TEST_TMPDIR/holder" 2>&1 3>&- &
  wait_until 20 grep -qs started "$BATS_TEST_TMPDIR/holder"
  filter_only | expect_view joined --container-name=view:exec
  as_alice scancel -n holder
  wait || true
  # A stand-in of Slurm's process waits outside of a PID namespace, and takes the program with it when it is killed.
  cat >"$BATS_TEST_TMPDIR/expected" <<'TEXT'
< Seccomp:0
< Seccomp_filters:0
> Seccomp:2
> Seccomp_filters:1
< parent: slurmstepd
< parent's death: signal 0
> parent: outside
> parent's death: signal 9
TEXT
  expect_view pid "${container[@]}" --container-unshare=pid <"$BATS_TEST_TMPDIR/expected"
}

@test "signals of scancel and srun reach the program once, and only it" { signals_reach_the_program; }
@test "signals of scancel and srun reach the program once, and only it, in a PID namespace" { signals_reach_the_program --container-unshare=pid; }

@test "Ctrl-C of srun ends the program" {
  local pid
  start_program
  pid=$(pgrep -u alice -o -f '^srun -J program')
  # srun passes these on.
  kill -USR1 "$pid"
  wait_until 30 grep -qx SIGUSR1 "$signals"
  # What a terminal does on Ctrl-C, twice within a second, once more where a busy machine took longer; srun says that it has heard the first.
  for _ in {1..10}; do
    kill -INT "$pid" || break
    sleep 0.2
    kill -INT "$pid" || break
    wait_until 5 grep -qE '^SIG(INT|TERM)$' "$signals" && break
  done
  grep -q 'one more within 1 sec' "$BATS_TEST_TMPDIR/out"
  wait "$srun_pid" || true
  cat "$BATS_TEST_TMPDIR/out"
  [ "$(tail -n 1 "$signals")" = SIGINT ] || [ "$(tail -n 1 "$signals")" = SIGTERM ]
  wait_until 30 no_own_helpers
}

# bats test_tags=lab:linuxproc
@test "scancel --batch reaches a script in a container, and its PID namespace" {
  signals_of_batch
  signals_of_batch --container-unshare=pid
}

# bats test_tags=lab:linuxproc
@test "a terminal: Ctrl-C, job control, and its size" {
  local option ready=/shared/terminal
  for option in --container-readonly --container-unshare=pid; do
    rm -f "$ready"
    type_keys "$ready" 3>&- | as_alice timeout 120 script -qec \
      "stty cols 33 rows 22; srun -J program --pty ${container[*]} $option sh -c 'echo ready >$ready; exec sh'" /dev/null 3>&- | tr -d '\r' >"$BATS_TEST_TMPDIR/screen"
    cat "$BATS_TEST_TMPDIR/screen"
    [[ "$(cat "$BATS_TEST_TMPDIR/screen")" == *"22 33"*after=130*job=143* ]]
  done
}

@test "--kill-on-bad-exit, --wait: all tasks end" {
  as_alice srun -J program -n3 --kill-on-bad-exit=1 "${container[@]}" sh -c '[ $SLURM_PROCID != 1 ] || exit 4; sleep 100' >"$BATS_TEST_TMPDIR/bad" 2>&1 3>&- &
  local bad=$! status=0
  as_alice srun -J program -n2 --wait=1 "${container[@]}" sh -c '[ $SLURM_PROCID != 1 ] || exit 0; sleep 100' >"$BATS_TEST_TMPDIR/wait" 2>&1 3>&- &
  local waiting=$!
  as_alice srun -J program -n2 --container-unshare=pid --kill-on-bad-exit=1 "${container[@]}" sh -c '[ $SLURM_PROCID != 1 ] || exit 4; sleep 100' >"$BATS_TEST_TMPDIR/bad-pid" 2>&1 3>&- &
  local bad_pid=$!
  wait $bad || status=$?
  cat "$BATS_TEST_TMPDIR/bad"
  [ "$status" -ne 0 ]
  grep -q 'task 1: Exited with exit code 4' "$BATS_TEST_TMPDIR/bad"
  status=0
  wait $waiting || status=$?
  cat "$BATS_TEST_TMPDIR/wait"
  [ "$status" -ne 0 ]
  wait $bad_pid || true
  grep -q 'task 1: Exited with exit code 4' "$BATS_TEST_TMPDIR/bad-pid"
  # In a PID namespace it is killed when the task is.
  wait_until 30 sleeper_is_gone
}

# bats test_tags=lab:linuxproc
@test "Prolog, Epilog and TaskEpilog run on the host; TaskProlog runs where the task runs, and its variables arrive" {
  local job
  as_alice srun -J program "${container[@]}" sh -c 'echo "$SLURM_JOB_ID $FROM_TASK_PROLOG"' >"$BATS_TEST_TMPDIR/out" 2>"$BATS_TEST_TMPDIR/err" </dev/null
  cat "$BATS_TEST_TMPDIR/out"
  job=$(cut -d' ' -f1 <"$BATS_TEST_TMPDIR/out")
  grep -qx "$job container" "$BATS_TEST_TMPDIR/out"
  wait_until 30 test -s "/shared/notes/epilog.$job"
  cat /shared/notes/*."$job"
  grep -qx "prolog host 0 $job" "/shared/notes/prolog.$job"
  grep -qx "epilog host 0 $job" "/shared/notes/epilog.$job"
  grep -qx "task_prolog container 60801 $job" "/shared/notes/task_prolog.$job"
  grep -qx "task_epilog host 60801 $job" "/shared/notes/task_epilog.$job"
}

# bats test_tags=lab:linuxproc
@test "each element of a job array has its container" {
  as_alice "$lab_tests/submit" -J program -a 1-4 -o '/shared/array.%a' "${container[@]}" --wrap 'echo "$GREETING $SLURM_ARRAY_TASK_ID"' >/dev/null
  [ "$(cat /shared/array.*)" = "$(printf 'hello %s\n' 1 2 3 4)" ]
}

# The first run notes that it was there; scontrol puts the job back into the queue; the second run ends well.
# bats test_tags=lab:linuxproc
@test "a job that is requeued while its image is imported, and while it runs, starts anew" {
  local importing running
  cat >/home/alice/again.sh <<'SCRIPT'
#!/bin/sh
echo "run ${SLURM_RESTART_COUNT:-0}"
[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || sleep 100
SCRIPT
  importing=$(as_alice sbatch --parsable --requeue --open-mode=append -J program -o /shared/importing.out --container-image=fault.test/slow-3 --container-mounts=/etc/slurm /home/alice/again.sh)
  running=$(as_alice sbatch --parsable --requeue --open-mode=append -J program -o /shared/running.out "${container[@]}" /home/alice/again.sh)
  wait_until 20 pgrep -f '^(/[^ ]*/)?situla-importer' >/dev/null
  as_alice scontrol requeue "$importing"
  wait_until 20 grep -qs 'run 0' /shared/running.out
  as_alice scontrol requeue "$running"
  # A job that was put back waits for two minutes, unless told to begin.
  for job in $importing $running; do
    wait_until 20 pending "$job"
    sleep 3 # the node still refuses the job's old credential
    scontrol update "JobId=$job" StartTime=now
  done
  wait_until 90 grep -qs 'run 1' /shared/importing.out
  wait_until 90 grep -qs 'run 1' /shared/running.out
}

# bats test_tags=lab:linuxproc
@test "jobs that are late get SIGTERM, then SIGKILL after KillWait; nothing is left" {
  wait_until 60 late_jobs_are_gone
  grep -qx SIGTERM /shared/late.signals
  grep -q 'DUE TO TIME LIMIT' /shared/late.out
  # It did not heed the SIGTERM.
  grep -qx 'got TERM' /shared/later.out
  grep -q 'DUE TO TIME LIMIT' /shared/later.out
  wait_until 30 helpers_are ""
}

# bats test_tags=lab:cgroup
@test "the tasks are in the cgroup of their step, their own PID namespace or not" {
  local option pid
  for option in --container-readonly --container-unshare=pid; do
    start_program "$option"
    pid=$(pgrep -u alice -n -f '^/shared/task_view signals')
    cat "/proc/$pid/cgroup"
    grep -q 'freezer:.*/job_[0-9]*/step_0' "/proc/$pid/cgroup"
    as_alice scancel -u alice
    wait || true
  done
}

# bats test_tags=lab:cgroup
@test "a container sees its step's cgroup and no other, read-only, with a network namespace of its own as well" {
  local option
  for option in --container-readonly --container-unshare=net; do
    run_and_show as_alice srun "${container[@]}" "$option" sh -c 'cd /sys/fs/cgroup/freezer
      grep -qx $$ cgroup.procs && echo mine; ls -d job_* ../freezer/slurm* 2>/dev/null; touch cgroup.procs 2>&1 | grep -o Read-only'
    [ "$output" = "mine
Read-only" ]
  done
}

# bats test_tags=lab:cgroup
@test "a job that is suspended while its container is prepared starts when it goes on, however long that was" {
  local job
  cp /etc/situla/situla.toml "$BATS_TEST_TMPDIR"
  echo 'build_timeout = 12' >>/etc/situla/situla.toml
  mkdir -p /etc/enroot/hooks.d
  # shellcheck disable=SC2016 # the hook's
  printf '#!/bin/sh\ntouch /shared/begun\nuntil [ -e /shared/go ]; do sleep 0.2; done\n' >/etc/enroot/hooks.d/50-slow.sh
  chmod 755 /etc/enroot/hooks.d/50-slow.sh
  as_alice srun -J slow "${container[@]}" echo 'went on' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 30 test -e /shared/begun
  job=$(squeue -h -n slow -o %i)
  scontrol suspend "$job"
  sleep 14
  scontrol resume "$job"
  touch /shared/go
  status=0
  wait $! || status=$?
  cat "$BATS_TEST_TMPDIR/out"
  rm /etc/enroot/hooks.d/50-slow.sh /shared/begun /shared/go
  cp "$BATS_TEST_TMPDIR/situla.toml" /etc/situla
  [ "$status" -eq 0 ]
  grep -qx 'went on' "$BATS_TEST_TMPDIR/out"
}
