# lab: --name default
# lab: --name extract --situla-conf tests/cluster/tier_extract.toml
# Containers of both kinds, layered and extracted, from create to remove. COMPAT.md sections 1, 3 and 6. As alice, on a node.
bats_require_minimum_version 1.5.0
. "$BATS_TEST_DIRNAME/../support/wait.bash"

setup_file() {
  enroot import -o "$BATS_FILE_TMPDIR/tiny.sqsh" docker://registry.test#tiny
  enroot import -o "$BATS_FILE_TMPDIR/debian.sqsh" docker://registry.test#debian:12
}

setup() {
  work=$(mktemp -d "$HOME/containers.XXXXXX")
  cd "$work"
  export ENROOT_DATA_PATH=$work/data
  cp "$BATS_FILE_TMPDIR/tiny.sqsh" .
  mounts=$(wc -l </proc/self/mountinfo)
}

# Whatever a test did: no process, mount or unfinished directory is left.
teardown() {
  nobody_left
  [ "$(wc -l </proc/self/mountinfo)" -eq "$mounts" ]
  [ ! -d data ] || [ -z "$(find data -maxdepth 1 -name '.*' ! -name .)" ]
  cd /
  chmod -R u+rwX "$work"
  rm -rf "$work"
}

keepers() { ps -u "$(id -u)" -o stat=,comm= | grep -v '^Z' | grep -E 'situla-keeper|situla-image' || true; }

# Those who serve a container end soon after its last program.
nobody_left() {
  local i
  for ((i = 0; i < 1500; i++)); do
    [ -n "$(keepers)" ] || return 0
    sleep 0.02
  done
  echo "still there: $(keepers)"
  return 1
}

is_layered() { [ -f "data/$1/.situla/image.sqsh" ]; }
is_tree() { [ -e "data/$1/bin" ] && [ ! -e "data/$1/.situla" ]; }

# both COMMAND...: create "layered" and "tree", then run the command with each name.
both() {
  SITULA_CREATE=layered enroot create -n layered tiny.sqsh
  enroot create --extract -n tree tiny.sqsh
  is_layered layered
  is_tree tree
  "$@" layered
  "$@" tree
}

# bats file_tags=lab:default

@test "which kind create makes" {
  enroot create -n a tiny.sqsh
  is_layered a
  enroot create --extract -n b tiny.sqsh
  is_tree b
  SITULA_CREATE=tree enroot create -n c tiny.sqsh
  is_tree c
  SITULA_CREATE=layered enroot create -n d tiny.sqsh
  is_layered d
  run --separate-stderr env SITULA_CREATE=other enroot create -n e tiny.sqsh
  [ "$status" -eq 1 ]
  [[ "$stderr" == *"SITULA_CREATE=other"*"hint: tree or layered"* ]]
  enroot load -n e docker://registry.test#tiny
  is_layered e
  enroot load --extract -n f docker://registry.test#tiny
  is_tree f
  [ "$(enroot list | tr '\n' ' ')" = "a b c d e f " ]
}

@test "an image whose root nobody may write to" {
  mkdir closed
  chmod 555 closed
  mksquashfs closed closed.sqsh -all-root -quiet -no-progress >/dev/null
  for kind in tree layered; do
    SITULA_CREATE=$kind enroot create -n $kind closed.sqsh
    enroot list | grep -qx $kind
    enroot remove -f $kind
  done
}

# calls COMMAND...: its syncs and what it names, in their order, are in the file `calls`.
calls() { strace -f -y -o calls -e trace=fsync,fdatasync,rename,renameat,renameat2,linkat "$@"; }

# synced_before NAME FILE...: each was synced before something got that name.
synced_before() {
  local named synced file
  named=$(grep -nE "^[0-9]+ +(rename|linkat).*\"([^\"]*/)?$1\"" calls | tail -n 1 | cut -d: -f1)
  for file in "${@:2}"; do
    synced=$(grep -nE "^[0-9]+ +f(data)?sync\\([0-9]+<[^>]*$file>" calls | head -n 1 | cut -d: -f1)
    echo "$file: line ${synced:-none}; $1: line ${named:-none}"
    [ "${synced:-1000000}" -lt "${named:-0}" ] || { cat calls && return 1; }
  done
}

