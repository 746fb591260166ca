# lab: --nodes 4 --user root
# Images that are on the nodes before a job needs them.
load helpers

setup() { cd /home/alice; }
teardown() {
  scontrol delete reservation=kept 2>/dev/null || true
  [ "$(sinfo -h -n node1 -t drain -o %n)" = "" ] || scontrol update NodeName=node1 State=RESUME
}

mark() { marked=$(wc -l <"$SITULA_LAB/logs/registry.test.log"); }
requests() { tail -n "+$((marked + 1))" "$SITULA_LAB/logs/registry.test.log" | grep -c "GET /v2/$1/$2" || true; }
rows() { grep -cE "^node[1-4] +$1 +$2\$" <<<"$output"; }

@test "prefetch: a node that is done long before the others does not end their imports, whatever WaitTime says" {
  run_and_show as_alice situla prefetch -w node3 fault.test/slow-4
  [ "$status" -eq 0 ]
  run_and_show as_alice env SLURM_WAIT=1 situla prefetch -w 'node[3-4]' fault.test/slow-4
  [ "$status" -eq 0 ]
  grep -qE '^node3 +fault.test/slow-4 +was there$' <<<"$output"
  grep -qE '^node4 +fault.test/slow-4 +imported$' <<<"$output"
}

@test "prefetch: nodes of a list, beside a job of another user; then a table, and steps that import nothing" {
  cd / && as bob srun -N4 --ntasks-per-node=1 --container-image=registry.test/tiny sleep 300 3>&- &
  wait_until 30 eval '[ "$(squeue -h -t running -u bob | wc -l)" -eq 1 ]'
  run_and_show as_alice situla prefetch --nodes 'node[2-4]' registry.test/debian:12
  [ "$status" -eq 0 ]
  grep -qE '^NODE +IMAGE +RESULT$' <<<"$output"
  [ "$(rows registry.test/debian:12 imported)" -eq 3 ]
  run_and_show as_alice situla prefetch -w 'node[1-4]' registry.test/debian:12
  [ "$status" -eq 0 ]
  [ "$(rows registry.test/debian:12 imported)" -eq 1 ]
  [ "$(rows registry.test/debian:12 'was there')" -eq 3 ]
  mark
  run_and_show as_alice srun -N4 --ntasks-per-node=1 --container-image=registry.test/debian:12 sh -c '. /etc/os-release; echo $ID'
  [ "$status" -eq 0 ]
  [ "$(grep -cx debian <<<"$output")" -eq 4 ]
  [ "$(requests debian blobs)" -eq 0 ]
  scancel -u bob
  wait
}

@test "prefetch: a partition, two images, and no container is made" {
  snapshot
  run_and_show as_alice situla prefetch -p "$(sinfo -h -o %R | head -n 1)" registry.test/tiny registry.test/debian:12
  [ "$status" -eq 0 ]
  [ "$(rows registry.test/tiny '(imported|was there)')" -eq 4 ]
  [ "$(rows registry.test/debian:12 '(imported|was there)')" -eq 4 ]
  wait_until 30 grep -qE 'image=registry.test/debian:12 name=- digest=sha256:[0-9a-f]{64} source=[a-z]+ mount=none import=[0-9]+ms$' "$SITULA_LAB/logs/slurmd.node3.log"
  nothing_left
}

@test "prefetch: of a partition's nodes those that take no jobs are named and left out, and nothing waits for the others" {
  scontrol update NodeName=node1 State=DRAIN Reason=test
  wait_until 30 eval '[ "$(sinfo -h -n node1 -o %T)" = drained ]'
  scontrol create reservation=kept nodes=node2 users=bob starttime=now duration=60 flags=ignore_jobs
  wait_until 30 eval '[ "$(sinfo -h -n node2 -o %T)" = reserved ]'
  run_and_show as_alice timeout 60 situla prefetch -p "$(sinfo -h -o %R | head -n 1)" registry.test/tiny
  scontrol delete reservation=kept
  [ "$status" -eq 0 ]
  [[ $output == *"node1: drained, left out"* ]]
  [[ $output == *"node2: reserved, left out"* ]]
  [ "$(rows registry.test/tiny '(imported|was there)')" -eq 2 ]
}

@test "prefetch: in a job, for its nodes, beside what the job does; the next step asks nobody" {
  # shellcheck disable=SC2016
  run_and_show as_alice salloc -Q -N2 --ntasks-per-node=2 bash -euc '
    srun --overlap sleep 60 &
    situla prefetch registry.test/multiarch
    srun --overlap --container-image=registry.test/multiarch echo inside 2>&1 | grep -v "imported" | sed "s/^/later: /"
    kill %1; wait || true'
  [ "$status" -eq 0 ]
  [ "$(rows registry.test/multiarch imported)" -eq 2 ]
  [ "$(grep -cx 'later: inside' <<<"$output")" -eq 4 ]
  [[ $output != *later:*importing* ]]
}

