# lab: --name podman --user root
# lab: --name large --user root
# Images of engines on this machine: a real podman by its API and by its command, and Docker's API as podman speaks it.
# In the large lab a real dockerd, whose package is too big for every run. Everything of theirs is in the test's own directory.
bats_require_minimum_version 1.5.0

load import_trees
. "$BATS_TEST_DIRNAME/../support/wait.bash"

export PODMAN_IGNORE_CGROUPSV1_WARNING=1

# stop_engine PIDFILE
stop_engine() {
  [ -s "$1" ] || return 0
  kill "$(<"$1")" 2>/dev/null || true
  tail --pid="$(<"$1")" -f /dev/null
}

wait_for() {
  local deadline=$((SECONDS + 60))
  until curl -s -o /dev/null --unix-socket "$1" http://localhost/_ping; do
    [ $SECONDS -lt $deadline ] || { echo "nobody listens on $1"; return 1; }
    sleep 0.1
  done
}

# same_as LAYOUT:TAG HOW REFERENCE...: the imported trees are umoci's, and the images are all that there is afterwards.
same_as() {
  local layout=$1 how=$2 reference images=()
  shift 2
  for reference; do
    images+=("$work/${#images[@]}.sqsh")
    "$how" situla import -o "${images[-1]}" "$reference"
  done
  "$here/import-vs-umoci" "${images[@]}" "$SITULA_LAB_IMAGES/$layout"
  rm "${images[@]}"
  [ -z "$(ls -A "$work")" ]
}

# fails_with PATTERN... -- CMD...: one error, and nothing left.
fails_with() {
  local patterns=() pattern
  while [ "$1" != -- ]; do patterns+=("$1"); shift; done
  shift
  run "$@"
  echo "status=$status"
  echo "$output"
  [ "$status" -eq 1 ]
  for pattern in 'failed to import docker image: ' 'hint: ' "${patterns[@]}"; do
    [[ "$output" == *"$pattern"* ]] || { echo "no line has: $pattern"; return 1; }
  done
  [ "$(grep -c ERROR <<<"$output")" -eq 1 ]
  [ -z "$(ls -A "$work")" ]
}

setup_file() {
  export HOME=/root
  skopeo copy -q "oci:$SITULA_LAB_IMAGES/tiny:latest" "docker-archive:$BATS_FILE_TMPDIR/tiny.tar:localhost/tiny:latest"
  skopeo copy -q "oci:$SITULA_LAB_IMAGES/debian:12" "docker-archive:$BATS_FILE_TMPDIR/debian.tar:docker.io/library/debian:12"
  [ "$SITULA_LAB_NAME" != podman ] || start_podman
}

# Storage of its own for every podman of this file, and its service.
start_podman() {
  export CONTAINERS_STORAGE_CONF=$BATS_FILE_TMPDIR/storage.conf podman_socket=$BATS_FILE_TMPDIR/podman.sock
  chmod 755 "$BATS_RUN_TMPDIR" "$BATS_FILE_TMPDIR"
  printf '[storage]\ndriver = "vfs"\ngraphroot = "%s/root"\nrunroot = "%s/run"\n' "$BATS_FILE_TMPDIR" "$BATS_FILE_TMPDIR" >"$CONTAINERS_STORAGE_CONF"
  podman load -q -i "$BATS_FILE_TMPDIR/tiny.tar"
  podman load -q -i "$BATS_FILE_TMPDIR/debian.tar"
  podman system service -t 0 "unix://$podman_socket" >"$BATS_FILE_TMPDIR/log" 2>&1 3>&- &
  echo $! >"$BATS_FILE_TMPDIR/engine.pid"
  wait_for "$podman_socket"
}

teardown_file() {
  stop_engine "$BATS_FILE_TMPDIR/engine.pid"
  # podman keeps its run root mounted onto itself.
  awk -v dir="$BATS_FILE_TMPDIR/" 'index($2, dir) == 1 { print $2 }' /proc/self/mounts | sort -r | xargs -r umount
}