# before: a power cut within half a minute left a container whose image was not there
@test "a name leads to what is on the disk" {
  local container='\.situla-create-[^/]*'
  for command in 'create -n c tiny.sqsh' 'create -f -n c tiny.sqsh' 'load -f -n c docker://registry.test#tiny'; do
    calls enroot $command
    synced_before c "$container/\.situla/image\.sqsh" "$container/\.situla" "$container/\.situla-id" "$container"
  done
  # What has read credentials does not let its memory be read: the calls are seen, not their names.
  calls enroot import -o i.sqsh docker://registry.test#tiny
  [ "$(grep -oE '(f(data)?sync|linkat)\(' calls | head -n 1)" = 'fsync(' ]
  calls enroot export -o e.sqsh c
  synced_before e.sqsh '/#[0-9]+'
  calls enroot export -f -o e.sqsh c
  synced_before e.sqsh '/#[0-9]+'
  calls enroot bundle -o b.run tiny.sqsh
  synced_before b.run '/#[0-9]+'
}

changes_stay() {
  enroot start --rw "$1" sh -c 'echo changed >/etc/arch; rm -r /srv; mkdir /srv; touch /srv/new; echo x >/new'
  [ "$(enroot start "$1" cat /etc/arch)" = changed ]
  [ "$(enroot start "$1" sh -c 'echo /srv/*')" = /srv/new ]
  run ! enroot start "$1" touch /other
  enroot start --root --rw "$1" sh -c 'rm /new; mv /etc/arch /etc/moved'
  [ "$(enroot start --root "$1" cat /etc/moved)" = changed ]
  run ! enroot start "$1" ls /new
}

@test "changes stay, in both kinds" {
  both changes_stay
}

@test "what happens to the image file afterwards does not matter" {
  enroot create -n overwritten tiny.sqsh
  dd if=/dev/zero of=tiny.sqsh bs=4096 count=200 conv=notrunc status=none
  [ "$(enroot start overwritten echo works)" = works ]
  cp "$BATS_FILE_TMPDIR/tiny.sqsh" tiny.sqsh
  enroot create -n deleted tiny.sqsh
  rm tiny.sqsh
  enroot start --rw deleted touch /x
  [ "$(enroot start deleted ls /x)" = /x ]
}

life() {
  [ "$(enroot list | grep -cx "$1")" -eq 1 ]
  run --separate-stderr enroot create -n "$1" tiny.sqsh
  [ "$status" -eq 1 ]
  [[ "$stderr" == "[ERROR] File already exists: $ENROOT_DATA_PATH/$1"* ]]
  enroot start --rw "$1" touch /mark
  run --separate-stderr enroot remove "$1" <<<n
  [ "$status" -eq 0 ]
  [[ "$stderr" == "Do you really want to delete $ENROOT_DATA_PATH/$1? [y/N]"* ]]
  [ "$(enroot start "$1" ls /mark)" = /mark ]
  enroot create --force -n "$1" tiny.sqsh
  run ! enroot start "$1" ls /mark
  enroot remove "$1" <<<y
  [ ! -e "data/$1" ]
  run --separate-stderr enroot start "$1" true
  [ "$status" -eq 1 ]
  [[ "$stderr" == "[ERROR] No such file or directory: $ENROOT_DATA_PATH/$1"* ]]
}

@test "from create to remove, in both kinds" {
  both life
  [ -z "$(ls -A data)" ]
}

@test "a directory that enroot made" {
  mkdir -p data
  unsquashfs -q -n -d data/old tiny.sqsh >/dev/null
  touch data/old/.lock
  [ "$(enroot list)" = old ]
  [ "$(enroot start old echo works)" = works ]
  enroot start --rw old touch /mark
  [ -e data/old/mark ]
  chmod 0 data/old/etc
  enroot remove -f old
  [ -z "$(ls -A data)" ]
}

