# lab: --nodes 2 --user root --slurm-conf PrologFlags=Alloc --slurm-conf Prolog=/etc/slurm/wait_for_image --slurm-file tests/cluster/slurm/wait_for_image --situla-conf tests/cluster/no_idle.toml
# The image of sbatch and salloc: begun by the job's prolog on all nodes, which does not wait for it. The first step does.
load helpers

setup_file() {
  install -d -m 777 /shared/prolog
  # A node's first step with a container shows where Slurm has its cgroups.
  as_alice srun -Q -N2 --ntasks-per-node=1 --container-image=registry.test/tiny true
}

setup() {
  cd /home/alice
  srun -Q -N2 --ntasks-per-node=1 sh -c 'rm -rf /var/lib/situla/*'
}

teardown() {
  rm -f /shared/prolog/*
  scancel -u alice 2>/dev/null || true
  wait
  wait_until 60 no_jobs
}

no_jobs() { [ -z "$(squeue -h)" ]; }
mark() { marked=$(wc -l <"$SITULA_LAB/logs/registry.test.log"); }
requests() { tail -n "+$((marked + 1))" "$SITULA_LAB/logs/registry.test.log" | grep -c "GET /v2/$1/$2" || true; }
has_image() { srun -Q -w "$1" situla images | grep -q "$2"; }
is_held() { curl -s "http://proxy.test:3128/stats/$1" | jq -e .held >/dev/null; }
# What an import leaves when it ends in the middle; nameless files end with their processes.
no_import() { ! pgrep -f 'situla-(broker prolog|store|importer)' >/dev/null && [ -z "$(find /var/lib/situla/leases /var/lib/situla/slots /run/situla/jobs -type f -o -type s)" ]; }

@test "salloc: the image comes while the site's own prolog runs, on all nodes, and the first srun asks nobody" {
  touch /shared/prolog/wait
  # shellcheck disable=SC2016
  run_and_show as_alice salloc -Q -N2 --container-image=registry.test/debian:12 bash -euc '
    wc -l <"$SITULA_LAB/logs/registry.test.log" >/shared/prolog/before
    srun --ntasks-per-node=1 sh -c ". /etc/os-release; echo \$ID \${SLURM_SPANK_SITULA_PREFETCH-unset}"'
  [ "$status" -eq 0 ]
  [ "$(grep -cx "debian unset" <<<"$output")" -eq 2 ]
  [ "$(cat /shared/prolog/seen.node1 /shared/prolog/seen.node2 | wc -l)" -eq 2 ]
  marked=$(cat /shared/prolog/before)
  [ "$(requests debian blobs)" -eq 0 ]
  [[ $output != *waiting* ]]
  for node in node1 node2; do
    wait_until 30 grep -q 'image=registry.test/debian:12 name=- digest=sha256:[0-9a-f]* source=store mount=kernel' "$SITULA_LAB/logs/slurmd.$node.log"
  done
  wait_until 30 no_import
}

@test "sbatch: a node on which no step runs yet has the image, too" {
  printf '#!/bin/sh\n#SBATCH -N2 -o /dev/null --container-image=registry.test/debian:12-zstd\nsleep 60\n' >job.sh
  as_alice sbatch -Q job.sh
  wait_until 60 has_image node2 debian:12-zstd
  wait_until 60 has_image node1 debian:12-zstd
}

@test "a step that comes earlier waits for the prolog's import, and says so" {
  # shellcheck disable=SC2016
  run_and_show as_alice env https_proxy=http://hold-15:x@proxy.test:3128 salloc -Q -w node1 --container-image=registry.test/debian:12-v2s2 bash -euc '
    until curl -s http://proxy.test:3128/stats/hold-15 | jq -e .held; do sleep 0.2; done
    sleep 2  # until the import has said how much it has
    echo "job $SLURM_JOB_ID"
    srun sh -c ". /etc/os-release; echo \$ID"'
  [ "$status" -eq 0 ]
  job=$(sed -n 's/^job //p' <<<"$output")
  [[ $output == *"waiting for another import of the same image (job $job.prolog on node1, which has "*[KM]iB\)* ]]
  grep -qx debian <<<"$output"
}

@test "an image that is not there: the node goes on, and srun says why" {
  run_and_show as_alice salloc -Q -N2 --container-image=registry.test/none sh -c 'sleep 2; srun true'
  [ "$status" -ne 0 ]
  [[ $output == *"registry.test/none"*"manifest"* ]] || [[ $output == *"registry.test/none"*"unknown"* ]]
  [ "$(sinfo -h -N -t drain,drained,draining,down -o %N | wc -l)" -eq 0 ]
  wait_until 30 no_import
}

# held NAME: a batch job of alice's whose image stops after a megabyte, for as long as a test takes. It stays as long: a job's end ends the import.
held() {
  printf '#!/bin/sh\n#SBATCH -J held -o /dev/null -w node1 --container-image=registry.test/debian:12\nsleep 600\n' >held.sh
  as_alice env ENROOT_STALL_TIMEOUT=600 https_proxy="http://hold-$1:x@proxy.test:3128" sbatch -Q --export=NONE held.sh
  wait_until 60 is_held "hold-$1"
  pgrep -f 'situla-broker prolog'
}

@test "a job that is cancelled ends it, and leaves nothing" {
  snapshot
  held 601
  as_alice scancel -n held
  wait_until 60 no_jobs
  wait_until 30 no_import
  rm -f held.sh
  nothing_left
}

@test "when its broker is killed its helpers end, and the epilog removes what they held" {
  snapshot
  held 602
  pkill -KILL -f 'situla-broker prolog'
  as_alice scancel -n held
  wait_until 60 no_jobs
  wait_until 30 no_import
  nothing_left
}

@test "nothing is begun for what the store is not asked for, nor for srun, whose step comes at once" {
  : >"$BATS_TEST_TMPDIR/brokers"
  (while :; do pgrep -f 'situla-broker prolog' >>"$BATS_TEST_TMPDIR/brokers" || true; done) 3>&- &
  local watch=$!
  as_alice situla import -o /home/alice/prolog.sqsh docker://registry.test/tiny
  for image in ./prolog.sqsh dockerd://tiny; do as_alice salloc -Q -w node1 --container-image="$image" true; done
  as_alice salloc -Q -w node1 --container-image=registry.test/tiny --container-name=stays true
  as_alice salloc -Q -w node1 true
  as_alice srun -Q -w node1 --container-image=registry.test/tiny true
  # An allocation within one that has an image.
  as_alice salloc -Q -w node1 --container-image=./prolog.sqsh env -u SLURM_JOB_ID salloc -Q -w node1 true
  kill "$watch"
  rm -f /home/alice/prolog.sqsh
  [ ! -s "$BATS_TEST_TMPDIR/brokers" ]
}

@test "prolog_prefetch=all: srun, too; prolog_prefetch=0: none" {
  cp /etc/slurm/plugstack.conf "$BATS_TEST_TMPDIR/plugstack.conf"
  sed -i 's/spank_situla.so.*/& prolog_prefetch=all/' /etc/slurm/plugstack.conf
  touch /shared/prolog/wait
  run_and_show as_alice srun -Q -w node1 --container-image=registry.test/debian:12 true
  [ "$status" -eq 0 ]
  [ -s /shared/prolog/seen.node1 ]
  rm -f /shared/prolog/*
  wait_until 60 no_jobs
  sed -i 's/prolog_prefetch=all/prolog_prefetch=0/' /etc/slurm/plugstack.conf
  mark
  as_alice salloc -Q -w node1 --container-image=registry.test/multiarch sleep 3
  cp "$BATS_TEST_TMPDIR/plugstack.conf" /etc/slurm/plugstack.conf
  [ "$(requests multiarch manifests)" -eq 0 ]
}
