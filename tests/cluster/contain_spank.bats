# lab: --slurm-conf JobContainerType=job_container/tmpfs --slurm-conf PrologFlags=Contain --slurm-conf SlurmdParameters=config_overrides,contain_spank
# The job has a /tmp of its own, and Slurm (24.05 on, older versions ignore the word) calls task_exit of the plugin inside of the job's
# mount namespace, in a process that shares slurmstepd's memory but not its descriptors.
load helpers

setup() { cd "$HOME"; }

@test "the container sees the job's /tmp, in a step and in a batch script" {
  run_and_show srun --container-image=registry.test/debian:12 --container-mounts=/tmp:/job-tmp sh -c 'echo step >/job-tmp/mine && cat /job-tmp/mine'
  [ "$status" -eq 0 ]
  [ "${lines[-1]}" = step ]
  [ ! -e /tmp/mine ]
  cat >job.sh <<'SCRIPT'
#!/bin/sh
#SBATCH --container-image=registry.test/debian:12 --container-mounts=/tmp:/job-tmp
grep PRETTY /etc/os-release
echo batch >/job-tmp/mine
ls /job-tmp
SCRIPT
  "$lab_tests/submit" -o out job.sh
  cat out
  grep -q 'Debian GNU/Linux 12' out
  grep -qx mine out
  [ ! -e /tmp/mine ]
}

@test "several tasks, exit codes and errors" {
  run_and_show srun -n4 --container-image=registry.test/tiny sh -c 'exit $SLURM_PROCID'
  [ "$status" -eq 3 ]
  run_and_show srun -n4 --container-image=registry.test/nosuchimage true
  [ "$status" -ne 0 ]
  [ "$(grep -c 'failed to import docker image: registry.test/nosuchimage' <<<"$output")" -eq 1 ]
}

@test "nothing is left when srun has returned" {
  srun --container-image=registry.test/tiny true
  snapshot
  run_and_show srun -n2 --container-writable --container-image=registry.test/tiny sh -c 'echo x >/new'
  [ "$status" -eq 0 ]
  nothing_left
}