api() { env CONTAINER_HOST="unix://$podman_socket" DOCKER_HOST="unix://$podman_socket" ENROOT_TEMP_PATH="$work" "$@"; }
# Without a service: podman's own command.
command_only() { env -u CONTAINER_HOST XDG_RUNTIME_DIR="$work" ENROOT_TEMP_PATH="$work" "$@"; }

# bats file_tags=lab:podman

@test "podman:// by its API: by short name, full name, id and digest" {
  local id digest
  id=$(podman image inspect --format '{{.Id}}' tiny)
  digest=$(podman image inspect --format '{{.Digest}}' tiny)
  same_as tiny:latest api podman://tiny podman://localhost/tiny:latest "podman://$id" "podman://${id:0:12}" "podman://tiny@$digest"
  same_as debian:12 api podman://debian:12
}

@test "podman:// by its command" {
  same_as tiny:latest command_only podman://tiny podman://localhost/tiny:latest
  same_as debian:12 command_only podman://docker.io/library/debian:12
}

@test "dockerd:// by Docker's API, as podman speaks it" {
  same_as tiny:latest api dockerd://localhost/tiny
  same_as debian:12 api dockerd://debian:12
}

@test "another architecture: a warning, as from other sources" {
  run api situla import -a arm64 -o "$work/x.sqsh" podman://tiny
  [ "$status" -eq 0 ]
  [[ "$output" == *"Image architecture doesn't match the requested one: amd64 != arm64"* ]]
}

@test "default names of files" {
  cd "$work"
  api situla import podman://localhost/tiny:latest
  [ "$(ls)" = localhost+tiny+latest.sqsh ]
  run api situla import podman://localhost/tiny:latest
  [ "$status" -eq 1 ]
  [[ "$output" == *"File already exists: localhost+tiny+latest.sqsh"* ]]
}

@test "errors: the image, the socket, its rights, the engine" {
  local how
  for how in api command_only; do
    fails_with 'no such image: podman has no nosuch:1' "'podman images'" -- "$how" situla import -o "$work/x.sqsh" podman://nosuch:1
  done
  fails_with 'no such image: docker has no nosuch:latest' -- api situla import -o "$work/x.sqsh" dockerd://nosuch
  fails_with 'connect to /nosuch.sock: No such file or directory' 'is docker installed and running' -- \
    env DOCKER_HOST=unix:///nosuch.sock ENROOT_TEMP_PATH="$work" situla import -o "$work/x.sqsh" dockerd://x
  fails_with 'connect to /var/run/docker.sock: No such file or directory' -- \
    env -u DOCKER_HOST PATH="$(dirname "$(command -v situla)")" ENROOT_TEMP_PATH="$work" "$(command -v situla)" import -o "$work/x.sqsh" dockerd://x
  python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$BATS_TEST_TMPDIR/dead.sock"
  fails_with 'dead.sock: Connection refused' 'is podman installed and running' -- \
    env CONTAINER_HOST="unix://$BATS_TEST_TMPDIR/dead.sock" ENROOT_TEMP_PATH="$work" situla import -o "$work/x.sqsh" podman://x
  chown alice "$work"
  chmod 600 "$podman_socket"
  fails_with 'podman.sock: Permission denied' 'only root and the group docker' -- \
    api runuser -u alice -- situla import -o "$work/x.sqsh" dockerd://x
  fails_with 'podman.sock: Permission denied' "another user's" -- api runuser -u alice -- situla import -o "$work/x.sqsh" podman://x
}

