# lab: --user root
# What may a user do in a container with the files of his groups? What he may do outside. Two users: alice is in crew,
# harvest and press, bob in harvest and in more than the kernel can map.
load helpers

# Before Slurm asks for the groups of one of them the first time.
setup_file() { seq 1 500 | awk '{ printf "many%d:x:%d:bob\n", $1, 2000000000 + 2 * $1 }' >>/etc/group; }

setup() {
  project=/scratch/project
  rm -rf "$project"
  install -d -m 2770 -g harvest "$project"
  install -d -m 2770 -g crew "$project/crew"
  image=registry.test/debian:12
}

teardown() {
  as_alice scancel -u alice 2>/dev/null || true
  as bob scancel -u bob 2>/dev/null || true
  rm -rf "$project"
}

# inside USER OPTION... -- SCRIPT; $lines are what it prints.
inside() {
  local user=$1 options=()
  shift
  while [ "$1" != -- ]; do options+=("$1") && shift; done
  run --separate-stderr as "$user" srun --chdir=/ --container-image="$image" --container-mounts="$project:/project" "${options[@]}" sh -c "$2"
  printf '%s\n' "status=$status" "$output" "$stderr"
}

owner() { stat -c %U:%G "$1"; }

@test "a directory of a group is worked in by its members, from their containers" {
  inside alice -- 'id -Gn && cd /project && echo one >first && mkdir deep && stat -c %U:%G first deep'
  [ "$status" -eq 0 ]
  [ "$(tr ' ' '\n' <<<"${lines[0]}" | sort | paste -sd' ')" = 'alice crew harvest press' ]
  [ "${lines[1]}" = alice:harvest ]
  [ "${lines[2]}" = alice:harvest ]
  [ "$(owner "$project/first")" = alice:harvest ]
  [ "$(stat -c %a "$project/deep")" = "2755" ]
  inside bob -- 'cat /project/first && echo two >/project/second && stat -c %U:%G /project/second && ls /project/crew 2>&1'
  [ "$status" -ne 0 ]
  [[ "$output" == *one* ]]
  [[ "$output" == *bob:harvest* ]]
  [[ "$output" == *'/project/crew'*'Permission denied'* ]]
}

@test "chgrp and setgid directories, as oneself and as root of the container" {
  local option
  for option in --no-container-remap-root --container-remap-root; do
    inside alice "$option" -- 'cd /project && touch given && chgrp press given && mkdir -p ours && chgrp crew ours && chmod 2770 ours && touch ours/x && stat -c %G given ours ours/x && ls -l given'
    [ "$status" -eq 0 ]
    [ "${lines[0]} ${lines[1]} ${lines[2]}" = 'press crew crew' ]
    [ "$(owner "$project/given")" = alice:press ]
    [ "$(owner "$project/ours/x")" = alice:crew ]
    [ "$(stat -c %a "$project/ours")" = 2770 ]
    rm -rf "$project/given" "$project/ours"
  done
}

@test "what package managers do is pretended as before, and no other group can be had" {
  inside alice --container-remap-root --container-writable -- 'touch /project/mine && chown daemon:daemon /project/mine && chgrp bin /project/mine && chown root:adm /project/mine && stat -c %G /project/mine'
  [ "$status" -eq 0 ]
  [ "$(owner "$project/mine")" = alice:harvest ]
  inside alice -- 'perl -e "\$) = q(60802 60802); open F, q(/proc/self/status); print grep /^(Groups|Gid)/, <F>"; cat /proc/self/setgroups'
  [ "$status" -eq 0 ]
  [[ "$output" == *Groups:*60810*deny* ]]
  if grep -E '^(Groups|Gid).*60802' <<<"$output"; then false; fi
}

@test "an image with its own idea of a group's number or name keeps it" {
  inside alice -- 'grep -c "^crew:" /etc/group; getent group crew harvest | cut -d: -f1,3; getent group adm'
  [ "$status" -eq 0 ]
  [ "${lines[0]}" = 1 ]
  [ "${lines[1]}" = "crew:60810" ]
  [ "${lines[2]}" = "harvest:60811" ]
  [ "${lines[3]}" = adm:x:4: ]
}

@test "an interactive bash has nothing to say of groups without a name" {
  inside alice -- 'groups 2>&1'
  [ "$status" -eq 0 ]
  if grep -q 'cannot find name' <<<"$output"; then false; fi
}

@test "who is in more groups than the kernel maps is told so" {
  inside bob -- 'id -G | wc -w'
  [ "$status" -eq 0 ]
  [[ "$stderr" =~ ([0-9]+)\ of\ your\ 502\ groups\ are\ not\ seen\ in\ the\ container ]]
  [ "${BASH_REMATCH[1]}" -gt 100 ]
  [ "$((BASH_REMATCH[1] + output))" -ge 502 ]
}

# started SUBGID: the groups that a container has which alice starts herself.
started() {
  cp /etc/subgid "$BATS_TEST_TMPDIR/subgid" 2>/dev/null || : >"$BATS_TEST_TMPDIR/subgid"
  echo "$1" >>/etc/subgid
  run_and_show as_alice enroot start --mount "$project:/project" debian-of-groups sh -c 'id -Gn; id -gn; touch /project/started && chgrp crew /project/started 2>&1'
  cat "$BATS_TEST_TMPDIR/subgid" >/etc/subgid
}

@test "start without root: the groups that /etc/subgid lets the user map" {
  as_alice enroot import -o /scratch/alice/groups.sqsh docker://registry.test/debian:12
  as_alice enroot create -f -n debian-of-groups /scratch/alice/groups.sqsh
  started 'alice:60810:2'
  [ "$status" -eq 0 ]
  [[ "$output" == *crew* ]]
  [[ "$output" == *harvest* ]]
  if grep -qw press <<<"$output"; then false; fi
  [ "$(owner "$project/started")" = alice:crew ]
  rm -f "$project/started"
  # Of somebody else, or none: as ever.
  started 'bob:60810:2'
  [[ "$output" == *"chgrp: invalid group: 'crew'"* ]]
  [ "$(owner "$project/started")" = alice:harvest ]
  grep -qx 'alice nogroup' <<<"$output"
  as_alice enroot remove -f debian-of-groups
  rm -f /scratch/alice/groups.sqsh
}
