# lab:
# --container-name: made, reused, joined, refused; what is said, and with which exit code. COMPAT.md section 1. As alice, on a node.
load helpers

tiny=registry.test/tiny

setup_file() { situla import -o "$BATS_FILE_TMPDIR/tiny.sqsh" docker://registry.test#tiny; }

setup() {
  work=$(mktemp -d "$HOME/named.XXXXXX")
  cd "$work"
  cp "$BATS_FILE_TMPDIR/tiny.sqsh" .
  enroot remove -f $(enroot list | grep '^pyxis_') 2>/dev/null || true
}

teardown() {
  scancel -u alice 2>/dev/null || true
  wait 2>/dev/null || true
  wait_until 30 nobody_left
  cd /
  chmod -R u+rwX "$work"
  rm -rf "$work"
}

# Whoever serves a container ends with its last program.
nobody_left() { ! pgrep -u alice situla; }

# make NAME [OPTION...]: a container with a file /mark.
make() { srun --container-writable --container-name="$1" --container-image=$tiny "${@:2}" sh -c 'echo made >/mark'; }

# run_it NAME [OPTION...] [-- COMMAND...]: a job keeps the container running until stop_it.
run_it() {
  local name=$1
  shift
  rm -f running stop
  srun -J keep "$@" --container-name="$name" --container-mounts="$work:/work" \
    sh -c '[ $SLURM_LOCALID != 0 ] || echo started >/work/running; while [ ! -e /work/stop ]; do sleep 0.1; done' >keep.out 2>&1 3>&- &
  keeper=$!
  wait_until 30 test -s running || { cat keep.out; return 1; }
}
stop_it() {
  : >stop
  wait "$keeper"
}

# refused MESSAGE OPTION...: a step that must not run.
refused() {
  local message=$1
  shift
  run_and_show srun "$@" echo the task ran
  [ "$status" -eq 1 ]
  grep -Fq -- "$message" <<<"$output"
  if grep -qx 'the task ran' <<<"$output"; then false; fi
}

# said LINE...: all that situla said, in this order; whether the node had the image before is not asked here. That a container is reused is for the
# node's log (stress.bats looks there).
said() {
  local line wanted=""
  for line in "$@"; do wanted+=${wanted:+$'\n'}"situla: $line"; done
  [ "$(grep '^situla: ' <<<"$output" | grep -v 'importing docker image')" = "$wanted" ]
}

imported=("imported docker image: $tiny")

@test "a container that does not exist is made, if there is an image" {
  refused 'a container with name "x" does not exist, and --container-image is not set' --container-name=x
  refused 'a container with name "x" does not exist, and --container-image is not set' --container-name=x:create
  refused 'a container with name "x" does not exist, and --container-image is not set' --container-name=x:no_exec
  refused 'the container "x" is not running' --container-name=x:exec
  refused 'the container "x" is not running' --container-name=x:exec --container-image=$tiny
  [ -z "$(enroot list)" ]
  local flag
  for flag in "" : :auto :create :no_exec; do
    run_and_show srun --container-name="x$flag" --container-image=$tiny sh -c 'echo $GREETING; pwd'
    [ "$status" -eq 0 ]
    said "${imported[@]}"
    grep -qx hello <<<"$output"
    grep -qx /srv <<<"$output"
    [ "$(enroot list)" = pyxis_x ]
    enroot remove -f pyxis_x
  done
}

@test "a container that exists is used with its file system, and nothing is imported" {
  make x
  refused 'the container "x" exists already' --container-name=x:create
  refused 'the container "x" exists already' --container-name=x:create --container-image=$tiny
  refused 'the container "x" is not running' --container-name=x:exec
  local option
  for option in x x: x:auto x:no_exec "x --container-image=$tiny" "x --container-image=registry.test/nosuchimage" "x --container-image=./nosuch.sqsh"; do
    # shellcheck disable=SC2086
    run_and_show srun --container-name=$option cat /mark
    [ "$status" -eq 0 ]
    # As with pyxis, whatever image is named.
    case $option in
      *nosuch*) grep -Eq '^situla: the container "x" was made of registry.test/tiny:latest on 2[0-9-]+ [0-9:]+ and is used as it is, without .*nosuch.*enroot remove pyxis_x$' <<<"$output" ;;
      *) said ;;
    esac
    grep -qx made <<<"$output"
  done
}

