# lab: --name served --user root
# lab: --name kernel --user root --situla-conf tests/cluster/user_images.toml
# lab: --name scope --user root --plugin-arg container_scope=job --situla-conf tests/cluster/no_idle.toml
# lab: --name extract --user root --situla-conf tests/cluster/tier_extract.toml
# A whole root in containers: who has a range of ids can change owners, become other users, save all that and start it
# again; and what is left on the node is his to remove. Alice has a range, bob has none.
load helpers

image=registry.test/debian:12
first=300000
home=/home/alice
data=$home/.local/share/enroot

setup_file() {
  for file in /etc/subuid /etc/subgid; do echo "alice:300000:65536" >"$file"; done
  # Its configuration makes a user, gives him directories and becomes him, as postgresql's does.
  package="$BATS_FILE_TMPDIR/package"
  mkdir -p "$package/DEBIAN" "$package/usr/bin" "$package/etc/ledger"
  printf '%s\n' 'Package: ledger' 'Version: 1' 'Architecture: all' 'Maintainer: nobody <nobody@example.org>' 'Depends: adduser' \
    'Description: a service with a user of its own' >"$package/DEBIAN/control"
  cat >"$package/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
addgroup --system ledger-readers
adduser --system --group --home /var/lib/ledger ledger
adduser ledger ledger-readers
install -d -o ledger -g ledger -m 700 /var/lib/ledger/main
chown root:ledger /etc/ledger/secret && chmod 640 /etc/ledger/secret
su ledger -s /bin/sh -c 'ledgerd init'
END
  cat >"$package/usr/bin/ledgerd" <<'END'
#!/bin/sh
[ "$(id -u)" -ne 0 ] || { echo "not as root" >&2 && exit 1; }
[ "$(stat -c %U /var/lib/ledger/main)" = "$(id -un)" ] || { echo "the directory is somebody else's" >&2 && exit 1; }
case $1 in
init) umask 077 && echo "$(id -un) $(id -Gn)" >/var/lib/ledger/main/data && chgrp ledger-readers /var/lib/ledger/main/data ;;
show) cat /var/lib/ledger/main/data /etc/ledger/secret ;;
esac
END
  echo hidden >"$package/etc/ledger/secret"
  chmod 755 "$package/DEBIAN/postinst" "$package/usr/bin/ledgerd"
  dpkg-deb --root-owner-group -Zgzip -b "$package" /scratch/ledger.deb
}

setup() { work=$(mktemp -d /scratch/ranges.XXXXXX) && chown alice: "$work" && cd "$work"; }

teardown() {
  as_alice scancel -u alice 2>/dev/null || true
  scancel -u bob 2>/dev/null || true
  wait 2>/dev/null || true
  for name in pyxis_x pyxis_y by-hand; do as_alice enroot remove -f "$name" 2>/dev/null || true; done
  [ ! -L "$data" ] || (rm "$data" && mv "$data.aside" "$data")
  [ ! -e "$BATS_TEST_TMPDIR/situla.toml" ] || cp "$BATS_TEST_TMPDIR/situla.toml" /etc/situla/situla.toml
  cd / && rm -rf "$work"
}

# Without what is said of imports, and of exit codes.
quietly() {
  run_and_show "$@"
  output=$(grep -v -E '^(situla: import|srun: error: node)' <<<"$output" || true)
  mapfile -t lines <<<"$output"
}

# root OPTION... -- SCRIPT: alice is root in a container.
root() {
  local options=()
  while [ "$1" != -- ]; do options+=("$1") && shift; done
  quietly as_alice srun --container-remap-root "${options[@]}" sh -c "$2"
}

# rule VALUE: what situla.toml says of ranges until the test ends.
rule() {
  local before=$BATS_TEST_TMPDIR/situla.toml
  [ -e "$before" ] || cp /etc/situla/situla.toml "$before" 2>/dev/null || : >"$before"
  (cat "$before" && echo "id_ranges = $1") >/etc/situla/situla.toml
}

owner() { stat -c %u:%g "$1"; }
# Files of alice's range, or of the one that the site's rule gives to bob.
in_range() {
  local kind
  for kind in uid gid; do
    find /home /scratch /tmp /var/tmp \( -$kind +$((first - 1)) -$kind -$((first + 65536)) \) -o \( -$kind +999999999 -$kind -1000065536 \)
  done
}
no_files_of_the_range() { [ -z "$(in_range)" ]; }

