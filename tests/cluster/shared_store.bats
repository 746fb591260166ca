# lab: --name shared --nodes 4 --user root --situla-conf tests/cluster/shared_store.toml
# lab: --name lying --nodes 4 --user root --situla-conf tests/cluster/shared_store.toml
# One store for several nodes: each layer is fetched once, and a node that dies in the middle holds nobody up. In the lab "lying" the store is
# on a file system whose locks hold nobody off, and which shows each node what the others did seconds later.
load helpers

log=$SITULA_LAB/logs

setup_file() {
  mkdir -p /shared/store
  if [ "$SITULA_LAB_NAME" = lying ]; then
    mkdir -p /shared/backing
    chown situla:situla /shared/backing
    chmod 700 /shared/backing
    cp "$BATS_TEST_DIRNAME/../../build/release/tests/cluster/lying_fs" /shared/lying_fs
    # Each node has mounts of its own; the server stays when the step has ended.
    srun -N4 --ntasks-per-node=1 sh -c 'setsid /shared/lying_fs /shared/backing /shared/store 3 </dev/null >/dev/null 2>&1'
  fi
  chown situla:situla /shared/store
  chmod 700 /shared/store
}

setup() { empty_store; }
teardown() {
  as_alice scancel -u alice -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
}

store() { if [ "$SITULA_LAB_NAME" = lying ]; then echo /shared/backing; else echo /shared/store; fi; }
empty_store() { rm -rf "$(store)"/{images,leases,layers,slots,grants,counts}; }
# What other nodes know of the store is seconds old there.
settle() { [ "$SITULA_LAB_NAME" != lying ] || sleep 4; }

mark() { marked=$(wc -l <"$log/registry.test.log"); }
# How often each layer of debian:12 has left the registry since the mark, at most; a layer comes in pieces.
fetched() {
  local size
  size=$(skopeo inspect --raw docker://registry.test/debian:12 | jq '[.layers[].size] | max')
  tail -n "+$((marked + 1))" "$log/registry.test.log" | sed -n 's|.*GET /v2/debian/blobs/\(sha256:[0-9a-f]*\) [^ ]* 20[06] \([0-9]*\).*|\1 \2|p' |
    awk -v size="$size" '{sum[$1] += $2} END {for (blob in sum) if (sum[blob] > most) most = sum[blob]; printf "%.2f\n", most / size}'
}
at_most() { awk -v found="$(fetched)" -v most="$1" 'BEGIN {print found " times"; exit !(found > 0.99 && found <= most)}'; }
one_image() { [ "$(find "$(store)/images" -name '*.sqsh' | wc -l)" -eq 1 ]; }
import_runs() { [ -n "$(find "$(store)/leases" -type f 2>/dev/null)" ] && pgrep -x situla-importer >/dev/null; }
holder() { [ -n "$(find "$(store)/leases" -type f -exec grep -l " $1 " {} + 2>/dev/null)" ]; }

@test "a cold start on four nodes fetches each layer once, and those that wait say for whom" {
  settle
  mark
  # shellcheck disable=SC2016
  run_and_show as_alice srun -N4 --ntasks-per-node=4 --container-image=registry.test/debian:12 sh -c '. /etc/os-release; echo $ID at $SLURM_NODEID'
  [ "$status" -eq 0 ]
  for node in 0 1 2 3; do
    [ "$(grep -cx "debian at $node" <<<"$output")" -eq 4 ]
  done
  [[ $output == *"waiting for another import of the same image (job "*" on node"* ]]
  at_most 1.01
  one_image
}

@test "a node that is lost in the middle of an import: one of the others takes its place within seconds" {
  settle
  mark
  # It stops after a megabyte, and then like a machine without power: nothing of it moves.
  as_alice env ENROOT_MAX_CONNECTIONS=1 ENROOT_STALL_TIMEOUT=600 https_proxy="http://hold-601:x@proxy.test:3128" \
    srun -N1 -w node1 --container-image=registry.test/debian:12 true 3>&- &
  wait_until 30 holder node1
  wait_until 30 sh -c 'curl -s http://proxy.test:3128/stats/hold-601 | jq -e .held >/dev/null'
  pkill -STOP -x situla-store
  pkill -STOP -x situla-importer
  began=$SECONDS
  run_and_show as_alice srun -N3 -w node2,node3,node4 --container-image=registry.test/debian:12 echo inside
  [ "$status" -eq 0 ]
  [ "$(grep -cx inside <<<"$output")" -eq 3 ]
  [[ $output == *"waiting for another import of the same image (job "*" on node1"* ]]
  [ $((SECONDS - began)) -lt 45 ]
  at_most 2.01
  one_image
  pkill -CONT -x situla-store
  pkill -CONT -x situla-importer
}

@test "an importer that is killed: the next node finishes" {
  settle
  mark
  as_alice env ENROOT_MAX_CONNECTIONS=1 ENROOT_STALL_TIMEOUT=600 https_proxy="http://hold-602:x@proxy.test:3128" \
    srun -N1 -w node1 --container-image=registry.test/debian:12 true 3>&- &
  first=$!
  wait_until 30 sh -c 'curl -s http://proxy.test:3128/stats/hold-602 | jq -e .held >/dev/null'
  as_alice srun -N3 -w node2,node3,node4 --container-image=registry.test/debian:12 echo inside >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  second=$!
  wait_until 30 grep -q 'waiting for another import' "$BATS_TEST_TMPDIR/out"
  pkill -KILL -x situla-importer
  run wait "$first"
  [ "$status" -ne 0 ]
  wait "$second"
  cat "$BATS_TEST_TMPDIR/out"
  [ "$(grep -cx inside "$BATS_TEST_TMPDIR/out")" -eq 3 ]
  at_most 2.01
  one_image
}

@test "twelve imports of one image on four nodes, some killed at any moment: one image, whole, and nobody waits for ever" {
  for round in 1 2 3; do
    empty_store
    settle
    for i in {1..12}; do
      as_alice timeout 120 srun -N1 -w "node$((i % 4 + 1))" --container-image=registry.test/debian:12 true >"$BATS_TEST_TMPDIR/$i" 2>&1 3>&- &
    done
    sleep "0.$((RANDOM % 10))"
    pkill -KILL -x situla-store || true
    sleep "0.$((RANDOM % 10))"
    pkill -KILL -x situla-importer || true
    failed=0
    for job in $(jobs -p); do
      wait "$job" || { [ $? -ne 124 ] && failed=$((failed + 1)); }
    done
    # Only node1's were killed, of which there are three.
    echo "round $round: $failed failed"
    [ "$failed" -le 3 ] || { cat "$BATS_TEST_TMPDIR"/[0-9]*; false; }
    one_image
    run_and_show situla verify
    [ "$status" -eq 0 ]
  done
}
