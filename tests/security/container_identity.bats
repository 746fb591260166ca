# lab: --user root --enroot-conf tests/security/on_ext4.conf
# A running container is joined by who it is, not by where it lies: ext4 gives the next directory the inode number of the last one.
load ../cluster/helpers

setup_file() {
  truncate -s 600M /var/tmp/ext4.img
  mkfs.ext4 -q -F /var/tmp/ext4.img
  mkdir -p /var/tmp/ext4
  mount -o loop /var/tmp/ext4.img /var/tmp/ext4
  install -d -m 700 -o alice /var/tmp/ext4/alice
  install -d -m 700 -o bob /var/tmp/ext4/bob
}

teardown_file() { umount -l /var/tmp/ext4; }

setup() {
  data=/var/tmp/ext4/alice
  second=$((661 + BATS_TEST_NUMBER))
}

teardown() {
  as_alice scancel -u alice -s KILL || true
  as bob scancel -u bob -s KILL || true
  local pid
  for pid in $(pgrep -x sleep -u alice) $(pgrep -x sleep -u bob); do kill -9 "$pid" || true; done
  wait
  rm -rf /var/tmp/ext4/alice/* /var/tmp/ext4/bob/*
}

nobody_left() { ! pgrep situla; }
asleep() { pgrep -u alice -f "^[^ ]*sleep $second\$"; }

# old [OPTION]...: a container x of the image tiny, in which a task runs.
old() {
  as_alice srun --chdir=/ --container-name=x --container-image=registry.test/tiny "$@" sleep $second 3>&- &
  wait_until 20 asleep
}

in_new() { grep -q '^debian$' <<<"$output"; }
what='test -e /usr/bin/dpkg && echo debian || echo tiny'

# before: :exec succeeded with "reusing existing container namespaces", although nothing of the new one ran
@test "after remove, the name means the new container while tasks of the old one still run" {
  old
  local inode
  inode=$(stat -c %i $data/pyxis_x)
  as_alice enroot remove -f pyxis_x
  as_alice srun --chdir=/ --container-name=x --container-image=registry.test/debian:12 true
  # Not every time: Situla may hold the old directory. What it must not do is join it.
  echo "inode: $inode, then $(stat -c %i $data/pyxis_x)"
  asleep
  run_and_show as_alice srun --chdir=/ --container-name=x:exec true
  [ "$status" -ne 0 ]
  [[ $output == *'the container "x" is not running'* ]]
  run_and_show as_alice srun --chdir=/ --container-name=x sh -c "$what"
  in_new
  asleep
}

# before: :exec joined what start had run by its path
@test "after remove, the name means the new container also when enroot start runs the old one" {
  as_alice enroot load -n pyxis_x docker://registry.test#tiny
  as_alice enroot start -w pyxis_x sleep $second 3>&- &
  wait_until 20 asleep
  as_alice srun --chdir=/ --container-name=x:exec true
  as_alice enroot remove -f pyxis_x
  as_alice srun --chdir=/ --container-name=x --container-image=registry.test/debian:12 true
  asleep
  run_and_show as_alice srun --chdir=/ --container-name=x sh -c "$what"
  in_new
  run_and_show as_alice enroot list -f
  # The old one's processes are nobody's now.
  grep -E "^<unknown> +$(asleep | head -n 1) " <<<"$output" || grep -E '^<unknown> ' <<<"$output"
  if grep -E "^pyxis_x +$(asleep | head -n 1) " <<<"$output"; then false; fi
}

# before: after load -f, :exec joined the replaced one: status 0
@test "a container that was replaced, and a copy, are others; the same one is joined" {
  old
  as_alice srun --chdir=/ --container-name=x:exec true
  cp -a $data/pyxis_x $data/pyxis_copy
  run_and_show as_alice srun --chdir=/ --container-name=copy:exec true
  [ "$status" -ne 0 ]
  [[ $output == *'the container "copy" is not running'* ]]
  as_alice enroot load -f -n pyxis_x docker://registry.test#debian:12
  run_and_show as_alice srun --chdir=/ --container-name=x:exec true
  [ "$status" -ne 0 ]
  [[ $output == *'the container "x" is not running'* ]]
  as_alice enroot remove -f pyxis_x pyxis_copy
}

# before: there was no .situla-id; trees went by their inode number
@test "a tree that enroot made is joined, and one on a file system that cannot be written" {
  SITULA_CREATE=tree as_alice enroot load -f -n pyxis_x docker://registry.test#tiny
  rm -f $data/pyxis_x/.situla-id
  as_alice srun --chdir=/ --container-readonly --container-name=x sleep $second 3>&- &
  wait_until 20 asleep
  as_alice srun --chdir=/ --container-name=x:exec true
  [ -f $data/pyxis_x/.situla-id ]
  as_alice scancel -u alice -s KILL
  wait
  # Who holds a file that is removed keeps the file system writable.
  wait_until 30 nobody_left
  rm -f $data/pyxis_x/.situla-id
  mount -o remount,ro /var/tmp/ext4
  as_alice srun --chdir=/ --container-readonly --container-name=x sleep $second 3>&- &
  wait_until 20 asleep
  as_alice srun --chdir=/ --container-name=x:exec true
  as_alice scancel -u alice -s KILL
  wait
  mount -o remount,rw /var/tmp/ext4
}

# before: there was no identity to forge
@test "bob gains nothing by the identity of alice's container" {
  old
  local identity
  identity=$(cat $data/pyxis_x/.situla-id)
  as bob enroot load -n pyxis_x docker://registry.test#tiny
  chmod 600 /var/tmp/ext4/bob/pyxis_x/.situla-id
  echo -n "$identity" >/var/tmp/ext4/bob/pyxis_x/.situla-id
  run_and_show as bob srun --chdir=/ --container-name=x:exec true
  [ "$status" -ne 0 ]
  [[ $output == *'the container "x" is not running'* ]]
}