# bats file_tags=lab:served

@test "root gives files away and becomes other users; outside they are ids of the range, and others do as before" {
  root --container-image=$image --container-mounts="$work:/work" -- 'cat /proc/self/setgroups && cd /work && touch a b && chown daemon:adm a && chown 65534:65534 b && stat -c %U:%G a b && su daemon -s /bin/sh -c "id -un; touch /tmp/its; stat -c %U /tmp/its" && setpriv --reuid 33 --regid 33 --init-groups id -u'
  [ "$status" -eq 0 ]
  [ "$(paste -sd' ' <<<"$output")" = 'allow daemon:adm nobody:nogroup daemon daemon 33' ]
  [ "$(owner "$work/a")" = $((first + 0)):$((first + 3)) ]
  [ "$(owner "$work/b")" = $((first + 65533)):$((first + 65533)) ]
  # What is not in the map is nobody's, and stays so.
  touch "$work/of-root" "$work/of-bob" && chown bob "$work/of-bob" && chmod 600 "$work"/of-*
  root --container-image=$image --container-mounts="$work:/work" -- 'cat /work/of-root /work/of-bob; chown 0 /work/of-bob; chmod 666 /work/of-root; chown 100000 /work/a; true'
  [ "$(grep -c 'Permission denied' <<<"$output")" -eq 2 ]
  [ "$(grep -c 'not permitted' <<<"$output")" -eq 2 ]
  [[ "$output" == *'Invalid argument'* ]]
  [ "$(owner "$work/of-bob")" = "$(id -u bob):0" ]
  # Without --container-remap-root, and without a range.
  quietly as_alice srun --container-image=$image --container-mounts="$work:/work" sh -c 'cat /proc/self/setgroups && touch /work/c && chown daemon /work/c && wc -l </proc/self/uid_map'
  [ "$output" = $'deny\n1' ]
  [ "$(stat -c %U "$work/c")" = alice ]
  quietly as bob srun --chdir=/ --container-remap-root --container-image=$image sh -c 'cat /proc/self/setgroups && touch /tmp/c && chown daemon /tmp/c && stat -c %U /tmp/c'
  [ "$output" = $'deny\nroot' ]
  quietly as_alice env SITULA_ID_RANGE=no srun --container-remap-root --container-image=$image cat /proc/self/setgroups
  [ "$output" = deny ]
}

@test "the user's groups keep their numbers beside a range" {
  install -d -m 2770 -g crew "$work/crew"
  root --container-image=$image --container-mounts="$work:/work" -- 'cd /work/crew && touch made && chgrp press made && stat -c %G made . && id -Gn'
  [ "$status" -eq 0 ]
  [ "${lines[0]} ${lines[1]}" = 'press crew' ]
  [ "$(stat -c %U:%G "$work/crew/made")" = alice:press ]
  grep -qw crew <<<"${lines[2]}"
}

# installed FILE|NAME OPTION...: the package is there, its user's data too, and its program runs as that user.
installed() {
  root "$@" -- 'stat -c "%U:%G %a" /var/lib/ledger/main /var/lib/ledger/main/data /etc/ledger/secret && su ledger -s /bin/sh -c "ledgerd show"'
  [ "$status" -eq 0 ]
  [ "${lines[0]}" = 'ledger:ledger 700' ]
  [ "${lines[1]}" = 'ledger:ledger-readers 600' ]
  [ "${lines[2]}" = 'root:ledger 640' ]
  grep -q '^ledger ledger.*ledger-readers' <<<"$output"
  grep -qx hidden <<<"$output"
}

# package_saved: as a container x and as saved.sqsh.
package_saved() {
  root --container-image=$image --container-name=x --container-writable --container-mounts=/scratch/ledger.deb:/ledger.deb -- 'dpkg -i /ledger.deb'
  [ "$status" -eq 0 ]
  installed --container-name=x
  root --container-name=x --container-save="$work/saved.sqsh" -- true
  [ "$status" -eq 0 ]
}

