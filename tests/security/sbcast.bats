# lab: --nodes 3 --user root --proctrack cgroup --slurm-file tests/security/confine/cgroup.conf --situla-conf tests/cluster/sbcast.toml
# shellcheck disable=SC2030,SC2031 # each test has its own
# distribute = "sbcast" among users who do not trust each other: what is adopted, who may send, and what the capability of sbcast is good for.
load ../cluster/helpers

image=registry.test/debian:12
incoming=/var/lib/situla-incoming
forge="$BATS_TEST_DIRNAME/../../build/release/tests/cluster/forge_voucher"

setup() {
  ask_of debian
  on_all sh -c 'rm -rf /var/lib/situla/images /var/lib/situla/layers /var/lib/situla/leases /var/lib/situla/slots /var/lib/situla/grants /var/lib/situla/counts'
}
teardown() {
  as_alice scancel -u alice -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
}

on_all() { srun -N3 --ntasks-per-node=1 "$@"; }
on() {
  local node=$1
  shift
  srun --overlap -N1 -n1 -w "$node" "$@"
}
# Slurm as the service user of a node, or as alice.
as_alice_on() {
  local node=$1
  shift
  on "$node" setpriv --reuid alice --regid alice --clear-groups "$@"
}

# A step whose image stops after a megabyte at the first node, with the other nodes waiting for it.
waiting_step() {
  as_alice env ENROOT_MAX_CONNECTIONS=1 ENROOT_STALL_TIMEOUT=600 https_proxy="http://hold-$1:x@proxy.test:3128" \
    srun -J "held$1" -N3 --overlap --container-image=$image sh -c 'echo inside; md5sum /etc/os-release' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  step=$!
  wait_until 30 grep -q 'waiting for the image from node1' "$BATS_TEST_TMPDIR/out"
  job=$(running_job "held$1")
}
# What alice has in the step's directory of node2 is all that there is: she has stopped the first node.
pretend() {
  as_alice_on node2 sh -c "cd $incoming/$job.0 && cat $1 >image.0 && sleep 0.5 && cat $2 >voucher.0"
}
ends_well() {
  as_alice scancel -s KILL "$job.0" 2>/dev/null || true
  wait "$step" || true
  cat "$BATS_TEST_TMPDIR/out"
}
# Every node has the one image, whole.
right() {
  on_all sh -c 'situla verify >/dev/null && ls /var/lib/situla/images/sha256/*.sqsh | wc -l' | sort | uniq -c | awk '{print $1, $2}' | grep -x '3 1'
  [ "$(on_all sh -c 'cat /var/lib/situla/images/sha256/*.sqsh | sha256sum' | sort -u | wc -l)" -eq 1 ]
}

# The first who fetches on node3 stops until let_go(): the sender, and who fetches on node2, wait for it.
hold_node3() {
  rm -f /shared/go
  cat >/shared/hold.py <<'PYTHON'
import os, signal, time
print("ready", flush=True)
held, end = None, time.time() + 60
while time.time() < end and not (held and os.path.exists("/shared/go")):
    for pid in filter(str.isdigit, os.listdir("/proc")) if not held else ():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as stream:
                if stream.read().startswith(b"situla-courier\0fetch\0"):
                    os.kill(int(pid), signal.SIGSTOP)
                    held = int(pid)
        except OSError:
            pass
    if held:
        time.sleep(0.1)
if held:
    os.kill(held, signal.SIGCONT)
PYTHON
  as_alice_on node3 python3 /shared/hold.py >"$BATS_TEST_TMPDIR/hold" 2>&1 3>&- &
  wait_until 20 grep -q ready "$BATS_TEST_TMPDIR/hold"
}
let_go() { touch /shared/go; }

