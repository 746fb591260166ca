# lab: --nodes 4 --gpus 8 --nvidia --gpus=8 --nvidia --devices=real --user root --situla-conf tests/cluster/gpu.toml --enroot-conf tests/compat/conf/node_local.conf --slurm-conf SchedulerParameters=bf_interval=2,sched_interval=2
# Batch scripts as users have them: scripts/NAME.sbatch, and beside each what it shows and prints (NAME.expected; its form: compare-output).
# All of them run as alice, several at a time, in jobs of one node and then in jobs of four; the tests compare.
load ../cluster/helpers

scripts=$BATS_TEST_DIRNAME/scripts
sizes=(1 4)
at_once=6

# What the scripts expect to find: images and data of the user on the file system that all nodes have.
make_scratch() {
  local name
  cd "/scratch/$USER"
  mkdir -p images data/parts tools packages
  enroot import -o images/tiny.sqsh docker://registry.test#tiny
  enroot import -o images/debian.sqsh docker://registry.test#debian:12
  echo "a sample" >data/sample
  for name in a:first b:second c:third; do echo "${name#*:}" >"data/parts/${name%:*}"; done
  cp "$scripts/tools/launcher" tools/launcher
  for name in torchrun deepspeed mpirun python ray; do ln -sf launcher "tools/$name"; done
  enroot import -o images/entrypoint.sqsh docker://registry.test#tiny:entrypoint
  make_package packages
  enroot create -n pytorch images/debian.sqsh
  enroot start --root --rw pytorch sh -c 'echo PYTORCH_VERSION=2.4.0 >>/etc/environment'
  enroot export -o images/pytorch.sqsh pytorch
  enroot remove -f pytorch
  echo "a note" >"$HOME/note"
}

# make_package DIRECTORY: a Debian package that has a program and whose installation changes owners.
make_package() {
  local tree=$1/tree
  mkdir -p "$tree/DEBIAN" "$tree/usr/bin" "$tree/var/lib/greeter"
  printf '#!/bin/sh\necho greetings from a package\n' >"$tree/usr/bin/greeter"
  printf '%s\n' 'Package: greeter' 'Version: 1.0' 'Architecture: all' 'Maintainer: nobody <nobody@example.org>' 'Description: it greets' >"$tree/DEBIAN/control"
  printf '#!/bin/sh\nset -e\nchown daemon:daemon /var/lib/greeter\n' >"$tree/DEBIAN/postinst"
  chmod 755 "$tree/usr/bin/greeter" "$tree/DEBIAN/postinst"
  dpkg-deb --root-owner-group --build "$tree" "$1/greeter_1.0_all.deb" >/dev/null
  rm -rf "$tree"
}

names() { (cd "$scripts" && printf '%s\n' *.sbatch | sed 's/\.sbatch$//'); }

# run_all NODES/NAME...: those scripts, several at a time.
run_all() {
  printf '%s\n' "$@" | xargs -P "$at_once" -I{} bash -c '
    "$0/run-script" "${1%%/*}" "$0/scripts/${1#*/}.sbatch" "/home/alice/jobs/$1" || true' "$BATS_TEST_DIRNAME" {}
}

# Scripts use names and files that may be used by one job at a time: first those of one node, then those of four. What mostly waits runs
# beside the others.
run_both_sizes() {
  local slow others
  mapfile -t slow < <(names | grep -E 'limit|requeue')
  mapfile -t others < <(names | grep -v -E 'limit|requeue')
  run_all "${slow[@]/#/1/}" "${slow[@]/#/4/}" &
  run_all "${others[@]/#/1/}"
  run_all "${others[@]/#/4/}"
  wait
}

# On every node, each line after the node's name.
left_on_nodes() {
  srun --nodes=4 --ntasks-per-node=1 --quiet bash -c '
    found=$("$0/left" "$SITULA_LAB")
    sed "s/^/$SLURMD_NODENAME: /" <<<"$found"' "$lab_tests" |
    grep -v -E -e 'file /run/situla(/(images|root|access|jobs|containers|cgroups|reports|reports/[0-9]+(/[0-9]+[.][a-z0-9]+)?|copies(/[0-9]+[.][0-9a-f]{32})?))?$' -e 'file /var/lib/situla/((images|layers|grants)(/.*)?|leases|slots)$' -e 'process root (slurmstepd|/usr/bin/srun|srun)' \
      -e 'process .*(bats|/tests/cluster/)' -e 'file /tmp/bats' | sort
}

setup_file() {
  export -f make_scratch make_package
  export scripts
  as_alice bash -ec make_scratch
  as_alice srun -N4 --container-image=registry.test#tiny true
  as_alice srun -N4 --container-image=registry.test#debian:12 --container-name=first true
  as_alice srun -N4 enroot remove -f pyxis_first
  as_alice srun -N4 enroot start /scratch/alice/images/tiny.sqsh true
  # From here on every folder that stays is there.
  left_on_nodes >"$BATS_FILE_TMPDIR/before"
  export -f run_both_sizes run_all names
  export at_once BATS_TEST_DIRNAME
  as_alice bash -ec run_both_sizes
}