# interrupted SIGNAL HOW: while the archive is being made. bash lets background jobs ignore SIGINT: hence python.
interrupted() {
  run python3 -c '
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
child = subprocess.Popen(sys.argv[2:])
time.sleep(0.4)
child.send_signal(getattr(signal, sys.argv[1]))
print("died of", -child.wait(timeout=60))' "$1" env "${@:2}" situla import -o "$work/x.sqsh" podman://debian:12
  echo "$output"
  [[ "$output" == *"died of $(kill -l "${1#SIG}")"* ]]
  [ -z "$(ls -A "$work")" ]
}

@test "Ctrl-C during an import leaves nothing" {
  local signal
  export ENROOT_TEMP_PATH=$work
  for signal in SIGINT SIGTERM; do
    interrupted "$signal" "CONTAINER_HOST=unix://$podman_socket"
    interrupted "$signal" -u CONTAINER_HOST "XDG_RUNTIME_DIR=$work"
  done
}

@test "an image of podman in a job, through a socket that the user may use" {
  chmod 666 "$podman_socket"
  run runuser -u alice -- env HOME=/home/alice CONTAINER_HOST="unix://$podman_socket" srun -n2 --chdir=/home/alice \
    --container-image=podman://debian:12 grep PRETTY /etc/os-release
  echo "$output"
  [ "$status" -eq 0 ]
  [ "$(grep -c 'PRETTY_NAME="Debian' <<<"$output")" -eq 2 ]
  run runuser -u alice -- env HOME=/home/alice CONTAINER_HOST="unix://$podman_socket" srun --chdir=/home/alice --container-image=podman://nosuch true
  echo "$output"
  [ "$status" -ne 0 ]
  [[ "$output" == *"failed to import docker image: podman://nosuch: no such image"*"hint: 'podman images' on node1"* ]]
  chmod 600 "$podman_socket"
}

@test "scancel while an engine does not answer" {
  local server srun_pid
  python3 -c '
import os, socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
listener.listen()
open(sys.argv[1] + ".listens", "w").close()
peer = listener.accept()
open(sys.argv[1] + ".asked", "w").close()
time.sleep(600)' "$BATS_FILE_TMPDIR/deaf.sock" 3>&- &
  server=$!
  wait_until 20 test -e "$BATS_FILE_TMPDIR/deaf.sock.listens"
  runuser -u alice -- env HOME=/home/alice CONTAINER_HOST="unix://$BATS_FILE_TMPDIR/deaf.sock" srun --chdir=/home/alice \
    --container-image=podman://debian:12 true >"$work/out" 2>&1 3>&- &
  srun_pid=$!
  wait_until 60 test -e "$BATS_FILE_TMPDIR/deaf.sock.asked"
  pgrep -u alice -f 'situla-importer user'
  runuser -u alice -- scancel -u alice
  wait_until 60 gone "$srun_pid"
  kill "$server"
  status=0
  wait "$srun_pid" || status=$?
  cat "$work/out"
  [ "$status" -ne 0 ]
  # srun may end before they have.
  wait_until 20 no_helpers
}
gone() { ! kill -0 "$1" 2>/dev/null; }
no_helpers() { ! pgrep -u alice -f 'situla-(builder|importer)'; }

# bats file_tags=lab:large

@test "dockerd:// from a real dockerd, by its API and by its command" {
  command -v dockerd >/dev/null || skip "needs the package docker.io"
  local docker=$BATS_FILE_TMPDIR/docker
  mkdir "$docker"
  dockerd --iptables=false --ip6tables=false --bridge=none --storage-driver vfs --data-root "$docker/data" --exec-root "$docker/exec" \
    -p "$docker/pid" -H "unix://$docker/docker.sock" >"$docker/log" 2>&1 3>&- &
  echo $! >"$BATS_FILE_TMPDIR/engine.pid"
  wait_for "$docker/docker.sock" || { cat "$docker/log"; return 1; }
  export DOCKER_HOST=unix://$docker/docker.sock DOCKER_CONFIG=$docker/config ENROOT_TEMP_PATH=$work
  docker load -q -i "$BATS_FILE_TMPDIR/tiny.tar"
  docker load -q -i "$BATS_FILE_TMPDIR/debian.tar"
  same_as tiny:latest env dockerd://localhost/tiny dockerd://localhost/tiny:latest
  same_as debian:12 env dockerd://debian:12 "dockerd://$(docker image inspect --format '{{.Id}}' debian:12)"
  fails_with 'no such image: docker has no nosuch:1' -- situla import -o "$work/x.sqsh" dockerd://nosuch:1
  unset DOCKER_HOST
  docker context create here --docker "host=unix://$docker/docker.sock"
  export DOCKER_CONTEXT=here
  same_as debian:12 env dockerd://debian:12
  fails_with 'no such image: docker has no nosuch:1' "$(command -v docker)" -- situla import -o "$work/x.sqsh" dockerd://nosuch:1
}
