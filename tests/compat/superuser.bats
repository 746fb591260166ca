# lab: --user root
# Root on a node: with a user namespace like everybody, or without one where it is allowed. COMPAT.md 4.
bats_require_minimum_version 1.5.0

setup_file() {
  cd "$HOME"
  enroot import -o image.sqsh docker://registry.test#debian:12
}

maps='cat /proc/self/uid_map | tr -s " "; id -u; touch /x 2>/dev/null || echo ro'

@test "root gets a user namespace of one id" {
  run --separate-stderr enroot start "$HOME/image.sqsh" sh -c "$maps"
  echo "$output" "$stderr"
  [ "${lines[0]}" = " 0 0 1" ]
  [ "${lines[1]}" = 0 ]
  [ "${lines[2]}" = ro ]
}

@test "ENROOT_ALLOW_SUPERUSER: none, and root's rights are those of the node" {
  export ENROOT_ALLOW_SUPERUSER=yes
  run --separate-stderr enroot start "$HOME/image.sqsh" sh -c "$maps; chown 1:1 /tmp && stat -c %u /tmp; exit 3"
  echo "$output" "$stderr"
  [ "$status" -eq 3 ]
  [ "${lines[0]}" = " 0 0 4294967295" ]
  [ "${lines[1]}" = 0 ]
  [ "${lines[2]}" = ro ]
  [ "${lines[3]}" = 1 ]
}

@test "ENROOT_ALLOW_SUPERUSER gives an ordinary user no rights" {
  install -o alice "$HOME/image.sqsh" /shared/image.sqsh
  run --separate-stderr runuser -u alice -- env HOME=/home/alice USER=alice ENROOT_ALLOW_SUPERUSER=yes enroot start /shared/image.sqsh sh -c "$maps"
  echo "$output" "$stderr"
  [ "${lines[0]}" = " $(id -u alice) $(id -u alice) 1" ]
}