@test "a container that runs is joined, or another one is started beside it" {
  make x
  run_it x
  refused 'the container "x" exists already' --container-name=x:create --container-image=$tiny
  local flag
  for flag in "" :auto :exec; do
    run_and_show srun --container-name="x$flag" sh -c 'cat /mark; ls /work'
    [ "$status" -eq 0 ]
    said
    grep -qx made <<<"$output"
    grep -qx running <<<"$output"
  done
  run_and_show srun --container-name=x:no_exec sh -c 'cat /mark; ls /work'
  [ "$status" -ne 0 ]
  said
  grep -qx made <<<"$output"
  stop_it
}

@test "a container is joined by another step and by another job, by many tasks, in the same namespaces" {
  cat >inside <<'SCRIPT'
#!/bin/sh
for kind in mnt user cgroup; do readlink /proc/self/ns/$kind; done >/work/$1.part.$SLURM_PROCID
mv /work/$1.part.$SLURM_PROCID /work/$1.$SLURM_PROCID
SCRIPT
  cat >in_job <<'SCRIPT'
#!/bin/sh
srun --overlap -n4 --container-name=x --container-image=registry.test/tiny --container-mounts=$PWD:/work \
  sh -c 'sh /work/inside first; while [ ! -e /work/stop ]; do sleep 0.1; done' >first.log 2>&1 &
timeout 60 sh -c 'until [ -e first.0 ] && [ -e first.1 ] && [ -e first.2 ] && [ -e first.3 ]; do sleep 0.1; done'
srun --overlap -n4 --container-name=x:exec sh /work/inside second
env -i HOME=$HOME PATH=$PATH srun -n4 -J other --container-name=x:exec sh /work/inside third
touch stop
wait
SCRIPT
  chmod 755 in_job
  run_and_show timeout 150 salloc -Q -n16 ./in_job
  cat first.log
  said
  cat first.? second.? third.?
  [ "$(cat first.? second.? third.? | wc -l)" -eq 36 ]
  [ "$(cat first.? second.? third.? | sort -u | wc -l)" -eq 3 ]
}

@test "a container goes on to run when the step that made it has ended" {
  make x
  run_it x
  srun -J second --container-name=x:exec sh -c 'echo joined >/work/joined; while [ ! -e /work/stop2 ]; do sleep 0.1; done' >second.out 2>&1 3>&- &
  wait_until 30 test -s joined
  stop_it
  run_and_show srun --container-name=x:exec cat /work/joined
  [ "$status" -eq 0 ]
  said
  : >stop2
  wait %%
  refused 'the container "x" is not running' --container-name=x:exec
}

# Lines NAME=VALUE of a task's environment that must not depend on how it came into the container.
environment_of() { grep -v -E '^(SLURM|SRUN|SBATCH|PMI|PMIX|SPANK|SITULA|PYXIS|PWD|OLDPWD|SHLVL|_=|HOSTNAME|TMPDIR|CUDA_VISIBLE_DEVICES|BATS|XDG|ENVIRONMENT|MINE|TERM=|situla:)' "$1" | sort; }