nothing_incoming() {
  local left
  # shellcheck disable=SC2016
  left=$(on_all sh -c 'cd /var/lib/situla-incoming; find . -mindepth 1 -printf "$SLURM_NODEID %p %u %m %t\n"; pgrep -ax situla-courier || true')
  [ -z "$left" ] || echo "left: $left"
  [ -z "$left" ]
}
manifest() { skopeo inspect --format '{{.Digest}}' docker://$image; }
# What a node asks the registry: repository, name as srun has pinned it, platform, login.
ask_of() { asked="registry.test/$1"$'\n'"$(manifest)"$'\nlinux/'"$(dpkg --print-architecture)"$'/\n'; }
shared_directory() {
  dir=$(mktemp -d /shared/forged.XXXX)
  chmod 755 "$dir"
  echo "$dir"
}

@test "a file and a voucher of alice's own are refused, and the store has the registry's image" {
  dir=$(shared_directory)
  head -c 100000 /dev/urandom >"$dir/image"
  waiting_step 801
  as_alice "$forge" "$job.0" "$(id -u alice)" "$asked" 0 "$(manifest)" x "sha256:$(sha256sum <"$dir/image" | cut -d' ' -f1)" 100000 >"$BATS_TEST_TMPDIR/credential"
  install -m 644 "$BATS_TEST_TMPDIR/credential" "$dir/voucher"
  chmod 644 "$dir/image"
  pretend "$dir/image" "$dir/voucher"
  wait_until 30 grep -q 'has sent is refused' "$BATS_TEST_TMPDIR/out"
  ends_well
  # The credential is for the service user alone, or was signed by alice: either way it is not that node's.
  grep -E 'refused: (uid [0-9]+ has signed it, not the service user|unmunge: )' "$BATS_TEST_TMPDIR/out"
  as_alice srun -N3 --container-image=$image true
  right
}

# The service user signs what is said below; alice brings it.
signed_is_refused() {
  local number=$1 why=$2
  shift 2
  waiting_step "$number"
  setpriv --reuid situla --regid situla --clear-groups "$forge" "$@" >"$BATS_TEST_TMPDIR/credential"
  install -m 644 "$BATS_TEST_TMPDIR/credential" "$dir/voucher"
  pretend "$dir/image" "$dir/voucher"
  wait_until 30 grep -q 'has sent is refused' "$BATS_TEST_TMPDIR/out"
  ends_well
  grep "refused: .*$why" "$BATS_TEST_TMPDIR/out"
}
made_up_image() {
  dir=$(shared_directory)
  head -c 100000 /dev/urandom >"$dir/image"
  chmod 644 "$dir/image"
  content="sha256:$(sha256sum <"$dir/image" | cut -d' ' -f1)"
}

@test "a credential of the service user for another step, replayed, is refused" {
  made_up_image
  signed_is_refused 802 'it is for step 1.0 of uid' 1.0 "$(id -u alice)" "$asked" 0 "$(manifest)" x "$content" 100000
}

@test "leave that a registry gave too long ago does not become younger on the way; and it is for what was asked" {
  made_up_image
  name=$(stored_name)
  for case in 7200:debian:'too old' -7200:debian:'too old' 0:tiny:'it is another image'; do
    setup
    IFS=: read -r age repository why <<<"$case"
    waiting_step "84$((++count))"
    ask_of "$repository"
    setpriv --reuid situla --regid situla --clear-groups "$forge" "$job.0" "$(id -u alice)" "$asked" "$age" "$(manifest)" "$name" "$content" 100000 >"$BATS_TEST_TMPDIR/credential"
    install -m 644 "$BATS_TEST_TMPDIR/credential" "$dir/voucher"
    pretend "$dir/image" "$dir/voucher"
    wait_until 30 grep -q 'has sent is refused' "$BATS_TEST_TMPDIR/out"
    ends_well
    grep "refused: .*$why" "$BATS_TEST_TMPDIR/out"
  done
}

@test "one for another user is refused" {
  made_up_image
  waiting_step 803
  as_alice scancel -s KILL "$job.0"
  wait "$step" || true
  waiting_step 813
  setpriv --reuid situla --regid situla --clear-groups "$forge" "$job.0" "$(id -u bob)" "$asked" 0 "$(manifest)" x "$content" 100000 >"$BATS_TEST_TMPDIR/credential"
  install -m 644 "$BATS_TEST_TMPDIR/credential" "$dir/voucher"
  pretend "$dir/image" "$dir/voucher"
  wait_until 30 grep -q 'has sent is refused' "$BATS_TEST_TMPDIR/out"
  ends_well
  grep "refused: it is for step $job.0 of uid $(id -u bob)" "$BATS_TEST_TMPDIR/out"
}

# The name of the image as the store has it.
stored_name() {
  as_alice srun -N1 -w node3 --container-image=$image true
  basename "$(on node3 sh -c 'ls /var/lib/situla/images/sha256/*.sqsh')" .sqsh
}

@test "a node that vouches for what it did not import: another image, other bytes, no squashfs" {
  made_up_image
  name=$(stored_name)
  for case in other:x:"$content" bytes:"$name":"sha256:$(printf x | sha256sum | cut -d' ' -f1)" squashfs:"$name":"$content"; do
    setup
    IFS=: read -r kind wanted hash digits <<<"$case"
    waiting_step "82$((++count))"
    setpriv --reuid situla --regid situla --clear-groups "$forge" "$job.0" "$(id -u alice)" "$asked" 0 "$(manifest)" "$wanted" "$hash:$digits" 100000 >"$BATS_TEST_TMPDIR/credential"
    install -m 644 "$BATS_TEST_TMPDIR/credential" "$dir/voucher"
    pretend "$dir/image" "$dir/voucher"
    wait_until 30 grep -q 'has sent is refused' "$BATS_TEST_TMPDIR/out"
    ends_well
    case $kind in
    other) grep 'refused: it is another image' "$BATS_TEST_TMPDIR/out" ;;
    bytes) grep 'refused: its SHA-256 is' "$BATS_TEST_TMPDIR/out" ;;
    squashfs) grep 'refused: .*no squashfs file' "$BATS_TEST_TMPDIR/out" ;;
    esac
    on node2 sh -c '! ls /var/lib/situla/images/sha256/*.sqsh 2>/dev/null'
  done
}

