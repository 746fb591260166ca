# lab: --user root --proctrack cgroup
# Programs that write in one layered container at the same time share a process that keeps its files. It never leaves the
# job that began it, and so ends with another job, or a step of it: whoever depends on one hears it.
load ../cluster/helpers

setup() {
  work=$(mktemp -d /home/alice/keeper.XXXXXX)
  chown alice: "$work"
  cd "$work"
  as_alice srun --container-writable --container-name=x --container-image=registry.test/tiny sh -c 'echo made >/mark'
  wait_until 20 nobody_keeps
}

teardown() {
  as_alice scancel -u alice -s KILL || true
  wait
  wait_until 20 nobody_keeps
  as_alice enroot remove -f pyxis_x
  cd /
  rm -rf "$work"
}

nobody_keeps() { ! pgrep -u alice situla-keeper >/dev/null; }

# until_end NAME: a program that runs until $work/end-NAME is there.
until_end() { echo "echo \$SLURM_JOB_ID >/work/$1; while [ ! -e /work/end-$1 ]; do sleep 0.1; done; cat /mark /bin/busybox >/dev/null && echo fine"; }

# job NAME COMMAND...: in the background; its number in $job.
job() {
  as_alice srun -J "$@" >"$1.out" 2>&1 3>&- &
  wait_until 60 test -s "$1" || { cat "$1.out"; return 1; }
  job=$(<"$1")
}
starts() { job "$1" enroot start --rw -e SLURM_JOB_ID -m "$work:/work" pyxis_x sh -c "$(until_end "$1")"; }
runs() { job "$1" --container-writable --container-name=x:no_exec --container-mounts="$work:/work" sh -c "$(until_end "$1")"; }

# end_keeper_of JOB: what the second program prints after that is in second.out.
end_keeper_of() {
  as_alice scancel "$1"
  wait_until 20 nobody_keeps
  touch end-second
  wait || true
  cat second.out
}

warning() { echo "the files of container \"$1\" are kept by step $2 and go when that step ends"; }

# before: nothing was said
@test "who shares what a step of another job keeps is told once, in steps and in start; the step itself is not" {
  starts first
  local first=$job
  runs second
  starts third
  # What a program says comes by way of Slurm, in its time.
  wait_until 20 grep -Fq "$(warning pyxis_x "$first.0")" third.out
  cat first.out second.out third.out
  [ "$(grep -Fc "$(warning x "$first.0")" second.out)" -eq 1 ]
  [ "$(grep -Fc "$(warning pyxis_x "$first.0")" third.out)" -eq 1 ]
  run ! grep -q 'are kept by' first.out
  run_and_show as_alice enroot start --rw pyxis_x cat /mark
  [ "$status" -eq 0 ]
  [[ $output == *"$(warning pyxis_x "$first.0")"* ]]
  touch end-first end-second end-third
  wait
}

# before: second.out said "Bus error", and nothing had been said before
@test "when a step is killed its keeper ends, too, and the next start makes a new one" {
  starts first
  local first=$job
  runs second
  end_keeper_of "$first"
  run ! grep -qx fine second.out
  grep -qE 'Bus error|Transport endpoint is not connected' second.out
  run_and_show as_alice srun --container-writable --container-name=x sh -c 'cat /mark /bin/busybox >/dev/null && echo fine'
  [ "${lines[-1]}" = fine ]
  [[ $output != *'are kept by'* ]]
}

# before: it went on after its job, and so did whatever else of the user lived there
@test "what steps of --container-name keep lives in their job's cgroup, and ends with that job; who shares it is told" {
  # The node does not know any more of what the container was made: its image is served.
  rm -r /run/situla/copies
  runs first
  local first=$job
  runs second
  wait_until 20 grep -Fq "the files of container \"x\" are kept by job $first " second.out
  # The oldest: that of the second step looks for it, and ends.
  pgrep -a -u alice situla-keeper
  local keeper
  keeper=$(pgrep -o -u alice situla-keeper)
  cat "/proc/$keeper/cgroup"
  grep -qE "/job_$first(/situla)?\$" "/proc/$keeper/cgroup" || { ps -eo pid,ppid,user,lstart,cgroup,args; false; }
  [ "$(grep -Fc "the files of container \"x\" are kept by job $first and go when that job ends" second.out)" -eq 1 ]
  end_keeper_of "$first"
  run ! grep -qx fine second.out
  run_and_show as_alice srun --container-writable --container-name=x sh -c 'cat /mark /bin/busybox >/dev/null && echo fine'
  [ "${lines[-1]}" = fine ]
}

@test "where the kernel has the image mounted, who shares what another job keeps goes on without it, and hears nothing" {
  runs first
  local first=$job
  runs second
  end_keeper_of "$first"
  grep -qx fine second.out
  run ! grep -q 'are kept by' second.out
  run_and_show as_alice srun --container-writable --container-name=x sh -c 'cat /mark /bin/busybox >/dev/null && echo fine'
  [ "${lines[-1]}" = fine ]
}

# before: in one or two rounds of six it had ended between the builder's end and the first task; the next start would have
# mounted the same layer a second time
@test "the keeper waits for the first task, however long that takes because the processors are busy" {
  local busy=() round kept=0
  for round in $(seq "$(nproc)"); do
    nice -n -5 sh -c 'while :; do :; done' 3>&- &
    busy+=($!)
  done
  for round in 1 2 3 4 5 6; do
    runs "$round" || break
    pgrep -a -u alice situla-keeper && kept=$((kept + 1))
    touch "end-$round"
    wait_until 60 grep -qx fine "$round.out" || break
  done
  kill "${busy[@]}"
  [ "$kept" -eq 6 ]
}