@test "the environment of a task: the container's, its own Slurm variables, --container-env; the same in srun, sbatch and attach" {
  export GREETING=job MINE=first LANG=C.UTF-8
  make x
  CUDA_VISIBLE_DEVICES=0 srun --container-name=x sh -c 'env' >srun.env
  printf '#!/bin/sh\n#SBATCH --container-name=x\nenv\n' >job.sh
  "$lab_tests/submit" -o sbatch.env job.sh
  CUDA_VISIBLE_DEVICES=0 run_it x
  MINE=second CUDA_VISIBLE_DEVICES=1 srun -n2 --container-name=x:exec sh -c 'env >/work/attach.env.$SLURM_PROCID'
  MINE=second CUDA_VISIBLE_DEVICES=1 srun --container-env=GREETING,LANG --container-name=x:exec sh -c 'env >/work/kept.env'
  stop_it
  for file in srun.env sbatch.env attach.env.0 attach.env.1; do
    grep -qx GREETING=hello "$file"
    if grep -q ^LANG= "$file"; then false; fi
  done
  diff <(environment_of srun.env) <(environment_of sbatch.env)
  diff <(environment_of srun.env) <(environment_of attach.env.0)
  grep -qx MINE=second attach.env.0
  grep -qx CUDA_VISIBLE_DEVICES=1 attach.env.0
  grep -qx SLURM_PROCID=0 attach.env.0
  grep -qx SLURM_PROCID=1 attach.env.1
  grep -qx SLURM_NTASKS=2 attach.env.0
  grep -qx "SLURM_STEP_ID=0" attach.env.0
  [ "$(sed -n 's/^SLURM_JOB_ID=//p' attach.env.0)" -gt "$(sed -n 's/^SLURM_JOB_ID=//p' srun.env)" ]
  grep -qx GREETING=job kept.env
  grep -qx LANG=C.UTF-8 kept.env
}

@test "the working directory of a task that joins" {
  make x
  run_it x --container-workdir=/etc
  run_and_show srun --container-name=x:exec pwd
  [ "${lines[-1]}" = /srv ]
  run_and_show srun --container-name=x:exec --container-workdir=/work pwd
  [ "${lines[-1]}" = /work ]
  run_and_show srun --container-name=x:exec --container-workdir=/nowhere pwd
  [ "$status" -eq 1 ]
  [[ "$output" == *'change to directory /nowhere inside the container: No such file or directory'* ]]
  stop_it
}

@test "mounts of a task that joins are ignored, and it is said" {
  make x
  run_it x
  run_and_show srun --container-name=x --container-mounts=/etc:/host-etc ls /host-etc
  [ "$status" -ne 0 ]
  [[ "$output" == *'ignoring --container-mounts because the container is running already'* ]]
  [[ "$output" == *'/host-etc: No such file or directory'* ]]
  run_and_show srun --container-name=x true
  [[ "$output" != *ignoring* ]]
  stop_it
  run_and_show srun --container-name=x --container-mounts=/etc:/host-etc ls /host-etc/hostname
  [ "$status" -eq 0 ]
}

@test "a container made by enroot create, of both kinds, and one that enroot start runs" {
  local how
  for how in layered tree; do
    SITULA_CREATE=$how enroot create -n pyxis_x tiny.sqsh
    run_and_show srun --container-writable --container-name=x sh -c 'echo $GREETING; echo made >/mark'
    [ "$status" -eq 0 ]
    said
    grep -qx hello <<<"$output"
    [ "$(enroot start pyxis_x cat /mark)" = made ]
    rm -f started stop
    enroot start -e FROM_START=1 -m "$work:/work" pyxis_x sh -c ': >/work/started; while [ ! -e /work/stop ]; do sleep 0.1; done' 3>&- &
    wait_until 30 test -e started
    run_and_show srun -n2 --container-name=x:exec sh -c 'echo $GREETING,$FROM_START,$SLURM_NTASKS; pwd; ls /work/started; readlink /proc/self/ns/mnt'
    [ "$status" -eq 0 ]
    said
    [ "$(grep -cx hello,1,2 <<<"$output")" -eq 2 ]
    [ "$(grep -cx /srv <<<"$output")" -eq 2 ]
    [ "$(grep '^mnt:' <<<"$output" | sort -u | wc -l)" -eq 1 ]
    : >stop
    wait %%
    enroot remove -f pyxis_x
  done
}

@test "enroot's commands see and remove a container that a step made" {
  make x
  run_it x
  enroot list --fancy | grep -q '^pyxis_x  *[0-9]'
  [ "$(enroot exec "$(enroot list --fancy | awk '$1 == "pyxis_x" {print $2}')" cat /mark)" = made ]
  stop_it
  [ "$(enroot start pyxis_x cat /mark)" = made ]
  enroot export -o out.sqsh pyxis_x
  [ "$(unsquashfs -cat out.sqsh mark)" = made ]
  enroot remove -f pyxis_x
  refused 'does not exist' --container-name=x
}

