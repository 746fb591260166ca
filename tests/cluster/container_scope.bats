# lab: --user root --plugin-arg container_scope=job --situla-conf tests/cluster/no_idle.toml
# container_scope=job: named containers belong to their job, its steps share them, and its end removes them. As root, for the epilog.
load helpers

setup() {
  work=$(mktemp -d /home/alice/scope.XXXXXX)
  chown alice: "$work"
}

teardown() {
  as_alice scancel -u alice 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$work"
}

containers() { as_alice env XDG_DATA_HOME="${1:-/home/alice/.local/share}" enroot list; }
none_left() { [ -z "$(containers "$@" | grep '^pyxis_[0-9]')" ]; }

# in_job SCRIPT: as alice, in an allocation.
in_job() {
  printf '#!/bin/bash\ncd %s\n%s\n' "$work" "$1" >"$work/job"
  chmod 755 "$work/job"
  run_and_show timeout 120 runuser -u alice -- env HOME=/home/alice USER=alice "${@:2}" salloc -Q -n8 "$work/job"
}

@test "the steps of a job share a named container, which is removed with the job" {
  in_job '
    srun -n1 --container-writable --container-name=x --container-image=registry.test/tiny sh -c "echo mine >/mark"
    srun -n1 --container-name=x cat /mark
    echo "job $SLURM_JOB_ID"
    enroot list
    srun -n1 --container-name=x:create true || echo refused'
  job=$(sed -n 's/^job //p' <<<"$output")
  grep -qx mine <<<"$output"
  grep -qx "pyxis_${job}_x" <<<"$output"
  grep -qx refused <<<"$output"
  wait_until 30 none_left
  in_job 'srun -n1 --container-name=x true || echo gone'
  grep -qx gone <<<"$output"
}

@test "containers of other jobs, and those that belong to no job, stay" {
  as_alice srun --container-image=registry.test/tiny true
  runuser -u alice -- env HOME=/home/alice bash -c "cd $work && situla import -o tiny.sqsh docker://registry.test#tiny &&
    enroot create -n pyxis_kept tiny.sqsh && enroot create -n pyxis_9_x.y tiny.sqsh && enroot create -n other tiny.sqsh"
  as_alice salloc -Q -n1 bash -c "srun --container-name=x --container-image=registry.test/tiny true; echo \$SLURM_JOB_ID >$work/made; timeout 120 sh -c 'until [ -e $work/over ]; do sleep 0.1; done'" 3>&- &
  wait_until 30 test -s "$work/made"
  in_job 'srun -n1 --container-name=x --container-image=registry.test/tiny true'
  only_its_own() { [ "$(containers | grep '^pyxis_[0-9]*_x$')" = "pyxis_$(cat "$work/made")_x" ]; }
  wait_until 30 only_its_own
  touch "$work/over"
  wait
  wait_until 30 sh -c "! runuser -u alice -- env HOME=/home/alice enroot list | grep -q '^pyxis_[0-9]*_x\$'"
  for name in pyxis_kept pyxis_9_x.y other; do containers | grep -qx "$name"; done
  as_alice enroot remove -f pyxis_kept pyxis_9_x.y other
}

@test "a container in a directory that the job's environment names is removed as well" {
  in_job 'srun -n1 --container-name=x --container-image=registry.test/tiny true; enroot list' XDG_DATA_HOME="$work/data"
  grep -q '^pyxis_[0-9]*_x$' <<<"$output"
  wait_until 30 none_left "$work/data"
  [ -d "$work/data/enroot" ]
}

@test "the container of a batch script is removed, also when the job is cancelled while it runs" {
  printf '#!/bin/sh\n#SBATCH --container-name=x --container-image=registry.test/tiny\necho started\nsleep 60\n' >"$work/job.sh"
  as_alice sbatch --chdir="$work" -o "$work/out" "$work/job.sh"
  wait_until 30 grep -q started "$work/out"
  containers | grep -q '^pyxis_[0-9]*_x$'
  as_alice scancel -u alice
  wait_until 30 none_left
  wait_until 30 nothing_noted
}
nothing_noted() { [ -z "$(ls /run/situla/jobs 2>/dev/null)" ]; }


@test "what is kept for a job's end is its user's, and nothing of it outlives the job: numbers come again" {
  as_alice sbatch --chdir="$work" -o "$work/out" --wrap "srun --container-name=x --container-image=registry.test/tiny sh -c 'echo started; sleep 60'"
  wait_until 30 grep -q started "$work/out"
  job=$(squeue -h -o %A)
  [ -e "/run/situla/jobs/$job.$(id -u alice).environment" ]
  # Of another user's job that had this number; and of a directory that its user cannot remove.
  printf 'XDG_DATA_HOME=/home/bob/data\0' >"/run/situla/jobs/$job.$(id -u bob).environment"
  mkdir -p "$work/kept/of_root"
  touch "$work/kept/of_root/file"
  printf '%d\n%s' "$(id -u alice)" "$work/kept" >"/run/situla/jobs/$job.7.scratch"
  as_alice scancel -u alice
  wait_until 30 none_left
  wait_until 30 nothing_noted
  [ -e "$work/kept/of_root/file" ]
}

no_job() { [ -z "$(squeue -h)" ]; }

# in_batch SCRIPT: as alice, by sbatch.
in_batch() {
  printf '#!/bin/bash\n%s\n' "$1" >"$work/script"
  run_and_show as_alice "$lab_tests/submit" --chdir="$work" -o "$work/out" "$work/script"
  [ "$status" -eq 0 ]
  cat "$work/out"
}

@test "a container that a batch script makes is there in its job, and gone after it" {
  in_batch '
    srun --container-image=registry.test/debian:12 --container-name=mine --container-writable touch /mark
    srun --container-name=mine ls /mark'
  [ "$(tail -n 1 "$work/out")" = /mark ]
  wait_until 30 none_left
  wait_until 30 nothing_kept
}
# What is being removed has another name.
nothing_kept() { [ -z "$(ls -A /home/alice/.local/share/enroot)" ]; }

@test "a container that cannot be removed does not drain its node" {
  local directory=/home/alice/.local/share/enroot
  as_alice mkdir -p "$directory"
  in_batch "
    srun --container-image=registry.test/debian:12 --container-name=stuck true
    chmod 555 $directory"
  # The epilog is over.
  wait_until 60 no_job
  ls -A "$directory" >"$work/left"
  chmod 755 "$directory"
  rm -rf "$directory"/pyxis_*
  grep -q stuck "$work/left"
  run_and_show sinfo -h -o %T
  [ "$status" -eq 0 ]
  [[ "$output" != *drain* ]]
}
