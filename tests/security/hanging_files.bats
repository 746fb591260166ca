# lab: --user root --proctrack cgroup --situla-conf tests/cluster/user_images.toml
# To close a file asks the file system that it is of, and nothing ends the wait for a file system of a user's that does not
# answer (FUSE_FLUSH). So the broker, which is root and no job's, must never hold a file of a user's.
load ../cluster/helpers

setup() {
  tool="$BATS_TEST_DIRNAME/hanging_files.py"
  work=$(mktemp -d /home/alice/hang.XXXXXX)
  mkdir "$work/mount"
  chown -R alice: "$work"
  mksquashfs /bin/busybox "$work/image" -quiet -no-progress >/dev/null
  python3 "$tool" serve "$work/mount" "$work/image" alice >"$work/flushed" 2>&1 3>&- &
  server=$!
  wait_until 30 grep -q "^hanging $work/mount " /proc/mounts
  as_alice test -e "$work/mount/file"
}

teardown() {
  kill -9 "$server" || true
  wait "$server" 2>/dev/null || true
  umount -l "$work/mount" || true
  as_alice scancel -u alice -s KILL || true
  as_alice scancel -u bob -s KILL || true
  wait_until 20 nobody situla-broker
}

nobody() { ! pgrep -x "$1" >/dev/null; }
# Who sends a file closes it when he ends, and so does not end. How many were sent: $sent.
send() {
  rm -f "$work/sent"
  as_alice python3 "$tool" "$@" "$work/mount/file" >"$work/sent" 2>&1 3>&- &
  wait_until 30 test -s "$work/sent"
  sent=$(cat "$work/sent")
}
addresses() { awk '$8 ~ /^@/ && $4 == "00010000" && $5 == "0005" { print substr($8, 2) }' /proc/net/unix | sort -u; }

# step OPTION...: of alice, in the background, with a builder that stays.
step() {
  as_alice srun --container-writable "$@" sh -c 'echo started; exec sleep 100' >"$work/out" 2>&1 3>&- &
  wait_until 20 grep -q started "$work/out" || { cat "$work/out"; return 1; }
}

# The broker ends when the step does, and bob's steps run, while alice's file system goes on not answering.
nothing_hangs() {
  run_and_show as bob timeout 60 srun --container-image=registry.test/tiny echo works
  [ "${lines[-1]}" = works ]
  as_alice scancel -u alice
  run wait_until 20 nobody situla-broker
  ps -eo pid,user,stat,wchan:20,args | grep '[s]itula' || true
  cat "$work/flushed"
  [ "$status" -eq 0 ]
  ! grep 'of uid 0,' "$work/flushed" || false
}

# before: situla-broker in state D, in request_wait_answer, until alice ended her file system
@test "a file of one's own file system, sent to one's broker where tasks connect, hangs nothing" {
  step --container-image=registry.test/tiny
  echo "listens: $(addresses)"
  for address in $(addresses); do send to-address "$address"; done
  [ "$sent" -ge 1 ]
  nothing_hangs
}

# before: the same
@test "such a file hangs nothing over the sockets of a process that the broker has started as the user" {
  step --container-unshare=pid --container-image=registry.test/tiny
  send to-processes situla-builder
  [ "$sent" -ge 1 ]
  nothing_hangs
}

# before: the same here; but the broker held the file itself, to close it one day
@test "an image in such a file system hangs its user's processes alone, also where the kernel may mount users' images" {
  as_alice srun --container-image="$work/mount/file" true >"$work/out" 2>&1 3>&- &
  wait_until 20 grep -q flush "$work/flushed"
  run_and_show as bob timeout 60 srun --container-image=registry.test/tiny echo works
  [ "${lines[-1]}" = works ]
  cat "$work/flushed"
  ! grep 'of uid 0,' "$work/flushed" || false
  # With the file system ends all that waited for it.
  kill -9 "$server"
  wait_until 20 nobody situla-broker
}
