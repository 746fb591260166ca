# lab: --name cgroup --user root --proctrack cgroup --situla-conf tests/cluster/no_idle.toml
# lab: --name linuxproc --user root --proctrack linuxproc --situla-conf tests/cluster/no_idle.toml
# lab: --name pgid --user root --proctrack pgid --situla-conf tests/cluster/no_idle.toml
# scancel and kill -9 at the worst moments, the same for every way in which Slurm tracks processes. image_mount_idle = 0, so that
# nothing at all may be left.
load helpers

slow_import() { as_alice srun --container-image=fault.test/slow true; }

pid_of() { pgrep -f "^(/[^ ]*/)?$1( |$)" | head -n 1; }
is_running() { [ -n "$(pid_of "$1")" ]; }

start_import() {
  snapshot
  slow_import >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  srun_pid=$!
  # Its task waits for the broker.
  wait_until 30 grep -q 'importing docker image' "$BATS_TEST_TMPDIR/out"
  wait_until 30 is_running situla-importer
  sleep 1
}

start_task() {
  as_alice srun --container-image=registry.test/tiny true
  snapshot
  as_alice srun -n2 --container-image="${1:-registry.test/tiny}" "${@:2}" sh -c 'echo started; exec sleep 300' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  srun_pid=$!
  wait_until 30 both_started
}
both_started() { [ "$(grep -c started "$BATS_TEST_TMPDIR/out")" -eq 2 ]; }

# Where containers without a name keep what is written in them.
has_layer() { [ -n "$(ls -A /home/alice/.local/share/enroot 2>/dev/null)" ]; }
has_no_layer() { ! has_layer; }

# finished SECONDS: srun has ended by itself; its exit status is in $status.
finished() {
  local deadline=$((SECONDS + $1))
  while kill -0 "$srun_pid" 2>/dev/null; do
    [ $SECONDS -lt $deadline ] || { echo "srun hangs"; cat "$BATS_TEST_TMPDIR/out"; return 1; }
    sleep 0.1
  done
  status=0
  wait "$srun_pid" || status=$?
  cat "$BATS_TEST_TMPDIR/out"
}

cancel_all() { as_alice scancel -u alice "$@"; }

teardown() {
  cancel_all -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
}

setup_file() {
  local root="$BATS_FILE_TMPDIR/root"
  mkdir -p "$root"/{bin,etc,proc,sys,dev,tmp,run,var}
  cp /bin/busybox "$root/bin/busybox"
  ln -s busybox "$root/bin/sh"
  ln -s busybox "$root/bin/sleep"
  printf 'sleep 60\nexec "$@"\n' >"$root/etc/rc"
  chmod 755 "$root/etc/rc"
  mksquashfs "$root" "$BATS_FILE_TMPDIR/slow-rc.sqsh" -quiet -no-progress -all-root >/dev/null
}

@test "scancel while the image is imported" {
  start_import
  cancel_all
  finished 20
  [ "$status" -ne 0 ]
  nothing_left
  [ -z "$(find /var/lib/situla -name '*.sqsh' -newer "$BATS_TEST_TMPDIR/before")" ]
}

@test "scancel while the tasks run" {
  start_task
  cancel_all
  finished 20
  [ "$status" -ne 0 ]
  nothing_left
}

@test "scancel while the tasks of a writable container run" {
  start_task registry.test/tiny --container-writable
  has_layer
  cancel_all
  finished 20
  nothing_left
  wait_until 30 has_no_layer
}

@test "kill -9 of the importer: the right error, nothing left" {
  start_import
  kill -9 "$(pid_of situla-importer)"
  finished 20
  [ "$status" -ne 0 ]
  grep -q 'importer was killed by SIGKILL' "$BATS_TEST_TMPDIR/out"
  nothing_left
}

@test "kill -9 of the broker during an import: the right error, nothing left" {
  start_import
  kill -9 "$(pid_of situla-broker)"
  finished 20
  [ "$status" -ne 0 ]
  grep -q "lost the container's broker" "$BATS_TEST_TMPDIR/out"
  nothing_left
}

@test "kill -9 of the broker while tasks run: they go on, nothing is left when they end" {
  start_task registry.test/tiny --container-writable
  kill -9 "$(pid_of situla-broker)"
  sleep 1
  kill -0 "$srun_pid"
  cancel_all
  finished 20
  nothing_left
  # Without its broker the builder removes the layer. With proctrack/cgroup Slurm kills it as well, and a cleaner does.
  wait_until 30 has_no_layer
}

@test "kill -9 of the broker while tasks run in a PID namespace of their own: they go on, with their files" {
  start_task registry.test/tiny --container-writable --container-unshare=pid
  kill -9 "$(pid_of situla-broker)"
  sleep 2
  kill -0 "$srun_pid"
  [ "$(pgrep -fxc 'sleep 300')" -eq 2 ]
  has_layer
  cancel_all
  finished 20
  nothing_left
  wait_until 30 has_no_layer
}

@test "kill -9 of slurmstepd during an import" {
  start_import
  kill -9 $(pgrep -f '^slurmstepd: ')
  nothing_left
  cancel_all -s KILL
  finished 120
}

@test "kill -9 of slurmstepd while tasks run: the container's processes end" {
  start_task
  kill -9 $(pgrep -f '^slurmstepd: ')
  nothing_left
  cancel_all -s KILL
  finished 120
}

@test "kill -9 of the builder while it works: the right error, nothing left" {
  # An rc that takes its time, so that there is something to kill.
  cp "$BATS_FILE_TMPDIR/slow-rc.sqsh" /home/alice/slow-rc.sqsh
  chown alice: /home/alice/slow-rc.sqsh
  snapshot
  has_no_layer
  as_alice srun --container-image=/home/alice/slow-rc.sqsh --container-writable true >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  srun_pid=$!
  wait_until 120 is_running situla-builder
  wait_until 30 has_layer
  kill -9 "$(pid_of situla-builder)"
  finished 20
  [ "$status" -ne 0 ]
  grep -q 'builder was killed by SIGKILL' "$BATS_TEST_TMPDIR/out"
  nothing_left
  # The broker, which looks like a slurmstepd, removes it when srun may have returned.
  wait_until 30 has_no_layer
}