# The test's name is the script's.
as_expected() {
  local name=${BATS_TEST_DESCRIPTION// /-} size job status nodes good=yes
  for size in "${sizes[@]}"; do
    cd "/home/alice/jobs/$size/$name"
    read -r job status nodes <result || { cat errors; return 1; }
    [ -n "$nodes" ] || { echo "with $size node(s): job $job did not start within 600 s"; return 1; }
    # shellcheck disable=SC2086
    "$BATS_TEST_DIRNAME/compare-output" "$scripts/$name.expected" printed "$job" "$status" $nodes >difference || {
      good=no
      echo "with $size node(s):"
      cat difference
      echo "what was printed:"
      head -n 60 printed
    }
  done
  [ "$good" = yes ]
}

@test "this table names every script, and every script has its expected output" {
  diff <(sed -n 's/^@test "\([0-9][^"]*\)" { as_expected; }$/\1/p' "$BATS_TEST_FILENAME" | tr ' ' -) <(names)
  diff <(names) <(cd "$scripts" && printf '%s\n' *.expected | sed 's/\.expected$//')
}

@test "01 script inside" { as_expected; }
@test "02 srun in batch" { as_expected; }
@test "03 scratch user mount" { as_expected; }
@test "04 relative mounts" { as_expected; }
@test "05 mount flags" { as_expected; }
@test "06 workdir" { as_expected; }
@test "07 mount home" { as_expected; }
@test "08 remap root writable" { as_expected; }
@test "09 readonly" { as_expected; }
@test "10 container env" { as_expected; }
@test "11 sqsh relative" { as_expected; }
@test "12 sqsh absolute" { as_expected; }
@test "13 sqsh without dot" { as_expected; }
@test "14 references" { as_expected; }
@test "15 pyxis variables" { as_expected; }
@test "16 array" { as_expected; }
@test "17 array of steps" { as_expected; }
@test "18 hetjob" { as_expected; }
@test "19 parallel steps" { as_expected; }
@test "20 heredoc" { as_expected; }
@test "21 quoting" { as_expected; }
@test "22 exit codes" { as_expected; }
@test "23 kill on bad exit" { as_expected; }
@test "24 strict" { as_expected; }
@test "25 deepspeed hostfile" { as_expected; }
@test "26 torchrun rdzv" { as_expected; }
@test "27 torchrun head node ip" { as_expected; }
@test "28 horovod mpirun" { as_expected; }
@test "29 ranks" { as_expected; }
@test "30 pytorch image" { as_expected; }
@test "31 gpus" { as_expected; }
@test "32 nvidia visible devices" { as_expected; }
@test "33 limits umask" { as_expected; }
@test "34 tmpdir" { as_expected; }
@test "35 export none" { as_expected; }
@test "36 export list" { as_expected; }
@test "37 output patterns" { as_expected; }
@test "38 stdin" { as_expected; }
@test "39 signal before limit" { as_expected; }
@test "40 scancel signal" { as_expected; }
@test "41 requeue" { as_expected; }
@test "42 enroot create start" { as_expected; }
@test "43 enroot export" { as_expected; }
@test "44 enroot exec" { as_expected; }
@test "45 guide lrz" { as_expected; }
@test "46 megatron launcher" { as_expected; }
@test "47 ray cluster" { as_expected; }
@test "48 sbcast" { as_expected; }
@test "49 sweep" { as_expected; }
@test "50 multi prog" { as_expected; }
@test "51 chain" { as_expected; }
@test "52 labels" { as_expected; }
@test "53 pmi" { as_expected; }
@test "54 failing import" { as_expected; }
@test "55 script fails to start" { as_expected; }
@test "56 options without image" { as_expected; }
@test "57 options accumulate" { as_expected; }
@test "58 export none inside" { as_expected; }
@test "59 chdir" { as_expected; }
@test "60 name two steps" { as_expected; }
@test "61 name exec" { as_expected; }
@test "62 name flags" { as_expected; }
@test "63 name two jobs" { as_expected; }
@test "64 save then run" { as_expected; }
@test "65 save onto source" { as_expected; }
@test "66 entrypoint" { as_expected; }
@test "67 unshare" { as_expected; }
@test "68 mlperf" { as_expected; }
@test "69 name save" { as_expected; }

@test "nothing is left on any node, and no container in the user's directories" {
  local deadline=$((SECONDS + 30))
  until left_on_nodes >"$BATS_TEST_TMPDIR/after"; comm -13 "$BATS_FILE_TMPDIR/before" "$BATS_TEST_TMPDIR/after" >"$BATS_TEST_TMPDIR/new"; [ ! -s "$BATS_TEST_TMPDIR/new" ]; do
    [ $SECONDS -lt $deadline ] || break
    sleep 0.5
  done
  cat "$BATS_TEST_TMPDIR/new"
  [ ! -s "$BATS_TEST_TMPDIR/new" ]
  [ -z "$(ls -A /home/alice/.local/share/enroot 2>/dev/null)" ]
}
