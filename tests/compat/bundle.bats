# lab:
# Bundles: made with enroot's words, run with the words of enroot's bundles. COMPAT.md section 3. As alice, on a node.
bats_require_minimum_version 1.5.0
. "$BATS_TEST_DIRNAME/../support/wait.bash"

setup() {
  work=$(mktemp -d "$HOME/bundle.XXXXXX")
  cd "$work"
  export TMPDIR=$work/tmp
  mkdir tmp
  enroot import -o debian.sqsh docker://registry.test#debian:12
}

teardown() {
  cd /
  chmod -R u+rwX "$work"
  rm -rf "$work"
}

# nothing_left: what a bundle needed while it ran is gone; its last process may take a moment.
nothing_left() {
  for _ in $(seq 300); do
    [ -n "$(ls -A tmp)" ] || return 0
    sleep 0.1
  done
  ls -A tmp
  return 1
}

no_session() { ! pgrep --session "$1" >/dev/null; }

# on_plain_host DEVICES ARG...: ./debian.run as a user of a machine that has nothing but a plain Debian. DEVICES: all, or few,
# without /dev/fuse.
on_plain_host() {
  [ -d host ] || unsquashfs -q -n -d host debian.sqsh >/dev/null
  cp debian.run host/tmp/
  unshare -Urm sh -c '
    mount --rbind host host && cd host
    mount --rbind /proc proc && mount --rbind /sys sys
    if [ "$1" = all ]; then
      mount --rbind /dev dev
    else
      mount -t tmpfs -o mode=755 few dev && mkdir dev/shm && ln -s /proc/self/fd dev/fd
      for device in null zero full random urandom tty; do
        touch "dev/$device" && mount --bind "/dev/$device" "dev/$device"
      done
    fi
    shift
    mkdir -p old && pivot_root . old && umount -l /old
    unset TMPDIR
    cd /tmp && exec env -i PATH=/usr/bin:/bin HOME=/tmp /tmp/debian.run "$@"' sh "$@"
}

@test "a bundle fetches nothing: images of registries are no mounts of it, and with nofail it does without" {
  enroot bundle debian.sqsh
  run --separate-stderr ./debian.run --mount docker://registry.test/tiny:/opt/tiny:image true
  [ "$status" -ne 0 ]
  [[ "$stderr" == *'mount docker://registry.test/tiny: a bundle fetches nothing'* ]]
  run --separate-stderr ./debian.run --mount docker://registry.test/tiny:/opt/tiny:image+nofail echo ran
  [ "$status" -eq 0 ]
  [ "$output" = ran ]
  [[ "$stderr" == *'docker://registry.test/tiny is not mounted: a bundle fetches nothing'* ]]
  nothing_left
}

@test "a bundle runs its container, with the command's exit status" {
  run --separate-stderr enroot bundle debian.sqsh
  [ "$status" -eq 0 ]
  [ -z "$output" ]
  [ -x debian.run ]
  run --separate-stderr ./debian.run cat /etc/debian_version
  [ "$status" -eq 0 ]
  [[ "$output" == 12.* ]]
  run ./debian.run sh -c 'exit 7'
  [ "$status" -eq 7 ]
  nothing_left
  PATH=$PATH:$PWD run debian.run true
  [ "$status" -eq 0 ]
}

