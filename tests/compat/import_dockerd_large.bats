# lab: --user root
# Images of a real dockerd, whose package is too big for every run. Everything of its is in the test's own directory.
bats_require_minimum_version 1.5.0

load import_trees
load import_engines

setup_file() {
  export HOME=/root
  skopeo copy -q "oci:$SITULA_LAB_IMAGES/tiny:latest" "docker-archive:$BATS_FILE_TMPDIR/tiny.tar:localhost/tiny:latest"
  skopeo copy -q "oci:$SITULA_LAB_IMAGES/debian:12" "docker-archive:$BATS_FILE_TMPDIR/debian.tar:docker.io/library/debian:12"
}

teardown_file() { stop_engine "$BATS_FILE_TMPDIR/dockerd.pid"; }

@test "dockerd:// from a real dockerd, by its API and by its command" {
  command -v dockerd >/dev/null || skip "needs the package docker.io"
  local docker=$BATS_FILE_TMPDIR/docker
  mkdir "$docker"
  dockerd --iptables=false --ip6tables=false --bridge=none --storage-driver vfs --data-root "$docker/data" --exec-root "$docker/exec" \
    -p "$docker/pid" -H "unix://$docker/docker.sock" >"$docker/log" 2>&1 3>&- &
  echo $! >"$BATS_FILE_TMPDIR/dockerd.pid"
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