@test "a package with a user of its own is installed, saved, and started again with its owners" {
  package_saved
  [ "$(stat -c %U "$work/saved.sqsh")" = alice ]
  # The file has the container's ids, and none of this machine.
  unsquashfs -lln "$work/saved.sqsh" | awk '{ print $2 }' | grep / | sort -u >ids
  grep -vqx 0/0 ids
  if grep -E '[0-9]{6}|/65534|65534/' ids; then false; fi
  # Served, extracted, as a container of both kinds, and from a container that was saved of it.
  installed --container-image="$work/saved.sqsh"
  installed --container-image="$work/saved.sqsh" --container-writable
  installed --container-image="$work/saved.sqsh" --container-name=y
  as_alice enroot remove -f pyxis_y
  quietly as_alice env SITULA_CREATE=tree srun --container-remap-root --container-name=y --container-image="$work/saved.sqsh" true
  installed --container-name=y
  root --container-image="$work/saved.sqsh" --container-writable --container-save="$work/again.sqsh" -- 'chown ledger /etc/motd'
  [ "$status" -eq 0 ]
  installed --container-image="$work/again.sqsh"
  [ "$(unsquashfs -lln "$work/again.sqsh" | awk '/squashfs-root\/etc\/motd/ { print $2 }')" = "$(awk -F/ '$1 > 0 && $2 > 0 { print $1; exit }' ids)/0" ]
  # Without a range all is root's, or the user's.
  cp "$work/saved.sqsh" /scratch/ledger.sqsh && chmod 644 /scratch/ledger.sqsh
  quietly as bob srun --chdir=/ --container-remap-root --container-image=/scratch/ledger.sqsh stat -c %u:%g /var/lib/ledger/main/data /etc/ledger/secret
  [ "$output" = $'0:0\n0:0' ]
  quietly as_alice srun --container-image="$work/saved.sqsh" stat -c %U:%G /var/lib/ledger/main/data
  [ "$output" = alice:alice ]
  rm -f /scratch/ledger.sqsh
  as_alice enroot remove -f pyxis_x pyxis_y
  rm -rf "$work"/*
  no_files_of_the_range
}

@test "a container keeps the range that it began with, and one that began without stays so" {
  root --container-image=$image --container-name=x --container-writable -- 'install -d -o daemon -m 700 /srv/its'
  [ "$status" -eq 0 ]
  [ -n "$(in_range)" ]
  [ "$(cat "$data/pyxis_x/.situla-range")" = "$first $first" ]
  # Also for who is not root.
  quietly as_alice srun --container-name=x sh -c 'id -un; stat -c %U /srv/its /etc; ls /srv/its 2>&1'
  [ "${lines[0]} ${lines[1]} ${lines[2]}" = 'alice daemon alice' ]
  [[ "$output" == *'/srv/its'*'Permission denied'* ]]
  sed -i 's/^alice:300000:/alice:400000:/' /etc/subuid
  quietly as_alice srun --container-name=x true
  sed -i 's/^alice:400000:/alice:300000:/' /etc/subuid
  [ "$status" -ne 0 ]
  [[ "$output" == *"the container has files of ids from 300000 (uids) and 300000 (gids), and here you have those from 400000 (uids)"* ]]
  sed -i 's/^alice:/nobody:/' /etc/subgid
  quietly as_alice srun --container-name=x true
  quietly as_alice enroot start pyxis_x true
  sed -i 's/^nobody:/alice:/' /etc/subgid
  [ "$status" -ne 0 ]
  [[ "$output" == *'300000'* ]]
  # Begun without, which is as if an older release had made it.
  as_alice env SITULA_ID_RANGE=no srun --container-remap-root --container-image=$image --container-name=y true
  [ -e "$data/pyxis_y/.situla-range" ]
  as_alice env SITULA_ID_RANGE=no srun --container-remap-root --container-name=y --container-writable true
  [ ! -e "$data/pyxis_y/.situla-range" ]
  root --container-name=y --container-writable -- 'touch /given && chown daemon /given && stat -c %U /given && cat /proc/self/setgroups'
  [ "$output" = $'root\ndeny' ]
}

@test "what others own goes with the step, the container and the job, also when the step's programs are killed" {
  snapshot
  root --container-image=$image --container-writable -- 'install -d -o daemon -m 700 /srv/a && su daemon -s /bin/sh -c "mkdir -m 700 /srv/a/b && touch /srv/a/b/c"'
  [ "$status" -eq 0 ]
  nothing_left
  # A killed builder and broker: the cleaner, or the epilog, does it.
  local victim
  for victim in situla-builder situla-broker; do
    as_alice srun -J killed --container-remap-root --container-image=$image --container-writable \
      sh -c "install -d -o daemon -m 700 /srv/a && su daemon -s /bin/sh -c 'touch /srv/a/b; exec sleep 4711'" 3>&- &
    wait_until 30 pgrep -f '^sleep 4711'
    [ "$(ps -o uid= -p "$(pgrep -f '^sleep 4711')" | tr -d ' ')" = $first ]
    pkill -KILL -x "${victim:0:15}"
    as_alice scancel -n killed
    wait
    wait_until 30 eval '! pgrep -f "^sleep 4711"'
    nothing_left
  done
  no_files_of_the_range
}

@test "who joins a container is as whole a root as who began it, and saves it with its owners" {
  as_alice srun -J first --container-remap-root --container-image=$image --container-name=x --container-writable sleep 4713 3>&- &
  wait_until 30 asleep 4713
  root --overlap --container-name=x --container-save="$work/joined.sqsh" -- 'install -d -o daemon -m 700 /srv/a && su daemon -s /bin/sh -c "touch /srv/a/b" && stat -c %U /srv/a/b'
  [ "$status" -eq 0 ]
  grep -qx daemon <<<"$output"
  [ "$(unsquashfs -lln "$work/joined.sqsh" | awk '/squashfs-root\/srv\/a/ { print $2 }' | paste -sd' ')" = '1/0 1/1' ]
  run_and_show as_alice enroot exec "$(asleep 4713 | head -n 1)" sh -c 'chown bin /srv/a/b && stat -c %U /srv/a/b'
  [ "${lines[-1]}" = bin ]
}

@test "who is not root has a container's files mounted: root cannot begin a range under him, and is told so" {
  quietly as_alice srun --container-image=$image --container-name=y true
  as_alice srun -J first --container-name=y --container-writable sleep 4714 3>&- &
  wait_until 30 asleep 4714
  root --overlap --container-name=y:no_exec --container-writable -- 'touch /x && chown daemon /x && stat -c %U /x'
  [ "$status" -ne 0 ]
  [[ "$output" == *'give a file of the container to another user'*'end them first'* ]]
  as_alice scancel -n first
  wait
  root --container-name=y --container-writable -- 'touch /x && chown daemon /x && stat -c %U /x'
  [ "$output" = daemon ]
}

@test "programs that became others end with a step whose slurmstepd is killed" {
  as_alice srun -J lost --container-remap-root --container-image=$image su daemon -s /bin/sh -c \
    'unshare --user --map-root-user sleep 4718 & unshare --user sleep 4719 & exec sleep 4712' 3>&- &
  wait_until 30 pgrep -f '^sleep 4712'
  wait_until 30 pgrep -f '^sleep 4718'  # in user namespaces of their own
  wait_until 30 pgrep -f '^sleep 4719'
  pkill -KILL -f "slurmstepd: \[$(running_job lost)[.]0\]"
  wait_until 30 eval '! pgrep -f "^sleep 471[289]"'
  as_alice scancel -u alice
  wait
}

@test "start, export and remove by hand use the same range" {
  as_alice enroot import -o "$work/debian.sqsh" docker://$image
  as_alice enroot create -n by-hand "$work/debian.sqsh"
  quietly as_alice enroot start --root --rw --mount /scratch/ledger.deb:/ledger.deb by-hand sh -c 'dpkg -i /ledger.deb && su ledger -s /bin/sh -c "ledgerd show"'
  [ "$status" -eq 0 ]
  grep -qx hidden <<<"$output"
  quietly as_alice enroot start by-hand stat -c %U:%G /var/lib/ledger/main /etc
  [ "$output" = $'ledger:ledger\nalice:alice' ]
  # A program that became another user uses the container's files as any other does, also when all others have ended:
  # who starts it next gets the same file system, and not a second one over the same changes.
  as_alice enroot start --root --rw by-hand su daemon -s /bin/sh -c 'sleep 4716 </dev/null >/dev/null 2>&1 &'
  wait_until 30 pgrep -f '^sleep 4716'
  sleep 2
  run_and_show as_alice enroot start --root --rw by-hand stat -c %d /
  [ "$output" = "$(stat -c %d "/proc/$(pgrep -f '^sleep 4716')/root/")" ]
  pkill -f '^sleep 4716'
  as_alice enroot export -f -o "$work/exported.sqsh" by-hand
  installed --container-image="$work/exported.sqsh"
  as_alice enroot remove -f by-hand
  [ ! -e "$data/by-hand" ]
  no_files_of_the_range
  quietly as_alice enroot start --root "$work/exported.sqsh" stat -c %U:%G /var/lib/ledger/main
  [ "$output" = ledger:ledger ]
}

@test "a rule of the site's gives a range to whoever has none, unless the area is somebody's" {
  bobs() {
    quietly as bob srun --chdir=/ --container-remap-root --container-image=$image sh -c 'cat /proc/self/setgroups && sed -n 2p /proc/self/uid_map | tr -s " "'
  }
  local uid
  uid=$(id -u bob)
  rule "{ first = 1000000000, first_uid = $((uid - 1)), users = 10 }"
  bobs
  [ "${lines[0]}" = allow ]
  [ "${lines[1]}" = " 1 $((1000000000 + 65536)) 65535" ]
  echo "eve:x:1000100000:1000::/:/bin/sh" >>/etc/passwd
  bobs
  sed -i '/^eve:/d' /etc/passwd
  [ "$output" = deny ]
  rule '"off"'
  root --container-image=$image -- 'cat /proc/self/setgroups'
  [ "$output" = deny ]
}

@test "start and create have no range where the site, or the user himself, wants none" {
  as_alice enroot import -o "$work/debian.sqsh" docker://$image
  mkdir source
  mksquashfs source owners.sqsh -noappend -quiet -no-progress -p 'roots f 644 0 0 true' -p 'its f 644 1 1 true' >/dev/null
  chmod 644 owners.sqsh
  # by_hand [VARIABLE=VALUE]: may root change groups, and whose is a file of daemon's in a tree?
  by_hand() {
    as_alice env "$@" enroot start --root "$work/debian.sqsh" cat /proc/self/setgroups
    as_alice env ENROOT_REMAP_ROOT=yes SITULA_CREATE=tree "$@" enroot create -f -n by-hand "$work/owners.sqsh" >/dev/null 2>&1
    stat -c %u "$data/by-hand/its"
    wc -c <"$data/by-hand/.situla-range"
  }
  local own
  own=$(id -u alice)
  [ "$(by_hand | paste -sd' ')" = "allow $first 14" ]
  [ "$(by_hand SITULA_ID_RANGE=no | paste -sd' ')" = "deny $own 0" ]
  rule '"off"'
  [ "$(by_hand | paste -sd' ')" = "deny $own 0" ]
  # What began with one is not started without, and can be saved and removed.
  rule '"files"'
  [ "$(by_hand | paste -sd' ')" = "allow $first 14" ]
  rule '"off"'
  quietly as_alice enroot start --root --rw by-hand true
  [ "$status" -ne 0 ]
  [[ "$output" == *"have the range of ids from $first"*'hint: '* ]]
  as_alice enroot export -f -o "$work/exported.sqsh" by-hand
  unsquashfs -lln "$work/exported.sqsh" | grep -q ' 1/1 .*/its$'
  as_alice enroot remove -f by-hand
  [ ! -e "$data/by-hand" ]
}

