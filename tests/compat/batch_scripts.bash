# Runs the batch scripts of scripts/, and compares what they print. Loaded by batch_scripts.bats, as root in a lab.

. "$BATS_TEST_DIRNAME/../cluster/helpers.bash"
lab_tests=$BATS_TEST_DIRNAME/../cluster
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
    "$0/left" "$SITULA_LAB" | sed "s/^/$SLURMD_NODENAME: /"' "$lab_tests" |
    grep -v -E -e 'file /run/situla(/(images|root|access|jobs|containers|cgroups))?$' -e 'file /var/lib/situla/((images|layers)(/.*)?|leases|slots)$' -e 'process root (slurmstepd|/usr/bin/srun|srun)' \
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

every_script_is_listed() {
  diff <(sed -n 's/^@test "\([0-9][^"]*\)" { as_expected; }$/\1/p' "$BATS_TEST_FILENAME" | tr ' ' -) <(names)
  diff <(names) <(cd "$scripts" && printf '%s\n' *.expected | sed 's/\.expected$//')
}

# The test's name is the script's.
as_expected() {
  local name=${BATS_TEST_DESCRIPTION// /-} size job status nodes good=yes
  for size in "${sizes[@]}"; do
    cd "/home/alice/jobs/$size/$name"
    read -r job status nodes <result || { cat errors; return 1; }
    [ -n "$nodes" ] || { echo "with $size node(s): job $job did not start within 240 s"; return 1; }
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

nothing_is_left() {
  local deadline=$((SECONDS + 10))
  until left_on_nodes >"$BATS_TEST_TMPDIR/after"; comm -13 "$BATS_FILE_TMPDIR/before" "$BATS_TEST_TMPDIR/after" >"$BATS_TEST_TMPDIR/new"; [ ! -s "$BATS_TEST_TMPDIR/new" ]; do
    [ $SECONDS -lt $deadline ] || break
    sleep 0.5
  done
  cat "$BATS_TEST_TMPDIR/new"
  [ ! -s "$BATS_TEST_TMPDIR/new" ]
  [ -z "$(ls -A /home/alice/.local/share/enroot 2>/dev/null)" ]
}
