# lab: --user root
# Four workers import forty images, two hundred times, into room for five, and again and again one of the processes that work for them is
# killed. The store keeps to its size, loses nothing that is in use, and holds what was imported.
load helpers

# Of this lab alone: its processes are found by it.
store=/var/tmp/stress.$(cat "$SITULA_LAB/pid")

setup_file() {
  install -d -o situla -m 700 "$store"
  printf '%s\n' "store_path=\"$store\"" image_mount_idle=0 bytes_per_user=0 store_reserve=0 >/etc/situla/situla.toml
  work=$(mktemp -d /tmp/situla-test.XXXXXX)
  chmod 777 "$work"
  export work
}

teardown_file() {
  scancel -u alice
  scancel -u bob
  rm -rf "$store" "$work" /etc/situla/situla.toml
}

# Bytes of all images that have a name.
stored() { find "$store/images" -name '*.sqsh' -printf '%s\n' 2>/dev/null | awk '{sum += $1} END {print sum + 0}'; }

# Until $work/done is there: the largest size of the store that was seen.
watch_size() {
  local most=0 now
  until [ -e "$work/done" ]; do
    now=$(stored)
    [ "$now" -le "$most" ] || most=$now
    echo "$most" >"$work/most"
    sleep 0.05
  done
}

# Until then, many times a second: a store program, what it works with, or the broker above them.
kill_some() {
  local program broker stat words
  RANDOM=16
  until [ -e "$work/done" ]; do
    sleep 0.0$((RANDOM % 10))
    program=$(pgrep -o -f "situla-store --store $store " || true)
    [ -n "$program" ] || continue
    # It may have ended since, and its number be another process's, of another lab.
    { read -r stat <"/proc/$program/stat" && mapfile -d '' -t words <"/proc/$program/cmdline"; } 2>/dev/null || continue
    [[ "${words[*]}" = *"situla-store --store $store "* ]] || continue
    # shellcheck disable=SC2086 # behind the name: state, parent, ...
    set -- ${stat##*) }
    broker=$2
    [ "$broker" -gt 1 ] || continue
    case $((RANDOM % 3)) in
      0) kill -9 "$program" ;;
      1) pkill -9 -P "$broker" -x situla-importer ;;
      2) kill -9 "$broker" ;;
    esac 2>/dev/null && echo killed >>"$work/killed"
  done || true
}

@test "two hundred imports with kills: the size, what is in use, and every byte" {
  as_alice srun --container-image=fault.test/moody-0 true
  size=$(stored)
  [ "$size" -gt 100000 ]
  echo "store_max=$((5 * size + size / 2))" >>/etc/situla/situla.toml
  mkfifo "$work/hold"
  as_alice srun --container-image=fault.test/moody-0 sh -c 'echo ready; cat; md5sum /bin/busybox' <"$work/hold" >"$work/held" 2>&1 3>&- &
  holder=$!
  exec 8>"$work/hold"
  wait_until 30 grep -qx ready "$work/held"

  cat >"$work/worker" <<'WORKER'
#!/bin/bash
RANDOM=$1
for ((i = 0; i < 50; ++i)); do
  srun --overlap --container-image="fault.test/moody-$((1 + RANDOM % 40))" true >"$2/out.$1.$i" 2>&1 && rm "$2/out.$1.$i"
done
true
WORKER
  chmod 755 "$work/worker"
  watch_size 3>&- &
  watcher=$!
  kill_some 3>&- &
  killer=$!
  workers=()
  for number in 1 2 3 4; do
    as "$([ $((number % 2)) -eq 0 ] && echo alice || echo bob)" salloc -Q -n1 "$work/worker" $number "$work" >"$work/worker.$number" 2>&1 3>&- &
    workers+=($!)
  done
  wait "${workers[@]}"
  touch "$work/done"
  wait $watcher $killer

  kills=$(grep -c . "$work/killed")
  # Those that found no room, while four others and this one were in use; they say so, with numbers.
  full=$(grep -l 'all images in the store take .* with this one, and may take ' "$work"/out.* | wc -l)
  failed=$(find "$work" -name 'out.*' | wc -l)
  echo "$kills kills; of 200 imports $failed failed, $full of them for want of room; largest size $(cat "$work/most") of $((5 * size + size / 2)), in $SECONDS s"
  # On a loaded machine most have ended by the time they are found.
  [ "$kills" -ge 5 ]
  [ "$full" -le 20 ]
  # A kill ends one step, the broker's all of them that share its image.
  [ "$failed" -le $((full + kills)) ]
  [ "$(cat "$work/most")" -le $((5 * size + size / 2)) ]

  # Who has used its image all the time has it, and so has the store.
  [ "$(situla images | grep -c 'moody-0:latest.*in use')" -eq 1 ]
  exec 8>&-
  wait $holder
  grep -q ' /bin/busybox$' "$work/held"
  run_and_show situla verify
  [ "$status" -eq 0 ]
  [[ $output != *damaged* ]]
  # And by another reader: all of these images have the same files, but for the name of the image in /etc/rc.
  for image in "$store"/images/sha256/*.sqsh; do
    unsquashfs -d "$BATS_TEST_TMPDIR/tree" -n -q "$image" >/dev/null
    (cd "$BATS_TEST_TMPDIR/tree" && find . -type f -not -path ./etc/rc -exec sha256sum {} + | sort | sha256sum)
    rm -rf "$BATS_TEST_TMPDIR/tree"
  done >"$BATS_TEST_TMPDIR/contents"
  [ "$(wc -l <"$BATS_TEST_TMPDIR/contents")" -ge 2 ]
  [ "$(sort -u "$BATS_TEST_TMPDIR/contents" | wc -l)" -eq 1 ]
  # Nothing but images, their records and checksums, and of the dead what the sweeper finds.
  runuser -u situla -- "$SITULA_LAB_PREFIX/libexec/situla/situla-store" --store "$store" --sweep
  [ -z "$(find "$store/leases" "$store/slots" -type f)" ]
  run find "$store/images" -type f -not -name '*.sqsh' -not -name '*.json' -not -name '*.sha256' -not -name '.*'
  [ -z "$output" ]
}
