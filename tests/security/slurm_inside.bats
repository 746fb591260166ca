# lab: --user root --proctrack cgroup
# The process that runs Slurm's commands for a container: who can use it, for what, and for how long? Its address is in /proc/net/unix.
load ../cluster/helpers

setup() {
  cd /home/alice
  as_alice srun -J door -n1 --container-image=registry.test/tiny sh -c 'srun sleep 821 & sleep 822' >/dev/null 2>&1 3>&- &
  job=$(running_job door)
  wait_until 60 sh -c 'pgrep -f "^[^ ]*sleep 821$"'
  task=$(pgrep -f '^[^ ]*sleep 822$')
  door=$(tr '\0' '\n' <"/proc/$task/environ" | sed -n 's/^SITULA_SLURM_INSIDE=//p')
  client=/shared/client
  install -m 755 "/proc/$task/root/run/situla/slurm/situla-slurm-client" "$client"
}

teardown() {
  as_alice scancel -u alice -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
}

# hear: what the first peer of an address says to somebody who says nothing.
hear() {
  python3 - "$1" <<'PYTHON'
import socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
    peer.settimeout(20)
    peer.connect("\0" + sys.argv[1])
    try:
        print("heard", len(peer.recv(4096)), "bytes")
    except ConnectionResetError:
        print("heard 0 bytes")
PYTHON
}

address() { sed 's/^@//; s/:.*//' <<<"$door"; }

@test "another user gets no word from it, and runs nothing with what the user knows" {
  [[ "$door" =~ ^@[0-9a-f]+:.{22,24}$ ]]
  grep -q "@$(address)\$" /proc/net/unix
  export -f hear address
  export door
  run_and_show as bob bash -c 'hear "$(address)"'
  [ "$output" = "heard 0 bytes" ]
  run_and_show as bob env SITULA_SLURM_INSIDE="$door" "$client" hostname
  [ "$status" -eq 1 ]
  [[ "$output" == *"does not answer"* ]]
  # Root is not the user, either.
  run_and_show bash -c 'hear "$(address)"'
  [ "$output" = "heard 0 bytes" ]
  run_and_show as_alice bash -c 'hear "$(address)"'
  [[ "$output" =~ ^heard\ [1-9] ]]
}

@test "who has taken the address of a step that has ended learns nothing" {
  python3 - >"$BATS_TEST_TMPDIR/heard" 3>&- <<'PYTHON' &
import socket
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.bind("\0f00ba")
server.listen()
server.settimeout(20)
peer, _ = server.accept()
# As long as what the real one says, which is not known.
peer.send(bytes(21))
peer.settimeout(20)
print("heard", len(peer.recv(1 << 20)), "bytes", flush=True)
PYTHON
  wait_until 20 grep -q '@f00ba$' /proc/net/unix
  run_and_show as_alice env SECRET=x SITULA_SLURM_INSIDE="@f00ba:${door#*:}" "$client" hostname
  [ "$status" -eq 1 ]
  [[ "$output" == *"does not answer"* ]]
  wait_until 20 grep -qx 'heard 0 bytes' "$BATS_TEST_TMPDIR/heard"
}

@test "who has found the address, and not the whole of the token, runs nothing" {
  local half
  half=$(python3 -c 'import base64, sys; token = base64.b64decode(sys.argv[1] + "=="); print(base64.b64encode(token[:8] + bytes(8)).decode())' "${door#*:}")
  run_and_show as_alice env SITULA_SLURM_INSIDE="${door%%:*}:$half" "$client" hostname
  [ "$status" -eq 1 ]
  [[ "$output" == *"does not answer"* ]]
  run_and_show as_alice env SITULA_SLURM_INSIDE="$door" bash -c "exec -a squeue $client -h -o %j"
  [ "$status" -eq 0 ]
}

@test "it is the user, without a capability, in the job's cgroup; nothing of it is the container's" {
  local proxy each
  for proxy in $(pgrep -f situla-slurm-proxy); do
    [ "$(awk '$1 == "Uid:" || $1 == "Gid:" { print $2, $3, $4, $5 }' "/proc/$proxy/status" | sort -u)" = "$(id -u alice) $(id -u alice) $(id -u alice) $(id -u alice)" ]
    [ "$(awk '/^Cap(Inh|Prm|Eff|Amb):/ { print $2 }' "/proc/$proxy/status" | sort -u)" = 0000000000000000 ]
    grep -q "job_$job/" "/proc/$proxy/cgroup"
    [ "$(readlink "/proc/$proxy/ns/mnt")" != "$(readlink "/proc/$task/ns/mnt")" ]
    [ "$(readlink "/proc/$proxy/ns/user")" = "$(readlink /proc/self/ns/user)" ]
  done
  [ -n "$proxy" ]
}

@test "nothing but the commands of the list, and no variable that changes what they are" {
  for each in sh ../../bin/sh sacctmgr scontrol/../sh situla-slurm-client ''; do
    run_and_show as_alice env SITULA_SLURM_INSIDE="$door" bash -c "exec -a '$each' $client -c id"
    [ "$status" -eq 1 ]
    [[ "$output" == *"containers are not offered it"* ]]
    [[ "$output" != *uid=* ]]
  done
  run_and_show as_alice env SITULA_SLURM_INSIDE="$door" bash -c "export LD_DEBUG=libs SLURM_CONF=/nonexistent PATH=/nonexistent; exec -a squeue $client -h -o %j"
  [ "$status" -eq 0 ]
  [[ "$output" == *door* ]]
  [[ "$output" != *"find library"* ]]
}

@test "it ends with the step, and so does what it ran" {
  as_alice scancel "$job"
  wait
  wait_until 30 sh -c '! pgrep -f "^situla-slurm-proxy|^[^ ]*sleep 82[12]$"'
  run_and_show as_alice env SITULA_SLURM_INSIDE="$door" "$client" hostname
  [ "$status" -eq 1 ]
  [[ "$output" == *"the step of this container does not answer"* ]]
  [[ "$output" == *"hint: it has ended"* ]]
}
