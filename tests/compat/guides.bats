# lab: --nodes 2 --user root --with ngc --with ubuntu --gpus 4 --nvidia --gpus=4 --nvidia --devices=real --situla-conf tests/cluster/gpu.toml
# The guides, command by command as they are printed, in a cluster whose registries have the names that people know. What a guide shows as
# output was printed; what it says of this tree is so.

. "$BATS_TEST_DIRNAME/../guides/lab.bash"
repository=$BATS_TEST_DIRNAME/../..
guides=$repository/packaging/guides
blocks=$repository/tests/guides/blocks

setup_file() {
  guide_cluster
}

teardown_file() {
  guide_end
}

# Whom a guide's roles are in the lab. Each starts where such a person starts. PMIX_MCA_gds: tests/cluster/mpi.bats.
as_user() { (cd "/home/alice/${guide-}" && runuser -u alice -- env PMIX_MCA_gds=hash HOME=/home/alice USER=alice LOGNAME=alice "PATH=/shared/bin:$PATH" "$@"); }
as_node() { (cd /root && "$@"); }

# follow NAME: all of a guide that users and a node's root type.
follow() {
  export guide=$1
  install -d -o alice -g alice "/home/alice/$guide"
  "$blocks" user+node "$guides/$guide.md" >"$BATS_TEST_TMPDIR/script"
  export -f as_user as_node
  local status=0
  chmod 755 "$BATS_RUN_TMPDIR" "$BATS_SUITE_TMPDIR" "$BATS_FILE_TMPDIR" "${BATS_TEST_TMPDIR%/*}" "$BATS_TEST_TMPDIR"
  timeout 900 bash "$BATS_TEST_TMPDIR/script" >"$BATS_TEST_TMPDIR/output" 2>&1 </dev/null || status=$?
  [ "$status" -eq 0 ] || { tail -n 60 "$BATS_TEST_TMPDIR/output"; return 1; }
  "$blocks" --shown user+node "$guides/$guide.md" "$BATS_TEST_TMPDIR/output" || { cat "$BATS_TEST_TMPDIR/output"; return 1; }
}

@test "every block of a guide has a role, so that some test runs it" {
  "$blocks" --check "$guides"/*.md "$repository/README.md"
}

@test "blocks that no test would run are found" {
  printf '%s\n' '```sh' 'true' '```' '```sh nobody' 'true' '```' '```text user' 'x' '```' '```toml user' 'x = 1' '```' '' '    srun true' >"$BATS_TEST_TMPDIR/bad.md"
  run "$blocks" --check "$BATS_TEST_TMPDIR/bad.md"
  [ "$status" -eq 1 ]
  [ "${#lines[@]}" -eq 5 ]
  printf '%s\n' '```sh user fails' 'true' '```' >"$BATS_TEST_TMPDIR/bad.md"
  run bash <("$blocks" user "$BATS_TEST_TMPDIR/bad.md")
  [ "$status" -eq 1 ]
  printf '%s\n' '```sh user' 'echo one' '```' '```text' 'one' 'two' '```' >"$BATS_TEST_TMPDIR/bad.md"
  bash <("$blocks" user "$BATS_TEST_TMPDIR/bad.md") >"$BATS_TEST_TMPDIR/output"
  run "$blocks" --shown user "$BATS_TEST_TMPDIR/bad.md" "$BATS_TEST_TMPDIR/output"
  [ "$status" -eq 1 ]
  [ "${#lines[@]}" -eq 1 ]
}

@test "the guide for users" {
  follow user
  [ "$(grep -o 'rank [0-7] of 8: 8 answered' "$BATS_TEST_TMPDIR/output" | sort | uniq -c | grep -c ' 2 ')" -eq 8 ]
  [ "$(grep -c 'ring ok' "$BATS_TEST_TMPDIR/output")" -eq 8 ]
}

@test "the guide to hooks" {
  follow hooks
}

# After the others: it changes the cluster's configuration.
@test "the guide for administrators" {
  follow admin
  if grep 'mirror not used' "$BATS_TEST_TMPDIR/output"; then false; fi
}

@test "what that guide removes are images that no job asked for in a month, and nothing else" {
  local store=/var/lib/situla/images/sha256
  as_user srun -w node1 --container-image=ubuntu:24.04 true
  [ "$(find "$store" -name '*.json' | wc -l)" -ge 1 ]
  touch -d '40 days ago' "$store"/*.json
  # Asked for again: that one stays.
  as_user srun -w node1 --container-image=ubuntu:24.04 true
  [ "$(find "$store" -name '*.json' -mtime -1 | wc -l)" -eq 1 ]
  situla prune --unused-for 30
  [ "$(find "$store" -name '*.json' | wc -l)" -eq 1 ]
  [ "$(find "$store" -name '*.sqsh' | wc -l)" -eq 1 ]
  as_user srun -w node1 --container-image=ubuntu:24.04 true
}

@test "the other guides" {
  local file followed=0
  for file in "$guides"/*.md; do
    case ${file##*/} in user.md | hooks.md | admin.md) continue ;; esac
    # The commands of the others are packagers' and of bare machines: guide_code.bats, tests/packages.
    grep -qE '^```[a-z]+ (user|node)' "$file" || continue
    follow "$(basename "$file" .md)"
    followed=$((followed + 1))
  done
  [ "$followed" -gt 0 ]
}

@test "messages that the guides explain are those that there are" {
  "$repository/tests/guides/messages" "$guides/user.md" "$guides/admin.md"
  # It notices what nobody says.
  printf '| message | |\n|---|---|\n| `this message is made up` | |\n' >"$BATS_TEST_TMPDIR/made_up.md"
  run "$repository/tests/guides/messages" "$BATS_TEST_TMPDIR/made_up.md"
  [ "$status" -eq 1 ]
}
