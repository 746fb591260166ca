# lab: --nodes 2 --user root --slurm-conf SchedulerParameters=bf_interval=1,sched_interval=1
# Heterogeneous jobs. Slurm gives the options of a plugin to all parts of one srun; parts with images of their own are steps of their own.
load helpers

@test "the parts of a heterogeneous job have their containers" {
  cat >/home/alice/parts.sh <<'SCRIPT'
#!/bin/sh
#SBATCH -n1
#SBATCH hetjob
#SBATCH -n2
srun --container-image=registry.test/tiny sh -c 'echo "one:$GREETING:$SLURM_PROCID"' : sh -c 'echo "one:$GREETING:$SLURM_PROCID"'
srun --het-group=0 --container-image=registry.test/tiny sh -c 'echo "first:$GREETING"' &
srun --het-group=1 --container-image=registry.test/debian:12 sh -c '. /etc/os-release; echo "second:$ID:$SLURM_PROCID"' &
wait
SCRIPT
  as_alice timeout 120 "$lab_tests/submit" -o /shared/parts.out /home/alice/parts.sh
  cat /shared/parts.out
  grep -E '^(one|first|second):' /shared/parts.out | sort >"$BATS_TEST_TMPDIR/found"
  diff - "$BATS_TEST_TMPDIR/found" <<'TEXT'
first:hello
one:hello:0
one:hello:1
one:hello:2
second:debian:0
second:debian:1
TEXT
}

@test "one srun with two images: refused, as Slurm would give both parts the last one" {
  run_and_show as_alice srun --container-image=registry.test/tiny true : --container-image=registry.test/debian:12 true
  [ "$status" -ne 0 ]
  [[ "$output" == *"--container-image: specified multiple times"* ]]
}
