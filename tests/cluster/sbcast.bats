# lab: --nodes 4 --user root --situla-conf tests/cluster/sbcast.toml
# distribute = "sbcast": each node has a store of its own, and one of them imports for the others of its step.
# shellcheck disable=SC2030,SC2031 # each test has its own
load helpers

log=$SITULA_LAB/logs
image=registry.test/debian:12

setup() {
  on_all sh -c 'rm -rf /var/lib/situla/images /var/lib/situla/layers /var/lib/situla/leases /var/lib/situla/slots /var/lib/situla/grants /var/lib/situla/counts'
  mark
}
teardown() {
  as_alice scancel -u alice -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
}

on_all() { srun -N4 --ntasks-per-node=1 "$@"; }
mark() { marked=$(wc -l <"$log/registry.test.log"); }
# How often each layer has left the registry since the mark, at most; a layer comes in pieces.
fetched() {
  local size
  size=$(skopeo inspect --raw docker://$image | jq '[.layers[].size] | max')
  tail -n "+$((marked + 1))" "$log/registry.test.log" | sed -n 's|.*GET /v2/debian/blobs/\(sha256:[0-9a-f]*\) [^ ]* 20[06] \([0-9]*\).*|\1 \2|p' |
    awk -v size="$size" '{sum[$1] += $2} END {for (blob in sum) if (sum[blob] > most) most = sum[blob]; printf "%.2f\n", most / size}'
}
times() { awk -v found="$(fetched)" -v least="$1" -v most="$2" 'BEGIN {print found " times"; exit !(found >= least && found <= most)}'; }
# Of each node's last step: "source=node".
sources() { sed -n 's/.* image=.* \(source=[a-z-]*\) .*/\1/p' "$log/slurmd.node$1.log" | tail -n 1; }
verified() { [ "$(on_all sh -c 'situla verify >/dev/null && ls /var/lib/situla/images/sha256/*.sqsh | wc -l' | sort | uniq -c | awk '{print $1, $2}')" = "4 1" ]; }
nothing_incoming() {
  local left
  # shellcheck disable=SC2016 # on the nodes
  left=$(on_all sh -c 'cd /var/lib/situla-incoming; find . -mindepth 1 -printf "$SLURM_NODEID %p %u %m %t\n"; pgrep -ax situla-courier || true')
  [ -z "$left" ] || echo "left: $left"
  [ -z "$left" ]
}
# Images that were offered, or sent by sbcast.
copies() { cat "$log"/slurmd.node*.log | grep -c 'sbcast req_uid=.*/\(offer\|image\)\.' || true; }

@test "a cold start on four nodes: one fetches the image, the others get it from there and say from whom" {
  # shellcheck disable=SC2016
  run_and_show as_alice srun -N4 --ntasks-per-node=4 --container-image=$image sh -c '. /etc/os-release; echo $ID at $SLURM_NODEID'
  [ "$status" -eq 0 ]
  for node in 0 1 2 3; do
    [ "$(grep -cx "debian at $node" <<<"$output")" -eq 4 ]
  done
  [[ $output == *"waiting for the image from node1, which imports it for the step"* ]]
  [[ $output == *"got the image from node1"* ]]
  times 1 1.01
  [ "$(for node in 1 2 3 4; do sources $node; done | sort | uniq -c | awk '{print $1, $2}' | paste -sd ' ')" = "3 source=node 1 source=registry" ]
  verified
  wait_until 20 nothing_incoming
}

@test "what the store has is neither sent nor asked for; a step of one node sends nothing" {
  as_alice srun -N4 --container-image=$image true
  mark
  before=$(copies)
  run_and_show as_alice srun -N4 --container-image=$image hostname
  [ "$status" -eq 0 ]
  run_and_show as_alice srun -N1 -w node2 --container-image=registry.test/tiny:latest true
  [ "$status" -eq 0 ]
  [ "$(copies)" -eq "$before" ]
  [ "$(fetched)" = 0.00 ]
}

@test "the first node has the image: the others ask it" {
  as_alice srun -N1 -w node1 --container-image=$image true
  mark
  run_and_show as_alice srun -N4 --container-image=$image sh -c 'echo inside; sleep 2'
  [ "$status" -eq 0 ]
  [ "$(grep -cx inside <<<"$output")" -eq 4 ]
  [ "$(fetched)" = 0.00 ]
  [ "$(sources 3)" = source=node ]
  verified
}

@test "all but the first have it: only the first fetches it" {
  as_alice srun -N3 -w node2,node3,node4 --container-image=$image true
  mark
  before=$(copies)
  run_and_show as_alice srun -N4 --container-image=$image hostname
  [ "$status" -eq 0 ]
  times 1 1.01
  [ "$(copies)" -eq "$before" ]
  verified
}

@test "the importing node dies in the middle: another one imports for the rest, each layer leaves the registry at most twice" {
  as_alice env ENROOT_MAX_CONNECTIONS=1 ENROOT_STALL_TIMEOUT=600 https_proxy="http://hold-701:x@proxy.test:3128" \
    srun -N4 --container-image=$image echo inside >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  step=$!
  wait_until 30 sh -c 'curl -s http://proxy.test:3128/stats/hold-701 | jq -e .held >/dev/null'
  wait_until 30 grep -q 'waiting for the image from node1' "$BATS_TEST_TMPDIR/out"
  # All on this node.
  pkill -KILL -x situla-importer
  status=0
  wait "$step" || status=$?
  cat "$BATS_TEST_TMPDIR/out"
  [ "$status" -ne 0 ]
  [ "$(grep -cx inside "$BATS_TEST_TMPDIR/out")" -eq 3 ]
  times 1 2.01
  wait_until 20 nothing_incoming
}

@test "the importing node is lost without a word: the others wait seconds for its next one, and one of them takes its place" {
  as_alice env ENROOT_MAX_CONNECTIONS=1 ENROOT_STALL_TIMEOUT=600 https_proxy="http://hold-702:x@proxy.test:3128" \
    srun -N4 --container-image=$image echo inside >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  step=$!
  wait_until 30 sh -c 'curl -s http://proxy.test:3128/stats/hold-702 | jq -e .held >/dev/null'
  wait_until 30 grep -q 'waiting for the image from node1' "$BATS_TEST_TMPDIR/out"
  pkill -STOP -x situla-store
  pkill -STOP -x situla-importer
  wait_until 90 sh -c "[ \$(grep -cx inside $BATS_TEST_TMPDIR/out) -eq 3 ]"
  as_alice scancel -u alice
  pkill -CONT -x situla-store || true
  pkill -CONT -x situla-importer || true
  wait "$step" || true
  cat "$BATS_TEST_TMPDIR/out"
  times 1 2.01
  wait_until 30 nothing_incoming
}

# Nobody who gives the file to others lives for more than the seconds; nothing else is called so.
kill_senders_until_removed() {
  as_alice python3 - "$1" 3>&- <<'PYTHON'
import os, signal, sys, time
while os.path.exists("/shared/kills"):
    time.sleep(0.005)  # the nodes share these processors
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as stream:
                if stream.read().startswith(b"situla-courier\0send\0"):
                    time.sleep(float(sys.argv[1]))
                    os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass
PYTHON
}
# Args: for how many seconds a sender lives
start_without_senders() {
  touch /shared/kills
  kill_senders_until_removed "$1" &
  killer=$!
  # shellcheck disable=SC2016
  run_and_show as_alice srun -N4 --container-image=$image sh -c '. /etc/os-release; echo $ID at $SLURM_NODEID'
  rm /shared/kills
  wait "$killer"
  [ "$status" -eq 0 ]
  [ "$(grep -c 'debian at' <<<"$output")" -eq 4 ]
  [ "$(grep -c 'got the image from node1' <<<"$output")" -eq 3 ]
  times 1 1.01
  verified
  wait_until 20 nothing_incoming
}

@test "nodes that cannot connect to the sender: sbcast takes the file to all" {
  start_without_senders 0
  cat "$log"/slurmd.node*.log | grep 'sbcast req_uid=.*/image\.0'
}

@test "a sender that is killed when it has made its offer has not sent anything: sbcast takes the file to all" {
  start_without_senders 0.015
}

@test "a sender that is killed in the middle of the file: the nodes ask again before sbcast takes it to all" {
  start_without_senders 0.05
}

@test "no room on one node for what comes: it says so and imports, the others get theirs" {
  srun -N1 -w node3 mount -t tmpfs -o size=1m,mode=755 none /var/lib/situla-incoming
  began=$SECONDS
  run_and_show as_alice srun -N4 --container-image=$image echo inside
  [ $((SECONDS - began)) -lt 60 ]
  srun -N1 -w node3 umount /var/lib/situla-incoming
  [ "$status" -eq 0 ]
  [ "$(grep -cx inside <<<"$output")" -eq 4 ]
  [ "$(grep -c 'got the image from node1' <<<"$output")" -eq 2 ]
  [[ $output == *"the image did not come from node1: "*"No space left on device; importing it here"* ]]
  times 1.9 2.01
  verified
  wait_until 20 nothing_incoming
}

@test "a node that hears nothing for a while is not waited for, and imports when it goes on" {
  as_alice env ENROOT_MAX_CONNECTIONS=1 ENROOT_STALL_TIMEOUT=600 https_proxy="http://hold-8:x@proxy.test:3128" \
    srun -N4 --container-image=$image echo inside >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  step=$!
  wait_until 30 grep -q 'waiting for the image from node1' "$BATS_TEST_TMPDIR/out"
  # The courier of one of the others hears nothing any more; it gets nothing, and that node imports when it goes on.
  srun --overlap -N1 -n1 -w node3 pkill -STOP -x situla-courier
  # The first node goes on after those seconds.
  wait_until 60 sh -c "[ \$(grep -c 'got the image from node1' $BATS_TEST_TMPDIR/out) -eq 2 ]"
  srun --overlap -N1 -n1 -w node3 pkill -CONT -x situla-courier
  status=0
  wait "$step" || status=$?
  cat "$BATS_TEST_TMPDIR/out"
  [ "$status" -eq 0 ]
  [ "$(grep -cx inside "$BATS_TEST_TMPDIR/out")" -eq 4 ]
  times 1 2.01
  verified
  wait_until 20 nothing_incoming
}

@test "no room in the store of one node: its tasks fail with the reason, the others start" {
  srun -N1 -w node3 sh -c 'mount -t tmpfs -o size=4m,mode=700,uid=situla,gid=situla none /var/lib/situla'
  run_and_show as_alice srun -N4 --container-image=$image echo inside
  srun -N1 -w node3 umount /var/lib/situla
  [ "$status" -ne 0 ]
  [ "$(grep -cx inside <<<"$output")" -eq 3 ]
  [[ $output == *"situla: node3: the image store /var/lib/situla has 4.0 MiB free, and "*" have to stay so beside this image of "*"[store-full]"* ]]
  times 1 1.01
}

@test "an image that there is not: the registry's answer, on every node, and at once" {
  began=$SECONDS
  run_and_show as_alice srun -N4 --container-image=registry.test/debian:none true
  [ "$status" -ne 0 ]
  [[ $output == *"debian:none"* ]]
  [ $((SECONDS - began)) -lt 30 ]
  wait_until 20 nothing_incoming
}

@test "a step that is cancelled while its nodes wait leaves nothing" {
  snapshot
  as_alice env ENROOT_MAX_CONNECTIONS=1 ENROOT_STALL_TIMEOUT=600 https_proxy="http://hold-703:x@proxy.test:3128" \
    srun -N4 --container-image=$image true >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 30 grep -q 'waiting for the image from node1' "$BATS_TEST_TMPDIR/out"
  as_alice scancel -u alice
  status=0
  wait $! || status=$?
  [ "$status" -ne 0 ]
  wait_until 30 nothing_incoming
  nothing_left
}

@test "a broker that is killed: who comes after it removes what other nodes have sent" {
  as_alice srun -N4 --container-image=$image sleep 30 3>&- &
  wait_until 30 pgrep -u alice -x sleep
  # shellcheck disable=SC2016 # on the nodes
  srun -N4 --overlap --ntasks-per-node=1 sh -c 'for d in /var/lib/situla-incoming/*; do setpriv --reuid alice touch "$d/mine"; done; pkill -KILL -x situla-broker'
  as_alice scancel -u alice
  wait || true
  wait_until 30 nothing_incoming
}

@test "a job of ten steps keeps the places and notes of its last nine, until it ends" {
  as_alice salloc -K -N4 sh -c "for step in 0 1 2 3 4 5 6 7 8 9; do srun --container-image=$image true || exit; done; echo all ran; sleep 300" \
    >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 120 grep -qx 'all ran' "$BATS_TEST_TMPDIR/out"
  # shellcheck disable=SC2016 # on the nodes
  kept() { on_all sh -c 'cd /run/situla/jobs; echo $(ls /var/lib/situla-incoming | sed "s/.*[.]//" | sort -n) / $(ls -d *.incoming 2>/dev/null | wc -l)' | sort | uniq -c; }
  nine() { kept >"$BATS_TEST_TMPDIR/kept" && [ "$(sed 's/^ *//' "$BATS_TEST_TMPDIR/kept")" = "4 1 2 3 4 5 6 7 8 9 / 9" ]; }
  wait_until 20 nine || cat "$BATS_TEST_TMPDIR/kept"
  nine
  as_alice scancel -u alice
  wait || true
  wait_until 20 nothing_incoming
  none() { [ "$(kept | sed 's/^ *//')" = "4 / 0" ]; }
  wait_until 20 none
}

@test "prefetch for four nodes fetches once" {
  run_and_show as_alice situla prefetch $image --nodes "node[1-4]"
  [ "$status" -eq 0 ]
  times 1 1.01
  verified
}
