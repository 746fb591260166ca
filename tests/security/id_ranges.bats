# lab: --user root
# A range of ids makes its user root over files of his own and of his range, and over nothing else. Alice and bob have
# ranges side by side.
load ../cluster/helpers

image=registry.test/debian:12

setup_file() {
  for file in /etc/subuid /etc/subgid; do printf '%s\n' alice:300000:65536 bob:365536:65536 >"$file"; done
}

setup() {
  shared=$(mktemp -d /scratch/shared.XXXXXX)
  chmod 1777 "$shared"
  as bob srun --chdir=/ --container-remap-root --container-image=$image --container-mounts="$shared:/shared" sh -c '
    mkdir -m 700 /shared/bobs && echo secret >/shared/bobs/file && chown -R daemon:daemon /shared/bobs
    echo secret >/shared/first && chmod 600 /shared/first && chown 1:1 /shared/first
    echo secret >/shared/last && chmod 600 /shared/last && chown 65535:65535 /shared/last'
  echo secret >"$shared/roots" && chmod 600 "$shared/roots"
}

teardown() {
  as_alice scancel -u alice -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
  as_alice enroot remove -f pyxis_forged 2>/dev/null || true
  rm -rf "$shared"
}

# alice OPTION... -- SCRIPT: as root of a container that sees the shared directory.
alice() {
  local options=()
  while [ "$1" != -- ]; do options+=("$1") && shift; done
  run_and_show as_alice srun --chdir=/ --container-remap-root --container-image=$image --container-mounts="$shared:/shared" "${options[@]}" sh -c "$2"
}

# before: there were no ranges
@test "root of one range reaches no file of another, of root, or of the range beside" {
  [ "$(stat -c %u "$shared/first" "$shared/last" "$shared/bobs" | paste -sd' ')" = '365536 431070 365536' ]
  alice -- '
    for file in first last roots bobs/file; do cat /shared/$file; chmod 666 /shared/$file; chown 0:0 /shared/$file; rm -rf /shared/$file; done
    chown -R root /shared/bobs; mv /shared/bobs /shared/mine; true'
  [ "$status" -eq 0 ]
  if grep -q secret <<<"$output"; then false; fi
  for file in first last roots bobs/file; do [ "$(cat "$shared/$file")" = secret ]; done
  [ "$(stat -c %u:%a "$shared/first" "$shared/last" "$shared/roots" "$shared/bobs" | paste -sd' ')" = '365536:600 431070:600 0:600 365536:700' ]
  # No number becomes one of them, whoever one has become.
  alice -- '
    touch /tmp/own
    for id in 300000 365536 431071 65536 4294967294 100000; do
      chown $id /tmp/own 2>/dev/null && echo "given to $id"
      setpriv --reuid $id --clear-groups id -u 2>/dev/null && echo "became $id"
    done
    for id in 1 65535; do
      setpriv --reuid $id --regid $id --clear-groups sh -c "id -u; cat /shared/first /shared/last /shared/bobs/file"
    done; true'
  grep -qx 1 <<<"$output"
  grep -qx 65535 <<<"$output"
  if grep -q -e secret -e given -e became <<<"$output"; then false; fi
}

# before: there were no ranges
@test "a range that a user writes down for his container is not given to him" {
  as_alice srun --chdir=/ --container-remap-root --container-name=forged --container-image=$image --container-writable true
  local file=/home/alice/.local/share/enroot/pyxis_forged/.situla-range forged
  [ "$(cat $file)" = '300000 300000' ]
  for forged in '365536 365536' '0 0' '300000 365536' '1 1' 'x' '300000 300000 300000' '4294967295 4294967295'; do
    as_alice sh -c "echo '$forged' >$file"
    run_and_show as_alice srun --chdir=/ --container-remap-root --container-name=forged --container-mounts="$shared:/shared" sh -c 'cat /proc/self/uid_map /shared/first'
    [ "$status" -ne 0 ]
    if grep -q -e secret -e ' 365536 *65535' <<<"$output"; then false; fi
    run_and_show as_alice enroot start --root --mount "$shared:/shared" pyxis_forged sh -c 'cat /proc/self/uid_map /shared/first'
    [ "$status" -ne 0 ]
    if grep -q -e secret -e ' 365536 *65535' <<<"$output"; then false; fi
  done
  as_alice ln -sfn /etc/subuid $file
  run_and_show as_alice srun --chdir=/ --container-remap-root --container-name=forged true
  [ "$status" -ne 0 ]
  as_alice sh -c "rm $file && echo '300000 300000' >$file"
  as_alice srun --chdir=/ --container-remap-root --container-name=forged true
  as_alice enroot start --root pyxis_forged sh -c 'grep -q " 300000 *65535" /proc/self/uid_map'
}

# before: there were no ranges
@test "files that others than root can write give nobody a range" {
  local file spoiled
  for file in /etc/subuid /etc/subgid; do
    for spoiled in "chmod 666 $file" "chown alice $file"; do
      $spoiled
      alice -- 'cat /proc/self/setgroups'
      chown root $file && chmod 644 $file
      grep -qx deny <<<"$output"
    done
  done
  alice -- 'cat /proc/self/setgroups'
  grep -qx allow <<<"$output"
}

# before: there were no ranges
@test "who became another user in a container is nobody to the node: no traces, no signals, no door to the step" {
  sleep 4731 3>&- &
  local of_root=$!
  as_alice srun --chdir=/ -J other --overlap --container-image=$image sleep 4732 3>&- &
  wait_until 30 asleep 4732
  local hers
  hers=$(asleep 4732 | head -n 1)
  alice --overlap -- "
    su daemon -s /bin/sh -c 'id -un; kill -9 $of_root; kill -9 $hers; tr \"\\0\" \"\\n\" </proc/$hers/environ'
    kill -9 $of_root; tr '\\0' '\\n' </proc/$of_root/environ
    squeue -h -o job-%i && su daemon -s /bin/sh -c \"\$(command -v squeue) -h -o its-%i\"; true"
  [ "$status" -eq 0 ]
  kill -0 "$of_root"
  kill -0 "$hers"
  grep -qx daemon <<<"$output"
  if grep -q -e ^PATH= -e ^SLURM_ <<<"$output"; then false; fi
  grep -q job- <<<"$output"
  if grep -q its- <<<"$output"; then false; fi
  kill "$of_root"
}
