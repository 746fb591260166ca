# lab: --user root --proctrack cgroup --slurm-conf JobContainerType=job_container/tmpfs --slurm-conf PrologFlags=Contain --slurm-file tests/cluster/slurm/job_container.conf --enroot-conf tests/cluster/slurm/in_tmp.conf --situla-conf tests/cluster/no_idle.toml
# job_container/tmpfs: each job has a /tmp of its own, which its containers see, and where enroot's own directories may be.
load helpers

# What is in the store stays.
setup_file() { as_alice srun --container-image=registry.test/tiny true; }

batch() {
  cat >/home/alice/job.sh
  as_alice "$lab_tests/submit" -o /shared/out /home/alice/job.sh || true
  cat /shared/out
}

@test "a container sees the private /tmp of its job, not the node's" {
  echo outside >/tmp/outside
  snapshot
  batch <<'SCRIPT'
#!/bin/sh
echo mine >/tmp/mine
srun --container-image=registry.test/tiny --container-mounts=/tmp,/tmp/mine:/file sh -c 'cat /file /tmp/mine; echo back >/tmp/back; ls /tmp/outside'
cat /tmp/back
SCRIPT
  [ "$(grep -cx mine /shared/out)" -eq 2 ]
  grep -qx back /shared/out
  grep -q '/tmp/outside: No such file' /shared/out
  [ ! -e /tmp/back ]
  nothing_left
}

@test "named containers in the private /tmp live and end with the job; saving there works" {
  snapshot
  batch <<'SCRIPT'
#!/bin/sh
srun --container-name=inside --container-image=registry.test/tiny --container-writable sh -c 'echo made >/new; mv /new /made; until [ -e /seen ]; do sleep 0.1; done' &
while ! srun --overlap --container-name=inside:exec sh -c 'cat /made && touch /seen' 2>/dev/null; do sleep 0.1; done
wait
srun --container-name=inside --container-save=/tmp/saved.sqsh cat /made
srun --container-image=/tmp/saved.sqsh cat /made
ls -d /tmp/enroot-*/data/pyxis_inside
SCRIPT
  [ "$(grep -cx made /shared/out)" -eq 3 ]
  grep -q '^/tmp/enroot-60801/data/pyxis_inside' /shared/out
  nothing_left
  run_and_show as_alice srun --container-name=inside true
  [ "$status" -ne 0 ]
  [[ "$output" == *'a container with name "inside" does not exist'* ]]
}

@test "scancel in a job with a private /tmp leaves nothing" {
  snapshot
  as_alice srun --container-name=gone --container-image=registry.test/tiny --container-writable sh -c 'echo started; sleep 300' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 30 grep -q started "$BATS_TEST_TMPDIR/out"
  as_alice scancel -u alice
  wait || true
  nothing_left
}
