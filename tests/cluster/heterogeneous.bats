# lab: --nodes 2 --user root --proctrack cgroup
# A step of several parts in one job, "srun A : B": Slurm gives each part a cgroup of its own, "step_0+1".
load helpers

teardown() {
  as_alice scancel -u alice -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
}

@test "each part runs in its container, and its helpers in the cgroup of the part" {
  as_alice salloc -Q -K -N2 srun -N1 -n1 --container-image=registry.test/tiny --container-writable sleep 317 : \
    -N1 -n1 --container-image=registry.test/tiny --container-writable sh -c 'echo second; sleep 317' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  # Of the first node only the processes are seen here.
  wait_until 30 pgrep -x -f "/bin/sleep 317" || cat "$BATS_TEST_TMPDIR/out"
  wait_until 30 grep -qx second "$BATS_TEST_TMPDIR/out"
  grep freezer "/proc/$(pgrep -x -f "/bin/sleep 317")/cgroup"
  grep freezer "/proc/$(pgrep -x situla-builder)/cgroup" | tee /dev/stderr | grep -q '/job_[0-9]*/step_0+0$'
}
