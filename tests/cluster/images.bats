# lab: --user root --situla-conf tests/cluster/no_idle.toml
# The administrator's commands for the node's image store, on images that jobs have imported.
load helpers

setup_file() {
  runuser -u alice -- env HOME=/home/alice srun --container-image=registry.test/debian:12 true
  runuser -u bob -- env HOME=/home/bob srun --container-image=registry.test/debian:12 true
  runuser -u alice -- env HOME=/home/alice srun --container-image=registry.test/tiny true
}

@test "images: a table, and the same for programs" {
  run_and_show situla images
  [ "$status" -eq 0 ]
  [[ ${lines[0]} == REFERENCE*DIGEST*SIZE*"LAST USE"*USERS*STATE ]]
  [[ ${lines[1]} == "registry.test/tiny:latest "* ]]
  [[ ${lines[2]} =~ ^"registry.test/debian:12 "+[0-9a-f]{12}" "+[0-9.]+" MiB "+(now|[0-9]+" min ago")" "+2$ ]]
  run_and_show situla images --json
  jq -e 'length == 2 and (.[1] | .reference == "registry.test/debian:12" and (.users | length) == 2 and .in_use == false and .pinned == false and .bytes > 10000000)' <<<"$output"
}

# metric NAME: its number.
metric() { situla images --metrics | sed -n "s/^situla_$1 //p"; }

@test "metrics: what steps asked for, and what it spared" {
  # Three steps of setup_file: debian imported for alice, there for bob, and tiny imported. Counted beside the step, which does not wait for it.
  wait_until 30 eval '[ "$(metric image_misses_total)" -eq 2 ] && [ "$(metric image_hits_total)" -eq 1 ]'
  [ "$(metric saved_bytes_total)" -gt 10000000 ]
  [ "$(metric fetched_bytes_total)" -gt "$(metric saved_bytes_total)" ]
  [ "$(metric store_images)" -eq 2 ]
  [ "$(metric store_bytes)" -eq "$(situla images --json | jq 'map(.bytes) | add')" ]
  [ "$(metric store_free_bytes)" -lt "$(metric store_size_bytes)" ]
  failures=$(metric image_failures_total)
  run_and_show as_alice srun --container-image=registry.test/tiny:none true
  [ "$status" -ne 0 ]
  wait_until 30 eval '[ "$(metric image_failures_total)" -eq '"$((failures + 1))"' ]'
  # As Prometheus reads it: a help, a type and a number for each.
  situla images --metrics | awk '/^# HELP /{help[$3]++} /^# TYPE /{type[$3]++} /^situla_[a-z_]+ [0-9]+$/{number[$1]++}
    END {for (name in number) if (help[name] != 1 || type[name] != 1) exit 1; exit length(number) != 14}'
  run_and_show as_alice situla images --metrics
  [ "$status" -eq 1 ]
}

@test "only the administrator looks into the store" {
  run_and_show as_alice situla images
  [ "$status" -eq 1 ]
  [[ $output == *"the node's image store belongs to the user situla"*"hint: run it as root"* ]]
  # Nothing of it is done with root's rights.
  run_and_show strace -f -e trace=setresuid,openat -o "$BATS_TEST_TMPDIR/trace" situla images
  [ "$status" -eq 0 ]
  service=$(id -u situla)
  awk -v service="$service" '/setresuid/ && index($0, service) {dropped = 1} /var.lib.situla/ && !dropped {bad = 1} END {exit bad || !dropped}' "$BATS_TEST_TMPDIR/trace"
}

@test "an image in use stays; a pinned one as well; the others go" {
  as_alice srun --container-image=registry.test/tiny sleep 100 3>&- &
  wait_until 30 sh -c 'situla images | grep -q "tiny:latest.*in use"'
  run_and_show situla rm registry.test/tiny
  [ "$status" -eq 1 ]
  [[ $output == *"remove registry.test/tiny:latest: it is in use on this node [image-in-use]"* ]]
  scancel -u alice
  wait
  situla pin registry.test/tiny
  situla images | grep -q 'tiny:latest.*pinned'
  run_and_show situla prune --unused-for 0
  [ "$status" -eq 0 ]
  [[ $output == *"removed registry.test/debian:12 "*" freed, "*" left" ]]
  run_and_show situla rm registry.test/tiny
  [ "$status" -eq 1 ]
  [[ $output == *"remove registry.test/tiny:latest: it is pinned [image-in-use]"*"hint: situla pin --undo registry.test/tiny"* ]]
  situla pin --undo registry.test/tiny
  wait_until 30 situla rm registry.test/tiny
  [ "$(situla images | wc -l)" -eq 1 ]
  # The next step imports it again.
  run_and_show as_alice srun --container-image=registry.test/tiny true
  [ "$status" -eq 0 ]
  [[ $output == *"importing docker image"* ]]
}

@test "verify: what was imported is still what is there" {
  as_alice srun --container-image=registry.test/debian:12 sleep 300 3>&- &
  wait_until 30 sh -c 'situla images | grep -q debian:12'
  image=$(situla images --json | jq -r '.[] | select(.reference == "registry.test/debian:12").name')
  # Taken beside the step, before anybody asks.
  wait_until 30 test -e "/var/lib/situla/images/sha256/$image.sha256"
  [ "sha256:$(sha256sum <"/var/lib/situla/images/sha256/$image.sqsh" | cut -d' ' -f1)" = "$(cat "/var/lib/situla/images/sha256/$image.sha256")" ]
  as_alice scancel -u alice
  wait
  run_and_show situla verify registry.test/debian
  [ "$status" -eq 0 ]
  grep -qE '^ok: registry.test/debian:12 [0-9a-f]{12}, [0-9.]+ MiB$' <<<"$output"
  "$lab_tests/../support/damage" "/var/lib/situla/images/sha256/$image.sqsh" 100000
  run_and_show situla verify registry.test/debian
  [ "$status" -eq 1 ]
  [[ $output == *"damaged: registry.test/debian:12 "* ]]
  [[ $output == *"1 of 1 images do not hold what they held after their import"*"hint: 'situla rm' removes them"* ]]
  wait_until 30 situla rm registry.test/debian
}

@test "wrong words are answered" {
  run_and_show situla rm registry.test/nothing
  [ "$status" -eq 1 ]
  [[ $output == *"there is no image 'registry.test/nothing' in the store"*"hint: 'situla images' lists them"* ]]
  run_and_show situla prune --to much
  [ "$status" -eq 1 ]
  run_and_show situla pin
  [ "$status" -eq 1 ]
}
