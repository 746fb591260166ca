# lab: --user root --slurm-conf KillWait=2 --slurm-conf SchedulerParameters=bf_interval=1,sched_interval=1 --slurm-conf TaskPlugin=task/affinity --slurm-conf Prolog=/etc/slurm/prolog --slurm-conf Epilog=/etc/slurm/epilog --slurm-conf TaskProlog=/etc/slurm/task_prolog --slurm-conf TaskEpilog=/etc/slurm/task_epilog --slurm-file tests/cluster/slurm/prolog --slurm-file tests/cluster/slurm/epilog --slurm-file tests/cluster/slurm/task_prolog --slurm-file tests/cluster/slurm/task_epilog --situla-conf tests/cluster/no_idle.toml
# What Slurm does around a task it does around a task in a container: signals, limits, prologs, requeue, arrays, and more.
load helpers
load slurm

setup_file() {
  install -m 755 "$BATS_TEST_DIRNAME/../../build/release/tests/cluster/task_view" /shared/task_view
  mkdir -p -m 1777 /shared/notes
  rm -f /shared/*.sqsh /shared/late*
  as_alice situla import -o /shared/tiny.sqsh docker://registry.test/tiny
  # Slurm looks for jobs that are late every half minute: these wait while the other tests run.
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
  as_alice scancel -u alice -n program,holder,sh,task_view,sleep 2>/dev/null || true
  wait 2>/dev/null || true
}

@test "options of srun that change how tasks start do the same in a container" { same_as_bare; }
@test "the program finds around it what it would find without a container, but for the filter and its namespace's capabilities" { same_view; }
@test "signals of scancel and srun reach the program once, and only it" { signals_reach_the_program; }
@test "signals of scancel and srun reach the program once, and only it, in a PID namespace" { signals_reach_the_program --container-unshare=pid; }
@test "Ctrl-C of srun ends the program" { interrupt_of_srun; }
@test "scancel --batch reaches a script in a container, and its PID namespace" {
  signals_of_batch
  signals_of_batch --container-unshare=pid
}
@test "a terminal: Ctrl-C, job control, and its size" { terminal_works; }
@test "--kill-on-bad-exit, --wait, scancel of a job: all tasks end" { tasks_end_together; }
@test "Prolog, Epilog and TaskEpilog run on the host; TaskProlog runs where the task runs, and its variables arrive" { prologs_run; }
@test "each element of a job array has its container" { elements_have_containers; }
@test "a job that is requeued while its image is imported, and while it runs, starts anew" { requeued_jobs_start_anew; }

@test "jobs that are late get SIGTERM, then SIGKILL after KillWait; nothing is left" {
  wait_until 60 late_jobs_are_gone
  grep -qx SIGTERM /shared/late.signals
  grep -q 'DUE TO TIME LIMIT' /shared/late.out
  # It did not heed the SIGTERM.
  grep -qx 'got TERM' /shared/later.out
  grep -q 'DUE TO TIME LIMIT' /shared/later.out
  wait_until 10 helpers_are ""
}
