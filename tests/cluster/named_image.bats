# lab: --user root
# A container with a name keeps a copy of its image. Of an image of the node's store the kernel's mount serves it as well as any other
# container; everything else is served by a process.
load helpers

log=$SITULA_LAB/logs/slurmd.node1.log
data=/home/alice/.local/share/enroot

setup() {
  cd /home/alice
  rm -f /etc/situla/situla.toml
}
teardown() {
  as_alice scancel -u alice
  as_alice enroot remove -f $(as_alice enroot list) >/dev/null 2>&1 || true
  rm -f /etc/situla/situla.toml
}

# The administrator's lines of that container's steps.
lines_of() { grep "situla: image=.* name=$1 " "$log" || true; }
served() { pgrep -u alice -x situla-image >/dev/null; }

# runs NAME WAY OPTION... COMMAND...: as a step in that container; its root is made in that way.
runs() {
  local name=$1 expected=$2 before
  shift 2
  before=$(lines_of "$name" | wc -l)
  run_and_show as_alice srun --container-name="$name" "$@"
  [ "$status" -eq 0 ]
  wait_until 30 eval '[ "$(lines_of "$name" | wc -l)" -gt "$before" ]'
  lines_of "$name" | tail -n 1
  [[ $(lines_of "$name" | tail -n 1) == *" mount=$expected "* ]]
}

@test "a container that is made of an image of the store lies on the node's mount of it, then and later" {
  # shellcheck disable=SC2016
  runs own layers --container-image=registry.test/tiny sh -c 'stat -c %u:%g /bin/busybox; grep " / " /proc/self/mounts'
  [[ $output == *"$(id -u alice):$(id -g alice)"* ]]
  runs own layers --container-writable sh -c 'echo changed >/mark; rm /bin/wget'
  # shellcheck disable=SC2016
  runs own layers --container-remap-root sh -c 'cat /mark; id -u; stat -c %u /bin/busybox; [ ! -e /bin/wget ]'
  [ "$(grep -cx 0 <<<"$output")" -eq 2 ]
  [[ $output == *changed* ]]
  as_alice srun -J stays --container-name=own --container-writable sh -c 'echo started; exec sleep 100' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 30 grep -q started "$BATS_TEST_TMPDIR/out"
  run served
  [ "$status" -ne 0 ]
  # Who shares what is written shares the mount.
  run_and_show as_alice srun --overlap --container-name=own:no_exec --container-writable sh -c 'cat /mark; echo more >/mark'
  [ "$status" -eq 0 ]
  [[ $output == *changed* ]]
  run_and_show as_alice srun --overlap --container-name=own cat /mark
  [[ $output == *more* ]]
  as_alice scancel -n stays
  wait
}

@test "the image is mounted anew from the store when nobody used it for a while" {
  runs anew layers --container-image=registry.test/tiny true
  echo 'image_mount_idle = 0' >/etc/situla/situla.toml
  as_alice srun --container-image=registry.test/tiny true
  wait_until 30 eval '[ -z "$(find /run/situla/images -name "*.lock")" ]'
  runs anew layers cat /etc/passwd
  # It counts as used.
  [[ $(situla images) == *tiny* ]]
}

@test "a file of the user's, and a node that does not know any more of what it was made, are served" {
  as_alice situla import -o own.sqsh docker://registry.test/tiny
  runs file layers-fuse --container-image=./own.sqsh true
  runs file layers-fuse true
  runs known layers --container-image=registry.test/tiny true
  rm -r /run/situla/copies
  runs known layers-fuse cat /etc/passwd
  [[ $output == *root:* ]]
}

@test "an image that has gone from the store is served from the copy" {
  runs gone layers --container-image=registry.test/tiny true
  echo 'image_mount_idle = 0' >/etc/situla/situla.toml
  as_alice srun --container-image=registry.test/tiny true
  wait_until 30 eval '[ -z "$(find /run/situla/images -name "*.lock")" ]'
  wait_until 30 situla rm registry.test/tiny
  runs gone layers-fuse cat /etc/passwd
  [[ $output == *root:* ]]
}

@test "a copy that was replaced, or a container that was copied, is what it holds" {
  runs replaced layers --container-image=registry.test/tiny true
  runs other layers --container-image=registry.test/debian:12 true
  as_alice cp -r --preserve=all "$data/pyxis_other" "$data/pyxis_twin"
  runs twin layers-fuse cat /etc/os-release
  [[ $output == *bookworm* ]]
  # With another identity's copy in its place, and with the time that the first one had.
  as_alice sh -c "cp -f $data/pyxis_other/.situla/image.sqsh $data/new && touch -r $data/pyxis_replaced/.situla/image.sqsh $data/new && mv -f $data/new $data/pyxis_replaced/.situla/image.sqsh"
  runs replaced layers-fuse cat /etc/os-release
  [[ $output == *bookworm* ]]
  # And one that says it is another: the identity is the user's own to forge.
  as_alice sh -c "cat $data/pyxis_other/.situla-id >$data/id && mv -f $data/id $data/pyxis_replaced/.situla-id"
  runs replaced layers-fuse cat /etc/os-release
  [[ $output == *bookworm* ]]
}

@test "with mount = \"fuse\" the copy is served" {
  runs fuse layers --container-image=registry.test/tiny true
  echo 'mount = "fuse"' >/etc/situla/situla.toml
  runs fuse layers-fuse true
}