@test "options of a bundle are those of enroot start" {
  enroot bundle debian.sqsh
  mkdir data
  echo mounted > data/file
  run ./debian.run --root -e ONE=1 --env TWO -m "$PWD/data:/mnt" -- sh -c 'id -u; echo $ONE; cat /mnt/file; touch /x 2>/dev/null || echo read-only'
  [ "$output" = "0
1
mounted
read-only" ]
  run ./debian.run --rw sh -c 'echo new > /x; cat /x; id -u'
  [ "$output" = "new
$(id -u)" ]
  printf 'echo from rc "$@"\n' > script
  run ./debian.run --rc script a b
  [ "$output" = "from rc a b" ]
  run ./debian.run --nonsense
  [ "$status" -eq 1 ]
  nothing_left
}

@test "--keep and --extract leave the target directory, whose variables are those of the user" {
  enroot bundle -t '$HERE/kept' debian.sqsh
  export HERE=$PWD
  ./debian.run --keep --rw sh -c 'echo stays > /message'
  [ "$(cat kept/message)" = stays ]
  run ./debian.run -x
  [ "$status" -eq 1 ]
  [[ "$output" == *"File already exists: $PWD/kept"* ]]
  HERE=$PWD/tmp ./debian.run -q -x
  [ -f tmp/kept/etc/debian_version ]
  rm -rf tmp/kept
  nothing_left
}

@test "kill -9 of a bundle leaves nothing, or what the next start removes" {
  enroot bundle debian.sqsh
  local killed=()
  for i in $(seq 0 14); do
    setsid ./debian.run sleep 5 2>/dev/null &
    killed+=($!)
    sleep "0.$(printf %02d "$i")"
    kill -9 $! 2>/dev/null || true
    wait $! || true
  done
  # What the killed shell had started ends by itself; until then it writes.
  wait_until 30 no_session "$(IFS=,; echo "${killed[*]}")"
  find tmp -maxdepth 1 -name '.situla-bundle*' '(' -type f -o -type d -empty ')' -exec touch -c -d '2 minutes ago' {} +
  mkdir tmp/.situla-bundle-abcdef
  touch -d '2 minutes ago' tmp/.situla-bundle.abcdef tmp/.situla-bundle-abcdef
  ./debian.run true
  nothing_left
}

@test "the checksum of a bundle is verified at every start" {
  enroot bundle -c -d 'For a test' debian.sqsh
  run ./debian.run --info
  [[ "$output" == *'Description: For a test'* ]]
  [[ "$output" == *'Target directory: debian'* ]]
  run ./debian.run true
  [ "$status" -eq 0 ]
  "$BATS_TEST_DIRNAME/../support/damage" debian.run 20000000
  run ./debian.run true
  [ "$status" -eq 1 ]
  [[ "$output" == *'Checksum validation failed'* ]]
}

@test "the user's configuration is put into the bundle on request" {
  mkdir -p conf/environ.d
  echo FROM=user > conf/environ.d/x.env
  ENROOT_CONFIG_PATH=$PWD/conf enroot bundle -o without.run debian.sqsh
  ENROOT_CONFIG_PATH=$PWD/conf enroot bundle --all -o with.run debian.sqsh
  ENROOT_BUNDLE_ALL=yes ENROOT_CONFIG_PATH=$PWD/conf enroot bundle -o also.run debian.sqsh
  run ./without.run sh -c 'echo "<$FROM>"'
  [ "$output" = "<>" ]
  run ./with.run sh -c 'echo "<$FROM>"'
  [ "$output" = "<user>" ]
  run ./also.run sh -c 'echo "<$FROM>"'
  [ "$output" = "<user>" ]
}

@test "a bundle on a machine without Situla and enroot" {
  enroot bundle -c debian.sqsh
  run --separate-stderr on_plain_host all sh -c 'cat /etc/debian_version; exit 3'
  [ "$status" -eq 3 ]
  [[ "$output" == 12.* ]]
  if grep -q extracting <<<"$stderr"; then echo "$stderr"; false; fi
  run on_plain_host all --verify
  [ "$status" -eq 0 ]
  [[ "$output" == *'User namespaces                   : OK'* ]]
  [[ "$output" == *'FUSE for users (/dev/fuse)        : OK'* ]]
}

@test "a bundle on a machine without FUSE" {
  enroot bundle debian.sqsh
  run --separate-stderr on_plain_host few sh -c 'cat /etc/debian_version; exit 3'
  [ "$status" -eq 3 ]
  [[ "$output" == 12.* ]]
  grep -q extracting <<<"$stderr"
  run on_plain_host few --verify
  [[ "$output" == *'FUSE for users (/dev/fuse)        : KO (optional'* ]]
  for _ in $(seq 300); do [ "$(ls -A host/tmp)" != debian.run ] || break; sleep 0.1; done
  [ "$(ls -A host/tmp)" = debian.run ]
}

@test "errors: what is no image, and files that exist" {
  echo nonsense > bad.sqsh
  run --separate-stderr enroot bundle bad.sqsh
  [ "$status" -eq 1 ]
  grep -q '^\[ERROR\] Invalid image format: bad.sqsh' <<<"$stderr"
  run --separate-stderr enroot bundle none.sqsh
  [ "$status" -eq 1 ]
  grep -q '^\[ERROR\] No such file or directory: none.sqsh' <<<"$stderr"
  echo old > debian.run
  run --separate-stderr enroot bundle debian.sqsh
  [ "$status" -eq 1 ]
  grep -q '^\[ERROR\] File already exists: debian.run' <<<"$stderr"
  [ "$(cat debian.run)" = old ]
  enroot bundle -f debian.sqsh
  run ./debian.run true
  [ "$status" -eq 0 ]
  [ -z "$(ls -A | grep situla)" ]
}