together() {
  enroot start --rw "$1" sh -c 'echo one >/one.new; mv /one.new /one; while [ ! -e /two ]; do sleep 0.05; done; cat /two' >first &
  local first=$!
  enroot start --root --rw "$1" sh -c 'while [ ! -e /one ]; do sleep 0.05; done; cat /one; id -u; echo two >/two.new; mv /two.new /two' >second
  wait "$first"
  [ "$(cat first)" = two ]
  [ "$(cat second)" = "one
0" ]
}

@test "two writable starts see each other's changes, in both kinds" {
  both together
}

@test "fifty starts of a layered container at once, writable and not" {
  enroot create -n c tiny.sqsh
  pids=()
  for i in $(seq 50); do
    enroot start $([ $((i % 5)) -eq 0 ] || echo --rw) c sh -c "[ $((i % 5)) -eq 0 ] || echo $i >/n$i; echo $i" >"out$i" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid"; done
  cat out* | sort -n | cmp - <(seq 50)
  [ "$(enroot start c sh -c 'ls -d /n* | grep -c .')" -eq 40 ]
}

@test "the first of two writable starts is killed: the other one goes on" {
  enroot create -n c tiny.sqsh
  enroot start --rw c sh -c 'echo one >/one; exec sleep 1000' &
  first=$!
  enroot start --rw c sh -c 'while [ ! -e /killed ]; do sleep 0.05; done; find / -xdev -type f -exec cat {} + | wc -c' >second &
  second=$!
  until [ "$(enroot start c ls /one 2>/dev/null)" = /one ]; do sleep 0.05; done
  kill -9 "$first"
  wait "$first" || true
  enroot start --rw c touch /killed
  wait "$second"
  [ "$(cat second)" -gt 1000000 ]
}

@test "a program left in the background keeps its files" {
  enroot create -n c tiny.sqsh
  enroot start --rw c sh -c '(sleep 1; cat /bin/busybox >/copy; mv /copy /copied) >/dev/null 2>&1 &'
  wait_until 30 test -e data/c/.situla/upper/copied
  enroot start c cmp /bin/busybox /copied
}

@test "the keeper of a container is killed: its programs go on, and the next writable start waits for them" {
  enroot create -n c tiny.sqsh
  enroot start --rw c sh -c 'echo up; while [ ! -e /tmp/end ]; do sleep 0.1; md5sum /bin/busybox >/sum.new; mv /sum.new /sum; done' >up &
  running=$!
  until grep -q up up; do sleep 0.05; done
  keeper=$(ps -u "$(id -u)" -o pid=,comm= | awk '$2 == "situla-keeper" { print $1 }')
  kill -9 "$keeper"
  enroot start --rw c touch /mark &
  next=$!
  sleep 1
  kill -0 "$running"
  run ! enroot start c ls /mark
  wait_until 30 enroot start c sh -c '[ -s /sum ]'
  kill -9 "$running"
  wait "$running" || true
  wait "$next"
  [ "$(enroot start c ls /mark)" = /mark ]
}

@test "two steps of a job and one outside write to the same container" {
  enroot create -n c tiny.sqsh
  script='echo $1 >/n$1; while [ ! -s /n1 ] || [ ! -s /n2 ] || [ ! -s /n3 ]; do sleep 0.05; done; cat /n1 /n2 /n3'
  cat >job <<END
#!/bin/bash
srun --overlap -n1 enroot start --rw c sh -c '$script' x 1 >out1 &
srun --overlap -n1 enroot start --root --rw c sh -c '$script' x 2 >out2 &
wait
END
  sbatch -W -n2 -o batch.log job &
  batch=$!
  enroot start --rw c sh -c "$script" x 3 >out3
  wait "$batch"
  cat batch.log
  for i in 1 2 3; do [ "$(tr -d '\n' <"out$i")" = 123 ]; done
}

remove_running() {
  enroot start --rw "$1" sh -c 'echo up; while sleep 0.1; do :; done' >"up-$1" 2>/dev/null &
  local running=$!
  until grep -q up "up-$1"; do sleep 0.05; done
  # Who is asked, hears of it before he answers.
  run --separate-stderr enroot remove "$1" <<<n
  [ "$status" -eq 0 ]
  grep -Eq "^\[WARN\] $1 is in use: process [0-9]+ \([^)]*\)( of job [0-9]+)? \[container-in-use\]$" <<<"$stderr"
  [ -e "data/$1" ]
  timeout 60 enroot remove -f "$1" 2>"removed-$1"
  [ "$(grep -c '^\[WARN\] .* is in use: ' "removed-$1")" -eq 1 ]
  [ ! -e "data/$1" ]
  # Without its files, sleep among them, it may have ended by itself.
  kill -9 "$running" || true
  wait "$running" || true
}

@test "remove while it runs, in both kinds" {
  both remove_running
  [ -z "$(ls -A data)" ]
}

@test "a package manager as root in a layered container" {
  cp "$BATS_FILE_TMPDIR/debian.sqsh" .
  enroot create -n d debian.sqsh
  cat >packages <<'END'
set -e
make() { # VERSION
  mkdir -p /build/$1/DEBIAN /build/$1/usr/share/example/dir
  printf 'Package: example\nVersion: %s\nArchitecture: all\nMaintainer: nobody\nDescription: x\n' $1 >/build/$1/DEBIAN/control
  echo "$1" >/build/$1/usr/share/example/version
  echo "$1" >/build/$1/usr/share/example/dir/only-$1
  ln /build/$1/usr/share/example/version /build/$1/usr/share/example/hard
  ln -s version /build/$1/usr/share/example/soft
  dpkg-deb --build /build/$1 /build/$1.deb >/dev/null
}
make 1; make 2
dpkg -i /build/1.deb >/dev/null
dpkg -i /build/2.deb >/dev/null
cat /usr/share/example/soft
[ "$(stat -c %h /usr/share/example/hard)" -eq 2 ]
[ ! -e /usr/share/example/dir/only-1 ]
# A package of the image itself: its files are in the lower layer.
dpkg --purge --force-all tzdata >/dev/null 2>&1
[ ! -e /usr/share/zoneinfo/Europe/Berlin ]
rm -rf /build
END
  enroot start --root --rw --mount "$work/packages:/packages:none:bind,x-create=file" d bash /packages
  [ "$(enroot start d cat /usr/share/example/hard)" = 2 ]
  enroot start --root --rw d dpkg --remove example
  run ! enroot start d ls /usr/share/example
  run ! enroot start d ls /usr/share/zoneinfo/Europe/Berlin
  [ "$(enroot start d dpkg -s bash | grep -c '^Status: install ok installed')" -eq 1 ]
}

@test "kill -9 at random moments of create: whole or not there" {
  for i in $(seq 20); do
    option=$([ $((i % 2)) -eq 0 ] || echo --extract)
    enroot create $option -f -n c "$BATS_FILE_TMPDIR/debian.sqsh" >/dev/null 2>&1 &
    sleep "0.$(printf %03d $((RANDOM % 300)))"
    kill -9 $! 2>/dev/null || true
    wait $! 2>/dev/null || true
    if [ -e data/c ]; then [ "$(enroot start c echo works)" = works ]; fi
  done
  enroot create -f -n c tiny.sqsh
  [ "$(ls -A data)" = c ]
}

@test "kill -9 at random moments of start: the next one works" {
  both true
  for i in $(seq 20); do
    enroot start $([ $((i % 3)) -eq 0 ] || echo --rw) "$([ $((i % 2)) -eq 0 ] && echo tree || echo layered)" sleep 100 >/dev/null 2>&1 &
    sleep "0.$(printf %03d $((RANDOM % 120)))"
    kill -9 $! 2>/dev/null || true
    wait $! 2>/dev/null || true
  done
  nobody_left
  for name in layered tree; do
    enroot start --rw "$name" touch /mark
    [ "$(enroot start "$name" ls /mark)" = /mark ]
  done
}

@test "kill -9 at random moments of remove: the next command finishes it" {
  for i in $(seq 10); do
    enroot create --extract -n c "$BATS_FILE_TMPDIR/debian.sqsh"
    enroot remove -f c &
    sleep "0.0$(printf %02d $((RANDOM % 60)))"
    kill -9 $! 2>/dev/null || true
    wait $! 2>/dev/null || true
    if [ -e data/c ]; then [ "$(enroot start c echo works)" = works ]; fi
    enroot create -f -n c tiny.sqsh
    [ "$(ls -A data)" = c ]
    enroot remove -f c
  done
}

@test "the kind is chosen when a container is made" {
  enroot create -n c tiny.sqsh
  is_layered c
  SITULA_CREATE=tree enroot start --rw c touch /x
  [ "$(enroot start c ls /x)" = /x ]
  is_layered c
}

# bats file_tags=lab:extract

@test "create and load make directory trees; a user may ask for layers" {
  enroot create -n a tiny.sqsh
  [ -x data/a/bin/busybox ]
  enroot load -n b docker://registry.test#tiny
  [ -x data/b/bin/busybox ]
  SITULA_CREATE=layered enroot create -n c tiny.sqsh
  [ -f data/c/.situla/image.sqsh ]
  for name in a b c; do
    enroot start --rw "$name" touch /mark
    [ "$(enroot start "$name" ls /mark)" = /mark ]
  done
}
