# lab: --user root --nodes 2
# The program beside srun to which the nodes of a step talk listens on the network: who may say what there? Each user of the cluster can connect.
load ../cluster/helpers

setup() {
  cd /home/alice
  as_alice srun -N2 -n2 --container-image=registry.test/tiny sleep 831 >told 2>&1 3>&- &
  wait_until 60 asleep 831
  wait_until 20 is_listening
}

# Where, in $port; its process in $monitor.
is_listening() {
  monitor=$(pgrep -x situla-monitor) || return 1
  port=$(ss -Hltnp | grep -F "pid=$monitor," | awk '{ sub(".*:", "", $4); print $4 }' | sort -u)
  [ -n "$port" ]
}

teardown() {
  as_alice scancel -u alice -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
}

# talk PROGRAM: python, with `connect()` and `hear(peer)`: how many bytes come before the end, or "open" after 6 seconds.
talk() {
  { cat <<'PYTHON'
import os, socket, struct, sys
def connect():
    return socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), timeout=6)
def hear(peer):
    count = 0
    try:
        while chunk := peer.recv(4096):
            count += len(chunk)
    except TimeoutError:
        return f"{count} bytes, open"
    except ConnectionResetError:
        pass
    return f"{count} bytes, closed"
PYTHON
    echo "$1"; } >/shared/talk.py
  run_and_show as bob env PORT="$port" python3 /shared/talk.py
}

@test "without the key of the nodes nothing is heard and nothing is shown; with it there is an error" {
  talk 'print(hear(connect()))'
  [ "$output" = "0 bytes, open" ]
  talk '
for junk in (b"\0" * 4, b"\xff" * 64, struct.pack("<I", 24) + b"x" * 24, b"GET / HTTP/1.1\r\n\r\n", struct.pack("<I", 1 << 31)):
    peer = connect()
    peer.sendall(junk)
    print(hear(peer))'
  [ "$output" = "$(for _ in {1..5}; do echo "0 bytes, closed"; done)" ]
  # As a node would, but for the key, and with it: what a node hears first is the monitor's key, and then that its words stand there.
  door=$(tr '\0' '\n' <"/proc/$monitor/environ" | sed -n 's/^SLURM_SITULA_MONITOR=//p')
  export DOOR=$door
  node='
import base64
keys = base64.b64decode(os.environ["DOOR"].split(":")[1])
VERSION = struct.pack("<I", 0x534d0001)
def say(peer, kind, rest):
    body = VERSION + bytes([kind]) + rest
    peer.sendall(struct.pack("<I", len(body)) + body)
def text(value):
    return struct.pack("<I", len(value)) + value
FAILURE = b"\0" + text(b"it \x1b[2J failed") + text(b"") + b"\0"'
  talk "$node"'
peer = connect()
say(peer, 0, keys[:16] + text(b"node1"))
say(peer, 5, FAILURE)
print(hear(peer))'
  [ "$output" = "0 bytes, closed" ]
  talk "$node"'
peer = connect()
say(peer, 5, FAILURE)
print(hear(peer))'
  [ "$output" = "0 bytes, closed" ]
  [ -z "$(grep -v -e '^situla: import' told)" ]
  asleep 831
  # A frame of 25 bytes and one of 9.
  talk "$node"'
peer = connect()
say(peer, 0, keys[16:] + text(b"node1"))
say(peer, 5, FAILURE)
print(hear(peer))'
  [ "$output" = "34 bytes, open" ]
  grep -Fq 'srun: error: situla: node1: it \x1b[2J failed [' told
}

@test "connections of others in any number keep no node away, and none stays open without the key" {
  talk '
import time
peers = [connect() for _ in range(300)]
time.sleep(0.5)
gone = sum(hear(peer).endswith("closed") for peer in peers[:236])
print(gone)
fresh = connect()
fresh.settimeout(15)
print(hear(fresh))'
  [ "$output" = "236"$'\n'"0 bytes, closed" ]
  asleep 831
  # A node is heard between them: an import that fails after some seconds, while 200 are connected to that step's monitor.
  as_alice scancel -u alice
  wait || true
  wait_until 20 eval '! pgrep -x situla-monitor'
  as_alice srun -N2 -n2 --container-image=fault.test/slow-3 --container-workdir=/no/such true >told 2>&1 3>&- &
  step=$!
  wait_until 20 is_listening
  talk '
import time
peers = [connect() for _ in range(200)]
print("connected")
deadline = time.monotonic() + 60
while time.monotonic() < deadline and not hear(peers[-1]).endswith("closed"):
    pass'
  [ "$output" = connected ]
  wait "$step" || true
  cat told
  [ "$(grep -c 'situla: hint' told)" -eq 1 ]
  grep -q 'srun: error: situla: node' told
}
