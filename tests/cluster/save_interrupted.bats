# lab: --name cgroup --user root --slurm-conf KillWait=15 --proctrack cgroup --situla-conf tests/cluster/no_idle.toml
# lab: --name linuxproc --user root --slurm-conf KillWait=15 --proctrack linuxproc --situla-conf tests/cluster/no_idle.toml
# A save that does not come to its end, the same for every way in which Slurm tracks processes: the step ends soon, the old file stays,
# nothing is left.
load helpers

# start_saving [OPTION...]: a container that takes long to save, since xz compresses data that cannot be compressed, with one thread.
start_saving() {
  echo 'the old file' >"$work/x.sqsh"
  chown alice: "$work/x.sqsh"
  snapshot
  ENROOT_SQUASH_OPTIONS='-comp xz' ENROOT_MAX_PROCESSORS=1 as_alice srun -n2 --chdir="$work" --container-image=registry.test/tiny \
    --container-writable --container-save=x.sqsh "$@" sh -c '[ $SLURM_PROCID = 0 ] || dd if=/dev/urandom of=/x bs=1M count=100 2>/dev/null' \
    >"$work.out" 2>&1 3>&- &
  srun_pid=$!
  wait_until 90 pgrep -x situla-saver
  sleep 0.5
}

# ended SECONDS: srun has ended by itself; its exit status is in $status. 10 are less than KillWait.
ended() {
  wait_until "$1" sh -c "! kill -0 $srun_pid 2>/dev/null" || { echo "srun hangs"; cat "$work.out"; return 1; }
  status=0
  wait "$srun_pid" || status=$?
  echo "status=$status"
  cat "$work.out"
}

nothing_is_saved_or_left() {
  nothing_left
  [ "$(cat "$work/x.sqsh")" = 'the old file' ]
  [ "$(ls -A "$work")" = x.sqsh ]
  if grep -q 'exported container' "$work.out"; then false; fi
}

setup_file() { as_alice srun --container-image=registry.test/tiny true; }

setup() {
  work=$(mktemp -d /home/alice/save.XXXXXX)
  chown alice: "$work"
}

teardown() {
  as_alice scancel -u alice -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
  umount "$work" 2>/dev/null || true
  rm -rf "$work" "$work.out"
}

@test "scancel during a save" {
  start_saving
  as_alice scancel -u alice
  ended 10
  nothing_is_saved_or_left
}

@test "scancel --signal=KILL during a save" {
  start_saving
  as_alice scancel -s KILL -u alice
  ended 10
  nothing_is_saved_or_left
}

# Signals for the user's programs do not disturb it.
@test "other signals do not end a save" {
  start_saving
  as_alice scancel -s USR1 -u alice
  as_alice scancel -s HUP -u alice
  sleep 1
  pgrep -x situla-saver
  kill -0 "$srun_pid"
  as_alice scancel -u alice
  ended 10
  nothing_is_saved_or_left
}

@test "kill -9 of the saver during a save" {
  start_saving
  kill -9 "$(pgrep -x situla-saver)"
  ended 10
  grep -Fq 'saving the container was killed by SIGKILL' "$work.out"
  nothing_is_saved_or_left
}

@test "kill -9 of the broker during a save" {
  start_saving
  kill -9 "$(pgrep -x situla-broker -o)"
  ended 10
  grep -Fq "lost the container's broker: the container is not saved" "$work.out"
  nothing_is_saved_or_left
}

@test "kill -9 of slurmstepd during a save" {
  start_saving
  kill -9 $(pgrep -f '^slurmstepd: ')
  nothing_is_saved_or_left
  as_alice scancel -u alice -s KILL
  ended 120
}

@test "the disk is full during a save" {
  mount -t tmpfs -o size=8m,uid="$(id -u alice)",mode=0755 full "$work"
  start_saving
  ended 60
  grep -Fq -- '--container-save x.sqsh: ' "$work.out"
  grep -Fq 'No space left on device' "$work.out"
  nothing_is_saved_or_left
}