@test "a container is made from a squashfs file and from an archive; a file that is missing" {
  run_and_show srun --container-name=x --container-image=./tiny.sqsh sh -c 'echo $GREETING'
  [ "$status" -eq 0 ]
  [ "${lines[-1]}" = hello ]
  rm tiny.sqsh
  run_and_show srun --container-name=x --container-image=./tiny.sqsh sh -c 'echo $GREETING'
  said
  skopeo copy -q docker://registry.test/tiny oci:layout:one
  run_and_show srun --container-name=y --container-image=oci:layout:one sh -c 'echo $GREETING'
  [ "$status" -eq 0 ]
  [ "${lines[-1]}" = hello ]
  refused './nosuch.sqsh: No such file or directory' --container-name=z --container-image=./nosuch.sqsh
  refused 'open nosuch: No such file or directory' --container-name=z --container-image=oci:nosuch:one
  refused 'failed to import docker image: registry.test/nosuch' --container-name=z --container-image=registry.test/nosuch
  echo no image >bad.sqsh
  refused 'create the container "z" from ./bad.sqsh: ' --container-name=z --container-image=./bad.sqsh
  [ "$(enroot list | sort | xargs)" = 'pyxis_x pyxis_y' ]
  [ -z "$(find ~/.local/share/enroot -maxdepth 1 -name '.*')" ]
}

@test "SITULA_CREATE=tree makes a container that is a directory tree" {
  SITULA_CREATE=tree make x
  [ "$(cat ~/.local/share/enroot/pyxis_x/mark)" = made ]
  [ -x ~/.local/share/enroot/pyxis_x/bin/busybox ]
  run_it x
  run_and_show srun --container-name=x:exec cat /mark
  [ "$status" -eq 0 ]
  said
  stop_it
}

@test "writable and read-only, as asked for and as configured" {
  make x
  run_and_show srun --container-name=x sh -c 'echo new >/new'
  [ "$status" -ne 0 ]
  [[ "$output" == *'Read-only file system'* ]]
  run_and_show srun --container-name=x --container-writable sh -c 'echo new >/new && rm /bin/vi'
  [ "$status" -eq 0 ]
  ENROOT_ROOTFS_WRITABLE=yes run_and_show srun --container-name=x sh -c 'cat /new && echo newer >/new'
  [ "$status" -eq 0 ]
  ENROOT_ROOTFS_WRITABLE=yes run_and_show srun --container-name=x --container-readonly touch /newest
  [ "$status" -ne 0 ]
  run_and_show srun --container-name=x sh -c 'cat /new; ls /bin/vi'
  grep -qx newer <<<"$output"
  [[ "$output" == *'/bin/vi: No such file'* ]]
}

@test "two jobs write in one container at the same time" {
  make x
  srun -J one --container-writable --container-name=x:no_exec --container-mounts="$work:/work" \
    sh -c 'for i in $(seq 200); do echo $i >/one.$i; done; echo done >/work/one; until [ -s /work/two ]; do sleep 0.1; done; ls / | grep -c ^two >/work/one.saw' >one.out 2>&1 3>&- &
  srun -J two --container-writable --container-name=x:no_exec --container-mounts="$work:/work" \
    sh -c 'for i in $(seq 200); do echo $i >/two.$i; done; echo done >/work/two; until [ -s /work/one ]; do sleep 0.1; done; ls / | grep -c ^one >/work/two.saw' >two.out 2>&1 3>&- &
  wait
  cat one.out two.out
  run_and_show srun --container-name=x sh -c 'ls / | grep -c -E "^(one|two)\."; cat /one.200 /two.200'
  [ "${lines[-3]}" = 400 ]
  [ "${lines[-1]}" = 200 ]
}

@test "a job that ends does not disturb another one in the same container" {
  make x
  run_it x --container-writable
  srun -J second --container-writable --container-name=x:no_exec --container-mounts="$work:/work" \
    sh -c 'echo started >/work/second; until [ -e /work/stop2 ]; do sleep 0.1; done; cat /mark /etc/os-release && echo more >>/mark && ls -R /bin /srv >/dev/null && echo fine' >second.out 2>&1 3>&- &
  wait_until 30 test -s second
  scancel -n keep -u alice
  wait "$keeper" || true
  : >stop2
  wait
  cat second.out
  grep -qx fine second.out
}

