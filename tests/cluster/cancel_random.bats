# lab: --user root --slurm-conf KillWait=15 --proctrack linuxproc --situla-conf tests/cluster/no_idle.toml
# scancel at random moments: the step ends within 10 seconds and nothing of it is left: no process, mount, loop device, temporary file,
# lock or half image. SITULA_CANCEL_SEED repeats a run.
load helpers

setup_file() {
  export SITULA_CANCEL_SEED=${SITULA_CANCEL_SEED:-$RANDOM}
  as_alice situla import -o /shared/tiny.sqsh docker://registry.test/tiny
  # Steps of one job: another job would wait until Slurm has cleaned up behind the last one.
  job=$(as_alice sbatch --parsable -J holder -n2 -o /dev/null --wrap 'sleep 1000')
  export job
  as_alice srun --container-image=registry.test/tiny true
  # An entrypoint and an rc that take a while.
  mkdir -p "$BATS_FILE_TMPDIR/root"
  unsquashfs -q -n -f -d "$BATS_FILE_TMPDIR/root" /shared/tiny.sqsh >/dev/null
  printf 'sleep 1\nexec "$@"\n' >"$BATS_FILE_TMPDIR/root/etc/rc"
  mksquashfs "$BATS_FILE_TMPDIR/root" /shared/slow-rc.sqsh -quiet -no-progress -all-root >/dev/null
}

# The job that holds the steps stays.
teardown() {
  [ -z "${srun_pid:-}" ] || kill -9 "$srun_pid" 2>/dev/null || true
  wait 2>/dev/null || true
}

images() { find /var/lib/situla -name '*.sqsh' | sort; }
step_of() { squeue -h -s -j "$job" -o '%i %j' | sed -n "s/ $1\$//p" | head -n 1; }

# canceled NAME MILLISECONDS OPTION...: one step, cancelled so long after its start.
canceled() {
  local name=$1 delay=$2 began ended again=
  shift 2
  snapshot
  as_alice srun --jobid="$job" --overlap -J "$name" "$@" >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  srun_pid=$!
  sleep "$(printf '%d.%03d' $((delay / 1000)) $((delay % 1000)))"
  wait_until 30 step_is_there "$name"
  began=$(date +%s%N)
  as_alice scancel "$(step_of "$name")" 2>/dev/null || true
  while kill -0 "$srun_pid" 2>/dev/null; do
    [ $(($(date +%s%N) - began)) -lt 20000000000 ] || break
    # proctrack/linuxproc kills no process that is called slurmstepd, so a task that was just forked outlives the kill: of sixty plain sruns,
    # cancelled as early, ten did.
    if [ -z "$again" ] && [ $(($(date +%s%N) - began)) -gt 4000000000 ] && grep -q 'aborted before step completely launched' "$BATS_TEST_TMPDIR/out"; then
      as_alice scancel "$(step_of "$name")" 2>/dev/null || true
      again=yes
    fi
    sleep 0.05
  done
  ended=$((($(date +%s%N) - began) / 1000000))
  wait "$srun_pid" || true
  if grep -q -e CANCELLED -e "the step was cancelled" "$BATS_TEST_TMPDIR/out"; then hits=$((hits + 1)); fi
  if [ "$ended" -gt 10000 ] || ! nothing_left; then
    echo "$name, cancelled after $delay ms, took $ended ms (SITULA_CANCEL_SEED=$SITULA_CANCEL_SEED)"
    cat "$BATS_TEST_TMPDIR/out"
    return 1
  fi
}

# Or was: a step that is over cannot be cancelled any more.
step_is_there() { [ -n "$(step_of "$1")" ] || ! kill -0 "$srun_pid" 2>/dev/null; }

# at_random_moments NAME COUNT MOST OPTION...: moments spread over so many milliseconds.
at_random_moments() {
  local name=$1 count=$2 most=$3 i hits=0
  shift 3
  RANDOM=$SITULA_CANCEL_SEED
  echo "SITULA_CANCEL_SEED=$SITULA_CANCEL_SEED" >&3
  for ((i = 0; i < count; i++)); do
    # Each by a name of its own: Slurm may still list the one before.
    canceled "$name$i" $((RANDOM % most)) "$@"
  done
  # The others were over, or not yet Slurm's; how many is chance, too. A fifth, so that it fails for no chance that anybody meets.
  echo "$hits of $count were cancelled"
  [ "$hits" -ge $((count / 5)) ]
}

@test "30 random moments of an import" {
  local before
  before=$(images)
  at_random_moments import 30 700 --container-image=fault.test/slow true
  [ "$(images)" = "$before" ]
}

@test "30 random moments of a start" {
  at_random_moments start 30 400 -n2 --container-image=registry.test/tiny --container-writable sleep 100
}

@test "random moments of making a named container, and of using it" {
  at_random_moments make 8 400 --container-name=half --container-image=/shared/tiny.sqsh --container-writable sleep 100
  run_and_show as_alice srun --jobid="$job" --overlap --container-name=half --container-image=/shared/tiny.sqsh sh -c 'echo "whole $GREETING"'
  [[ "$output" == *"whole hello"* ]]
  ls -A /home/alice/.local/share/enroot
  [ "$(ls -A /home/alice/.local/share/enroot)" = pyxis_half ]
}

@test "random moments of an entrypoint" {
  at_random_moments entrypoint 6 1300 --container-image=/shared/slow-rc.sqsh --container-entrypoint true
}

@test "random moments of a save: the file is the old one or the new one" {
  local i
  cp /shared/tiny.sqsh /home/alice/saved.sqsh
  chown alice: /home/alice/saved.sqsh
  at_random_moments save 8 1500 --container-image=/shared/tiny.sqsh --container-writable --container-save=/home/alice/saved.sqsh sh -c 'head -c 300000000 /dev/urandom >/big'
  unsquashfs -q -n -l /home/alice/saved.sqsh >/dev/null
  [ -z "$(find /home/alice -maxdepth 1 -name '*.sqsh*' ! -name saved.sqsh)" ]
}
