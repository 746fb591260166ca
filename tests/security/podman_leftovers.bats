# lab:
# podman:// leaves nothing of its own in temporary directories, whoever of podman and Situla was there first and whoever was killed.
# As alice, with a rootless podman of her own that has no XDG_RUNTIME_DIR, as in a job.
load ../cluster/helpers

setup() {
  work=$(mktemp -d "$HOME/podman.XXXXXX")
  cd "$work"
  mkdir home temp podman
  export HOME=$work/home TMPDIR=$work/podman ENROOT_TEMP_PATH=$work/temp
  unset XDG_RUNTIME_DIR
  export CONTAINERS_STORAGE_CONF=$work/storage.conf PODMAN_IGNORE_CGROUPSV1_WARNING=1
  printf '[storage]\ndriver = "vfs"\ngraphroot = "%s/root"\nrunroot = "%s/run"\n[storage.options]\nignore_chown_errors = "true"\n' \
    "$work" "$work" >storage.conf
}

teardown() {
  podmen | xargs -r kill -9
  cd /
  chmod -R u+rwX "$work"
  rm -rf "$work"
}

# What rootless podman leaves running keeps its namespaces for the next command.
podmen() { pgrep -u alice podman || true; }

image() {
  skopeo copy -q "oci:$SITULA_LAB_IMAGES/debian:12" docker-archive:debian.tar:localhost/debian:latest
  podman load -q -i debian.tar
}

nothing_left() {
  ls -A temp
  [ -z "$(ls -A temp)" ]
}

# before: situla-save.NM8g7w/podman-run-60801, made again by every later podman of the user
@test "the first podman of a user is Situla's: what podman keeps is not in a directory of ours" {
  run_and_show situla import -o x.sqsh podman://nosuch
  [ "$status" -eq 1 ]
  [[ $output == *'no such image'* ]]
  nothing_left
  podman images
  nothing_left
  image
  situla import -o x.sqsh podman://debian
  podman images
  nothing_left
}

# before: situla-save.zsQCyz was still there after the next import
@test "kill -9 while the archive is made: the next import removes what was left" {
  image
  situla import -o x.sqsh podman://debian 3>&- &
  wait_until 30 sh -c 'ls -d temp/situla-save.*'
  kill -9 $!
  wait $! || true
  [ -n "$(ls -A temp)" ]
  situla import -o y.sqsh podman://debian
  nothing_left
}
