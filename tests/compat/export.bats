# lab:
# Containers that become images again, as users save their work. COMPAT.md section 3. As alice, on a node.
bats_require_minimum_version 1.5.0
. "$BATS_TEST_DIRNAME/../support/wait.bash"

setup() {
  work=$(mktemp -d "$HOME/export.XXXXXX")
  cd "$work"
  export ENROOT_DATA_PATH=$work/data
  enroot import -o debian.sqsh docker://registry.test#debian:12
}

teardown() {
  cd /
  chmod -R u+rwX "$work"
  rm -rf "$work"
}

@test "create, change, export, start: what was changed is there" {
  enroot create --name mine debian.sqsh
  enroot start --root --rw mine sh -c 'echo changed > /etc/motd; rm /etc/issue; ln /etc/motd /etc/linked; echo TEST=1 >> /etc/environment; chmod 0 /etc/motd'
  run --separate-stderr enroot export mine
  [ "$status" -eq 0 ]
  [ -z "$output" ]
  grep -q '^\[INFO\] Creating squashfs filesystem\.\.\.' <<<"$stderr"
  [ -f mine.sqsh ]
  run --separate-stderr enroot start --root mine.sqsh sh -c 'cat /etc/linked; stat -c %h /etc/motd; ls /etc/issue; echo $TEST'
  [ "$output" = "changed
2
1" ]
  grep -q 'cannot access' <<<"$stderr"
}

@test "the name of the file, and files that exist" {
  enroot create --name mine debian.sqsh
  enroot export --output=other.sqsh mine
  run --separate-stderr enroot export -o other.sqsh mine
  [ "$status" -eq 1 ]
  grep -q '^\[ERROR\] File already exists: .*other.sqsh' <<<"$stderr"
  echo old > other.sqsh
  enroot export -f -o other.sqsh mine
  unsquashfs -s other.sqsh | grep -q '^Found a valid'
  run --separate-stderr enroot export nothing
  [ "$status" -eq 1 ]
  grep -q '^\[ERROR\] No such file or directory: .*/data/nothing' <<<"$stderr"
  run --separate-stderr enroot export ../mine
  [ "$status" -eq 1 ]
  grep -q '^\[ERROR\] Invalid argument: ../mine' <<<"$stderr"
  run --separate-stderr enroot export -o /nowhere/x.sqsh mine
  [ "$status" -eq 1 ]
  grep -q '/nowhere' <<<"$stderr"
}

@test "an image with an upper layer: unchanged files keep their blocks" {
  enroot create --name mine debian.sqsh
  enroot start --rw mine sh -c 'echo changed > /etc/motd'
  enroot export mine
  run enroot start mine.sqsh sh -c 'cat /etc/motd; cat /etc/debian_version'
  [ "${lines[0]}" = changed ]
  [[ "${lines[1]}" == 12.* ]]
  # A few pages more than the image, not the image once more.
  [ "$(stat -c %s mine.sqsh)" -lt $(($(stat -c %s debian.sqsh) + 200000)) ]
  cmp --ignore-initial=96 --bytes=25000000 debian.sqsh mine.sqsh
}

@test "files that their owner may not read are exported, too" {
  enroot create --extract --name mine debian.sqsh
  echo secret > data/mine/secret
  mkdir data/mine/closed
  echo inside > data/mine/closed/file
  chmod 0 data/mine/secret
  chmod 0111 data/mine/closed
  enroot export mine
  run enroot start --root mine.sqsh cat /secret /closed/file
  [ "$output" = "secret
inside" ]
}

@test "a container is exported while it runs" {
  enroot create --name mine debian.sqsh
  mkfifo go
  enroot start --rw -m "$PWD:/mnt" mine sh -c 'echo here > /running; cat /mnt/go' &
  wait_until 30 test -s data/mine/.situla/upper/running
  enroot export mine
  echo > go
  wait
  run enroot start mine.sqsh cat /running
  [ "$output" = here ]
}

@test "kill -9 at any moment leaves nothing" {
  enroot create --name mine debian.sqsh
  head -c 20000000 /dev/urandom > data/mine/.situla/upper/new
  mkdir target
  for i in $(seq 0 19); do
    enroot export -o target/x.sqsh mine 2>/dev/null &
    sleep "0.$(printf %02d "$((i * 2))")"
    kill -9 $! 2>/dev/null || true
    wait $! || true
    if [ -e target/x.sqsh ]; then
      unsquashfs -s target/x.sqsh | grep -q '^Found a valid'
      rm target/x.sqsh
    fi
    [ -z "$(ls -A target)" ]
  done
}