@test "a file that its user changes all the time while it is adopted: refused, or whole" {
  dir=$(shared_directory)
  name=$(stored_name)
  on node3 sh -c 'cat /var/lib/situla/images/sha256/*.sqsh' >"$dir/image"
  chmod 644 "$dir/image"
  content=$(sha256sum <"$dir/image" | cut -d' ' -f1)
  for round in 1 2 3; do
    setup
    waiting_step "83$round"
    setpriv --reuid situla --regid situla --clear-groups "$forge" "$job.0" "$(id -u alice)" "$asked" 0 "$(manifest)" "$name" "sha256:$content" "$(stat -c %s "$dir/image")" >"$BATS_TEST_TMPDIR/credential"
    install -m 644 "$BATS_TEST_TMPDIR/credential" "$dir/voucher"
    as_alice_on node2 python3 -c '
import os, random, sys, time
image, voucher, directory = sys.argv[1:]
os.chdir(directory)
content = open(image, "rb").read()
# Whole first; then it is never whole again, but for moments.
file = os.open("image.0", os.O_RDWR | os.O_CREAT)
os.write(file, content)
os.close(os.open("image.0", os.O_WRONLY))
if os.path.exists("image.0"):
    file = os.open("image.0", os.O_RDWR)
time.sleep(0.3)
os.close(os.open("image.0", os.O_WRONLY))
open("voucher.0", "wb").write(open(voucher, "rb").read())
end = time.time() + 3
while time.time() < end:
    at = random.randrange(len(content) - 8)
    os.pwrite(file, b"tampered", at)
    os.pwrite(file, content[at:at + 8], at)
' "$dir/image" "$dir/voucher" "$incoming/$job.0"
    ends_well
    found=$(on node2 sh -c 'cat /var/lib/situla/images/sha256/*.sqsh 2>/dev/null | sha256sum; true' 2>/dev/null)
    echo "round $round: $found"
    [[ $found == "$content "* || $found == "$(sha256sum </dev/null)" ]]
    grep -E 'refused: its SHA-256 is|got the image from' "$BATS_TEST_TMPDIR/out"
  done
}