@test "a container is removed while it runs, and while a step looks for it" {
  make x
  run_it x
  run_and_show enroot remove -f pyxis_x
  grep -Eq '^\[WARN\] pyxis_x is in use: process [0-9]+ \([^)]*\) of job [0-9]+ \[container-in-use\]$' <<<"$output"
  stop_it
  enroot remove -f pyxis_x 2>/dev/null || true
  refused 'does not exist' --container-name=x
  # Made and removed all the time: each step ends well, or says that it is not there.
  local i worked=0
  (for i in $(seq 40); do enroot remove -f pyxis_y 2>/dev/null || true; sleep 0.05; done) 3>&- &
  for i in 1 2 3 4 5 6; do
    run_and_show srun --container-name=y --container-image=./tiny.sqsh true
    [ "$status" -ne 0 ] || worked=$((worked + 1))
    [ "$status" -eq 0 ] || [[ "$output" == *pyxis_y*'No such file or directory'* || "$output" == *'was replaced just now'* ]]
  done
  [ "$worked" -ge 1 ]
  wait
}

@test "invalid names are refused before the job is queued, by srun, sbatch and salloc" {
  printf '#!/bin/sh\ntrue\n' >job.sh
  local name
  for name in ../x x/y / '' :create 'two words' $'tab\there' ünï "quo'te" 'b\c' "$(printf 'x%.0s' $(seq 300))" x:bogus x:create:exec; do
    for command in "srun" "sbatch" "salloc"; do
      run_and_show $command --container-name="$name" --container-image=$tiny ./job.sh
      [ "$status" -ne 0 ]
      [[ "$output" == *'situla: --container-name'* ]]
      [[ "$output" != *[Jj]'ob '[0-9]* ]]
    done
  done
  [ -z "$(squeue -h -t pending,configuring,running)" ]
  run_and_show srun --container-name=a --container-name=b --container-image=$tiny true
  [ "$status" -ne 0 ]
  [[ "$output" == *'--container-name: specified multiple times'* ]]
  PYXIS_CONTAINER_NAME=../x run_and_show srun --container-image=$tiny true
  [ "$status" -ne 0 ]
  [[ "$output" == *"--container-name (from the environment): '../x' cannot be the name of a container"* ]]
}

@test "valid names: dots, signs, digits, two hundred letters" {
  local name
  for name in . .. a.b a-b A_1 a+b a@b=c a,b 1 "$(printf 'x%.0s' $(seq 200))"; do
    run_and_show srun --container-name="$name" --container-image=$tiny true
    [ "$status" -eq 0 ]
    enroot list | grep -Fqx "pyxis_$name"
  done
  PYXIS_CONTAINER_NAME=1:no_exec run_and_show srun true
  [ "$status" -eq 0 ]
  said
}

@test "a container of enroot create with the name of --container-name is another one, and both sides say so" {
  enroot create -n twin tiny.sqsh
  run_and_show srun -n1 --container-name=twin true
  [ "$status" -ne 0 ]
  [[ "$output" == *"hint: enroot's container twin is another one: --container-name=twin is pyxis_twin there"* ]]
  run_and_show srun -n1 --container-image=registry.test/tiny --container-name=twin --container-writable sh -c 'echo of srun >/mark'
  [ "$status" -eq 0 ]
  [[ "$output" == *"enroot's container twin is another one: --container-name=twin is pyxis_twin there"* ]]
  run_and_show enroot start twin cat /mark
  [ "$status" -ne 0 ]
  enroot remove -f twin
  run_and_show enroot start twin cat /mark
  [ "$status" -ne 0 ]
  [[ "$output" == *"did you mean pyxis_twin, which is --container-name=twin of srun?"* ]]
  run_and_show enroot start pyxis_twin cat /mark
  [[ "$output" == *"of srun"* ]]
  enroot remove -f pyxis_twin
}