@test "prefetch: variables that say something of a job's containers say nothing of this" {
  run_and_show as_alice env PYXIS_CONTAINER_NAME=mine SITULA_CONTAINER_IMAGE=registry.test/debian:12 SITULA_CONTAINER_MOUNTS=/no:/no SLURM_LABELIO=1 \
    situla prefetch -w node1,node2 registry.test/tiny
  [ "$status" -eq 0 ]
  [ "$(rows registry.test/tiny '(imported|was there)')" -eq 2 ]
  run_and_show as_alice salloc -Q -N2 --container-image=registry.test/debian:12 --container-name=mine situla prefetch registry.test/tiny
  [ "$status" -eq 0 ]
  [ "$(rows registry.test/tiny '(imported|was there)')" -eq 2 ]
}

@test "prefetch: one that is interrupted while it waits for its nodes leaves no job" {
  scontrol update NodeName=node1 State=DRAIN Reason=test
  as_alice situla prefetch -w node1 registry.test/tiny >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 30 eval '[ "$(squeue -h -t pending -u alice | wc -l)" -eq 1 ]'
  pkill -INT -u alice -x situla
  wait_until 20 eval '[ "$(squeue -h -u alice | wc -l)" -eq 0 ]'
  wait_until 20 grep -q interrupted "$BATS_TEST_TMPDIR/out"
}

@test "prefetch: what does not arrive is said for each node, with the reason, and the rest stays" {
  run_and_show as_alice situla prefetch -w node1,node2 registry.test/tiny registry.test/tiny:none
  [ "$status" -eq 1 ]
  [ "$(rows registry.test/tiny 'was there')" -eq 2 ]
  [ "$(rows registry.test/tiny:none failed)" -eq 2 ]
  [[ $output == *"manifest unknown"* ]]
  [[ $output == *"2 of 4 did not arrive"*"hint: what did arrive stays"* ]]
}

@test "prefetch: wrong words" {
  run_and_show as_alice situla prefetch
  [ "$status" -eq 1 ]
  [[ $output == *"IMAGE is required"* ]]
  run_and_show as_alice situla prefetch registry.test/tiny
  [ "$status" -eq 1 ]
  [[ $output == *"--nodes LIST or --partition NAME is required outside of a job"* ]]
  run_and_show as_alice salloc -Q -N1 situla prefetch -p any registry.test/tiny
  [ "$status" -eq 1 ]
  [[ $output == *"--partition inside of a job"*"unset SLURM_JOB_ID"* ]]
  run_and_show as_alice situla prefetch -w node9 registry.test/tiny
  [ "$status" -eq 1 ]
  run_and_show as_alice situla prefetch -p nowhere registry.test/tiny
  [ "$status" -eq 1 ]
  [[ $output == *"no partition with nodes called nowhere"*"hint: \`sinfo\` shows"* ]]
  run_and_show as_alice situla prefetch -w node1 ./file.sqsh
  [ "$status" -eq 1 ]
  [[ $output == *"--container-prefetch is for an image of a registry"* ]]
  run_and_show as_alice srun --container-prefetch --container-name=x --container-image=registry.test/tiny true
  [ "$status" -ne 0 ]
  [[ $output == *"--container-prefetch is for an image of a registry, and makes no container"* ]]
}

@test "--container-prefetch: the tasks run where they are, and know what was fetched" {
  run_and_show as_alice srun -n2 -w node1 --container-image=registry.test/tiny --container-prefetch sh -c 'echo "$SITULA_PREFETCHED $PWD"; test -e /etc/slurm'
  [ "$status" -eq 0 ]
  [ "$(grep -cE '^sha256:[0-9a-f]{64} store /home/alice$' <<<"$output")" -eq 2 ]
}

@test "prefetch: a node whose Slurm does not load the plugin has got nothing, and is named" {
  srun -Q -w node2 mount --bind /dev/null /etc/slurm/plugstack.conf
  run_and_show as_alice situla prefetch -w node1,node2 registry.test/tiny
  srun -Q -w node2 umount /etc/slurm/plugstack.conf
  [ "$status" -eq 1 ]
  grep -qE '^node1 +registry.test/tiny +(imported|was there)$' <<<"$output"
  grep -qE '^node2 +registry.test/tiny +failed$' <<<"$output"
}