@test "a file that its user changes while it comes from another node: refused, or whole" {
  name=$(stored_name)
  content=$(on node3 sh -c 'cat /var/lib/situla/images/sha256/*.sqsh' | sha256sum | cut -d' ' -f1)
  setup
  hold_node3  # before the image is on its way
  waiting_step 6  # seconds
  cat >/shared/tamper.py <<'PYTHON'
import os, random, sys, time
print("ready", flush=True)
file, end = None, time.time() + 40
while file is None and time.time() < end:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as stream:
                if stream.read().startswith(b"situla-courier\0fetch\0"):
                    file = os.open(f"/proc/{pid}/fd/4", os.O_RDWR)
                    print("has it", flush=True)
        except OSError:
            pass
end = time.time() + 3
while file is not None and time.time() < end:
    os.pwrite(file, b"tampered", random.randrange(1 << 20, 40 << 20))
PYTHON
  as_alice_on node2 python3 /shared/tamper.py >"$BATS_TEST_TMPDIR/tamper" 2>&1 3>&- &
  wait_until 20 grep -q ready "$BATS_TEST_TMPDIR/tamper"
  wait_until 40 grep -q 'has it' "$BATS_TEST_TMPDIR/tamper"
  let_go
  status=0
  wait "$step" || status=$?
  cat "$BATS_TEST_TMPDIR/out" "$BATS_TEST_TMPDIR/tamper"
  [ "$status" -eq 0 ]
  grep -x 'has it' "$BATS_TEST_TMPDIR/tamper"
  # node2 had it from elsewhere in the end, or was quicker than she.
  right
  [ "$(on node2 sh -c 'cat /var/lib/situla/images/sha256/*.sqsh' | sha256sum | cut -d' ' -f1)" = "$content" ]
}

@test "who knows no key gets no byte of an image on its way, and what he says ends nothing" {
  setup
  cat >/shared/stranger.py <<'PYTHON'
import os, re, socket, time
print("ready", flush=True)
heard, end = b"", time.time() + 40
while not heard and time.time() < end:
    rows = []
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}", encoding="ascii") as stream:
            rows += [line.split() for line in stream.readlines()[1:]]
    # Listening, as alice, at a port that the kernel chose.
    for port in [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[7] == os.environ["ALICE"]]:
        try:
            one = socket.create_connection(("127.0.0.1", port), timeout=0.5)
            heard = one.recv(4096)
            one.sendall(b"\x70\0\0\0" + os.urandom(0x70))
            one.settimeout(5)
            while heard[4:8] == b"\x01\0WS" and (piece := one.recv(4096)):
                heard += piece
        except OSError:
            pass
        if heard[4:8] == b"\x01\0WS":
            break
        heard = b""
print("heard", len(heard), flush=True)
PYTHON
  # Before the image is on its way: on a busy machine to be ready takes as long as the first node waits.
  hold_node3
  waiting_step 7  # seconds
  as bob env "ALICE=$(id -u alice)" python3 /shared/stranger.py >"$BATS_TEST_TMPDIR/stranger" 2>&1 3>&- &
  wait_until 40 grep -q heard "$BATS_TEST_TMPDIR/stranger"
  # Who listens and connects has no capability.
  for pid in $(pgrep -f '^situla-courier (send|fetch) '); do
    grep -E '^Cap(Inh|Prm|Eff|Amb)' "/proc/$pid/status" | tee -a "$BATS_TEST_TMPDIR/capabilities"
  done
  let_go
  status=0
  wait "$step" || status=$?
  cat "$BATS_TEST_TMPDIR/out" "$BATS_TEST_TMPDIR/stranger"
  [ "$status" -eq 0 ]
  # The challenge, and no more.
  grep -x 'heard 25' "$BATS_TEST_TMPDIR/stranger"
  [ "$(awk '{print $2}' "$BATS_TEST_TMPDIR/capabilities" | sort -u)" = 0000000000000000 ]
  right
}

@test "the directory of a step is its user's, and its neighbours are nobody's else" {
  waiting_step 841
  on node2 sh -c "stat -c '%U %a' $incoming $incoming/$job.0" | tee "$BATS_TEST_TMPDIR/modes"
  [ "$(paste -sd ' ' "$BATS_TEST_TMPDIR/modes")" = "root 755 alice 700" ]
  run on node2 setpriv --reuid bob --regid bob --clear-groups sh -c "ls $incoming; cd $incoming/$job.0 || touch $incoming/99.0"
  echo "$output"
  [ "$status" -ne 0 ]
  ends_well
}

@test "the courier's capability is not its user's: no trace, no descriptors, no memory, nothing in effect" {
  waiting_step 851
  pid=$(pgrep -x situla-courier)
  grep -E '^Cap(Eff|Prm|Amb)' "/proc/$pid/status"
  [ "$(awk '/^CapEff/ {print $2}' "/proc/$pid/status")" = 0000000000000000 ]
  [ "$(awk '/^CapPrm/ {print $2}' "/proc/$pid/status")" = 0000000000000004 ]
  grep "job_$job/step_0" "/proc/$pid/cgroup"
  for what in "readlink /proc/$pid/fd/3" "cat /proc/$pid/fd/4" "cat /proc/$pid/environ" "dd if=/proc/$pid/mem bs=1 count=1" "strace -p $pid -o /dev/null"; do
    run timeout 10 setpriv --reuid alice --regid alice --clear-groups sh -c "$what"
    echo "$what: $status $output"
    [ "$status" -ne 0 ]
  done
  ends_well
}

