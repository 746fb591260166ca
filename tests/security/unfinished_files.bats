# lab: --user root --situla-conf tests/cluster/no_idle.toml
# A writer that is killed at its last step leaves the old file whole, and what it leaves beside it goes with the next writer. What has its name
# after a power cut is whole.
load ../cluster/helpers

setup_file() { as_alice srun --chdir=/ --container-image=registry.test/tiny true; }

setup() {
  work=$(mktemp -d /home/alice/unfinished.XXXXXX)
  chown alice: "$work"
  export ENROOT_DATA_PATH=$work/data
  mkdir "$work/out"
  echo 'the old file' >"$work/out/x.sqsh"
  chown -R alice: "$work/out"
}

teardown() {
  as_alice scancel -u alice -s KILL || true
  wait
  umount "$work/disk" "$work/after" 2>/dev/null || true
  rm -rf "$work"
}

user() { (cd "$work/out" && as_alice "$@"); }

# killed_at_the_end COMMAND...: Linux gives a nameless file no name that is taken. It has another one before: SIGKILL
# comes when the last of the two calls begins.
killed_at_the_end() {
  run_and_show user strace -qq -f -o /dev/null -e trace=renameat,renameat2 -e inject=renameat,renameat2:signal=SIGKILL "$@"
  [ "$status" -eq 137 ]
  one_left
}

one_left() {
  [ "$(cat "$work/out/x.sqsh")" = 'the old file' ]
  [ "$(ls -A "$work/out" | grep -c '^\.situla-.*\.part$')" -eq 1 ]
}

# files NAME...: all that is in the directory.
files() {
  ls -A "$work/out"
  [ "$(ls -A "$work/out")" = "$(printf '%s\n' "$@")" ]
}

container() { [ -d "$work/data/c" ] || user situla load -n c docker://registry.test#tiny; }

# before: ".situla-1bf3e6bc159c7876.part" was still there after the export of y.sqsh
@test "an export that was killed: the next export of another name, import or save removes what it left" {
  container
  killed_at_the_end situla export -f -o x.sqsh c
  user situla export -o y.sqsh c
  files x.sqsh y.sqsh
  killed_at_the_end situla export -f -o x.sqsh c
  user situla import -o z.sqsh docker://registry.test#tiny
  files x.sqsh y.sqsh z.sqsh
  killed_at_the_end situla export -f -o x.sqsh c
  user srun --container-image=registry.test/tiny --container-writable --container-save=s.sqsh true
  files s.sqsh x.sqsh y.sqsh z.sqsh
}

# before: ".situla-765b07db4d2a73b2.part" was still there after the export of y.sqsh
@test "--container-save that was killed: the next writer removes what it left" {
  container
  ENROOT_SQUASH_OPTIONS='-comp xz' ENROOT_MAX_PROCESSORS=1 user srun --container-image=registry.test/tiny --container-writable \
    --container-save=x.sqsh sh -c 'dd if=/dev/urandom of=/x bs=1M count=60 2>/dev/null' >"$work/said" 2>&1 3>&- &
  wait_until 20 pgrep -x situla-saver
  strace -qq -f -o /dev/null -e trace=renameat,renameat2 -e inject=renameat,renameat2:signal=SIGKILL -p "$(pgrep -x situla-saver)" 3>&- || true
  wait %1 || true
  cat "$work/said"
  one_left
  user situla export -o y.sqsh c
  files x.sqsh y.sqsh
}

# before: the second export removed nothing, its own user's dead part neither
@test "what somebody still writes, what is another user's and what is only named alike stays" {
  container
  local part=$work/out/.situla-0123456789abcdef.part
  touch "$part" "$work/out/.situla-notes.part" "$work/out/.situla-fedcba9876543210.part"
  chown alice: "$part" "$work/out/.situla-notes.part"
  exec 4<"$part"
  flock 4
  user situla export -o y.sqsh c
  exec 4<&-
  [ -e "$part" ]
  user situla export -o z.sqsh c
  files .situla-fedcba9876543210.part .situla-notes.part x.sqsh y.sqsh z.sqsh
}

# Of what was written, ext4 with commit=1 has the names on the disk a second later, and the bytes, without a sync, half a minute later. What the disk
# has is seen in a copy of it.
# before: the container was there, and its image had no bytes
@test "power cut: what was created, imported, exported or bundled is whole" {
  mkdir "$work/disk" "$work/after"
  truncate -s 300M "$work/disk.img"
  mkfs.ext4 -q -F "$work/disk.img"
  mount -o loop,commit=1 "$work/disk.img" "$work/disk"
  chown alice: "$work/disk"
  export ENROOT_DATA_PATH=$work/disk/data
  user sh -c 'mkdir tree && head -c 20000000 /dev/urandom >tree/x && mksquashfs tree x.sqsh -noappend -quiet -no-progress -all-root'
  user situla create -n c x.sqsh
  user situla bundle -o "$work/disk/x.run" x.sqsh
  user situla import -o "$work/disk/tiny.sqsh" docker://registry.test#tiny
  user situla export -o "$work/disk/c.sqsh" c
  sleep 3
  cp --sparse=always "$work/disk.img" "$work/after.img"
  mount -o loop "$work/after.img" "$work/after"
  cmp "$work/out/x.sqsh" "$work/after/data/c/.situla/image.sqsh"
  grep -Eqx '[0-9a-f]{32}' "$work/after/data/c/.situla-id"
  for file in x.run tiny.sqsh c.sqsh; do cmp "$work/disk/$file" "$work/after/$file"; done
}