@test "a tree that root in it has given to another user is started, saved and removed all the same" {
  root --container-image=$image --container-name=x --container-writable -- 'chown daemon / /etc && stat -c %U / /etc'
  [ "$output" = $'daemon\ndaemon' ]
  [ "$(stat -c %u "$data/pyxis_x/.situla/upper")" = $first ]
  quietly as_alice env SITULA_CREATE=tree srun --container-remap-root --container-image=$image --container-name=y --container-writable \
    sh -c 'find / -xdev -exec chown -h daemon {} + 2>/dev/null; stat -c %U / /usr/bin'  # all but what is mounted there
  [[ $output == *$'daemon\ndaemon' ]]
  [ "$(stat -c %u "$data/pyxis_y")" = $first ]
  local name
  for name in x y; do
    quietly as_alice srun --container-name=$name stat -c %U /etc
    [ "$output" = daemon ]
    # Nobody but him is let in any more.
    root --container-name=$name --container-writable -- 'chmod 700 /; touch /srv/new && chown bin /srv/new && stat -c %U / /srv/new'
    [ "$output" = $'daemon\nbin' ]
    root --container-name=$name --container-save="$work/saved.sqsh" -- 'stat -c %U /srv/new'
    [[ $output == *$'\nbin' ]]
    unsquashfs -lln "$work/saved.sqsh" | grep -q ' 1/0 .*/etc$'
    quietly as_alice enroot start --root --rw pyxis_$name stat -c %U /srv/new
    [ "$output" = bin ]
    as_alice enroot list | grep -qx pyxis_$name
    as_alice enroot export -f -o "$work/exported.sqsh" pyxis_$name
    unsquashfs -lln "$work/exported.sqsh" | grep -q ' 1/0 .*/etc$'
    as_alice enroot remove -f pyxis_$name
    [ ! -e "$data/pyxis_$name" ]
  done
  rm -rf "$work"/*
  no_files_of_the_range
}

@test "what others own goes where root has put the data directory elsewhere" {
  as_alice mkdir -p "$data"
  mv "$data" "$data.aside"
  install -d -o alice -m 700 "$work/data" && ln -s "$work/data" "$data"
  as_alice srun -J killed --container-remap-root --container-image=$image --container-writable \
    sh -c "install -d -o daemon -m 700 /srv/a && exec su daemon -s /bin/sh -c 'touch /srv/a/b; exec sleep 4717'" 3>&- &
  wait_until 30 pgrep -f '^sleep 4717'
  [ -n "$(find "$work/data" -uid $first)" ]
  pkill -KILL -x situla-builder
  as_alice scancel -n killed
  wait
  wait_until 30 no_files_of_the_range
  # By hand as well.
  quietly as_alice srun --container-remap-root --container-image=$image --container-name=x --container-writable sh -c 'touch /a && chown daemon /a && stat -c %U /a'
  [ "$output" = daemon ]
  as_alice enroot remove -f pyxis_x
  no_files_of_the_range
}

# bats file_tags=

# bats test_tags=lab:kernel,lab:extract
@test "the owners of a saved image are right where the kernel mounts it, and where it is extracted" {
  package_saved
  installed --container-image="$work/saved.sqsh"
  installed --container-image="$work/saved.sqsh" --container-writable
  snapshot
  root --container-image="$work/saved.sqsh" --container-writable -- 'install -d -o ledger -m 700 /srv/a && touch /srv/a/b && chown -R ledger /srv/a'
  [ "$status" -eq 0 ]
  nothing_left
}

# bats test_tags=lab:scope
@test "the end of a job removes its containers, and what killed brokers left, by the site's rule as well" {
  rule "{ first = 1000000000, first_uid = $(id -u bob), users = 1 }"
  script='install -d -o daemon -m 700 /srv/a && su daemon -s /bin/sh -c "mkdir -m 700 /srv/a/b && touch /srv/a/b/c"'
  local user
  for user in alice bob; do
    run_and_show as $user salloc -Q -n1 --chdir=/ srun --container-remap-root --container-name=x --container-image=$image --container-writable sh -c "$script; stat -c %U /srv/a"
    [ "$status" -eq 0 ]
    [[ $output == *daemon* ]]
    wait_until 30 no_files_of_the_range
    # With everybody killed who would clean up, the epilog does.
    as $user srun -J killed --chdir=/ --container-remap-root --container-image=$image --container-writable sh -c "$script; exec su daemon -s /bin/sh -c 'exec sleep 4715'" 3>&- &
    wait_until 30 pgrep -f '^sleep 4715'
    [ -n "$(in_range)" ]
    pkill -KILL -x situla-broker
    pkill -KILL -x situla-builder || true
    scancel -n killed
    wait
    wait_until 30 no_files_of_the_range
  done
}