@test "a courier that its user stops or kills holds nobody up but his own step" {
  waiting_step 861
  as_alice_on node2 pkill -STOP -x situla-courier
  as_alice_on node3 pkill -KILL -x situla-courier
  as bob srun -N3 --overlap --container-image=$image true
  began=$SECONDS
  as_alice scancel "$job"
  wait "$step" || true
  wait_until 40 sh -c "[ -z \"\$(squeue -h -j $job 2>/dev/null)\" ]"
  [ $((SECONDS - began)) -lt 40 ]
  wait_until 20 nothing_incoming
}

@test "a file system of the user's over the directory of his step holds nobody up, and nothing of it stays" {
  cp "$BATS_TEST_DIRNAME/../../build/release/tests/cluster/lying_fs" /shared/lying_fs
  install -d -o alice -m 700 /shared/alices
  waiting_step 871
  # Root mounts it in her stead, as fusermount does with user_allow_other, which not every node has. It answers nobody; its server lives in a step.
  # shellcheck disable=SC2016 # on the node
  srun -J server --overlap -N1 -n1 -w node2 sh -c '/shared/lying_fs /shared/alices "$1" 1 </dev/null >/dev/null 2>&1; findmnt -n -o FSTYPE "$1"; pkill -STOP -x lying_fs && echo stopped; exec sleep 300' - \
    "$incoming/$job.0" >"$BATS_TEST_TMPDIR/server" 2>&1 3>&- &
  wait_until 30 grep -qx stopped "$BATS_TEST_TMPDIR/server"
  grep -x fuse "$BATS_TEST_TMPDIR/server"
  began=$SECONDS
  as_alice scancel "$job"
  wait "$step" || true
  wait_until 40 sh -c "[ -z \"\$(squeue -h -j $job 2>/dev/null)\" ]"
  [ $((SECONDS - began)) -lt 40 ]
  wait_until 20 nothing_incoming
  scancel -n server
}

# before: "stays", and every later step of anybody on that node waited five seconds for it
@test "who goes on making files in the directory of her step keeps none, and the next steps of others do not wait" {
  cat >/shared/refill.py <<'PYTHON'
import itertools, os, sys, time
os.chdir(sys.argv[1])
os.mkdir("sub")
places = (os.open(".", os.O_RDONLY), os.open("sub", os.O_RDONLY))
print("ready", flush=True)
end = time.time() + 60
for number in itertools.count():
    made = 0
    for place in places:
        try:
            os.close(os.open(f"f{number}", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=place))
            os.mkdir(f"d{number}", dir_fd=place)
            made += 1
        except OSError:
            pass
    if time.time() > end or not made and number > 1000:
        break
print("no more" if not made else "still", flush=True)
PYTHON
  waiting_step 881
  as_alice_on node2 python3 /shared/refill.py "$incoming/$job.0" >"$BATS_TEST_TMPDIR/refill" 2>&1 3>&- &
  wait_until 20 grep -q ready "$BATS_TEST_TMPDIR/refill"
  sleep 1
  as_alice scancel "$job"
  wait "$step" || true
  wait_until 40 sh -c "[ -z \"\$(squeue -h -j $job 2>/dev/null)\" ]"
  wait_until 20 grep -qx 'no more' "$BATS_TEST_TMPDIR/refill"
  as bob srun -N3 --container-image=$image true
  wait_until 20 nothing_incoming
}

@test "a place for arrivals that is not root's is not used: that node asks the registry" {
  on node2 chown bob $incoming
  run_and_show as_alice srun -N3 --container-image=$image echo inside
  on node2 chown root $incoming
  [ "$status" -eq 0 ]
  [ "$(grep -cx inside <<<"$output")" -eq 3 ]
  [ "$(sed -n 's/.* image=.* \(source=[a-z-]*\) .*/\1/p' "$SITULA_LAB/logs/slurmd.node2.log" | tail -n 1)" = source=registry ]
  right
  wait_until 20 nothing_incoming
}
