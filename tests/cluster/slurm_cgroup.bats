# lab: --user root --proctrack cgroup --slurm-conf TaskPlugin=task/affinity,task/cgroup --situla-conf tests/cluster/no_idle.toml
# Slurm tracks and confines processes by cgroups: the same as slurm_features.bats for what depends on it.
load helpers
load slurm

setup_file() {
  install -m 755 "$BATS_TEST_DIRNAME/../../build/release/tests/cluster/task_view" /shared/task_view
  as_alice situla import -o /shared/tiny.sqsh docker://registry.test/tiny
}

setup() { cd /home/alice; }

teardown() {
  as_alice scancel -u alice 2>/dev/null || true
  wait 2>/dev/null || true
}

@test "the program finds around it what it would find without a container, but for the filter and its namespace's capabilities" { same_view; }
@test "signals of scancel and srun reach the program once, and only it" { signals_reach_the_program; }
@test "signals of scancel and srun reach the program once, and only it, in a PID namespace" { signals_reach_the_program --container-unshare=pid; }
@test "Ctrl-C of srun ends the program" { interrupt_of_srun; }
@test "--kill-on-bad-exit, --wait: all tasks end" { tasks_end_together; }
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
