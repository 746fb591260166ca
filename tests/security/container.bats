# lab: --user root --situla-conf tests/cluster/user_images.toml
# What a job user may try, inside and beside a running container. Nothing may be gained; where it can be shown, the same attempt is
# made where it does succeed, so that the test can fail.
load ../cluster/helpers

setup_file() {
  attack="$BATS_TEST_DIRNAME/../../build/release/tests/cluster/attack"
  install -m 755 "$attack" /shared/attack
  # An image of a user with planted device nodes and set-id files, which the administrator lets the kernel mount.
  local root="$BATS_FILE_TMPDIR/planted"
  mkdir -p "$root"/{bin,etc,proc,sys,dev,tmp,run,var,opt}
  cp /bin/busybox "$root/bin/busybox"
  ln -s busybox "$root/bin/sh"
  ln -s busybox "$root/bin/id"
  install -m 4755 /bin/busybox "$root/opt/busybox"
  mksquashfs "$root" /home/alice/planted.sqsh -quiet -no-progress -all-root -p 'opt/zero c 666 0 0 1 5' -p 'opt/disk b 666 0 0 7 0' >/dev/null
  chown alice: /home/alice/planted.sqsh
}

teardown() { as_alice scancel -u alice -s KILL 2>/dev/null || true; }

start_container() {
  as_alice srun "$@" sh -c 'echo started $$; exec sleep 100' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 30 grep -q started "$BATS_TEST_TMPDIR/out"
  task=$(sed -n 's/^started //p' "$BATS_TEST_TMPDIR/out")
}

@test "the root file system of a read-only container is sealed against its own user" {
  run_and_show as_alice srun --container-mounts=/shared:/shared --container-image=registry.test/tiny /shared/attack device /dev/zero
  # The control: a node of the host's /dev is readable, so the program does detect a readable device.
  [ "$status" -eq 1 ]
  run_and_show as_alice srun --container-mounts=/shared:/shared --container-image=/home/alice/planted.sqsh /shared/attack device /opt/zero
  [ "$status" -eq 0 ]
  run_and_show as_alice srun --container-mounts=/shared:/shared --container-image=/home/alice/planted.sqsh /shared/attack device /opt/disk
  [ "$status" -eq 0 ]
  run_and_show as_alice srun --container-remap-root --container-mounts=/shared:/shared --container-image=/home/alice/planted.sqsh /shared/attack device /opt/zero
  [ "$status" -eq 0 ]
}

@test "a set-user-ID file of an image gives no rights" {
  run_and_show as_alice srun --container-image=/home/alice/planted.sqsh /opt/busybox id -u
  [ "${lines[-1]}" = "$(id -u alice)" ]
}

@test "the image mount cannot be seen from inside" {
  run_and_show as_alice srun --container-image=registry.test/tiny sh -c 'grep squashfs /proc/self/mountinfo; ls -d /run/situla/root/image'
  [ "$status" -ne 0 ]
  if grep -q 'squashfs' <<<"$output"; then false; fi
}

@test "joining the container's namespaces from outside gives no access to the image mount" {
  start_container --container-image=registry.test/tiny
  run_and_show as_alice nsenter -t "$task" --user --mount --preserve-credentials sh -c 'grep -c squashfs /proc/self/mountinfo'
  [ "${lines[-1]}" = 0 ]
  # The node-wide mount is in a directory that only root may enter, and not in any namespace that the user may change.
  run_and_show as_alice ls /run/situla/images
  [ "$status" -ne 0 ]
  run_and_show as_alice unshare --user --map-root-user --mount sh -c 'ls /run/situla/images/*'
  [ "$status" -ne 0 ]
}

@test "a plain user namespace beside the container cannot touch the node's image mount" {
  start_container --container-image=registry.test/tiny
  local image
  image=$(find /run/situla/images -mindepth 1 -maxdepth 1 -type d | head -n 1)
  [ -n "$image" ]
  chmod 711 /run/situla/images
  chmod 711 "$image" 2>/dev/null || true
  run_and_show as_alice unshare --user --map-root-user --mount /shared/attack mount "$image"
  chmod 700 /run/situla/images
  [ "$status" -eq 0 ]
  grep -q '^refused clear ro by mount_setattr: Operation not permitted' <<<"$output"
}

@test "control: the same attempts succeed on a mount that the user made" {
  run_and_show as_alice unshare --user --map-root-user --mount sh -c '
    mkdir -p /tmp/own && mount -t tmpfs -o ro,nosuid,nodev own /tmp/own && /shared/attack mount /tmp/own'
  [ "$status" -eq 1 ]
  grep -q '^gained clear nodev by mount_setattr' <<<"$output"
  grep -q '^gained unmount' <<<"$output"
}

# catch_builder SRUN-ARGUMENT...: one step, whose builder is caught if that can be done; what was tried is in $attack.
catch_builder() {
  local attacker result=0
  attack=$BATS_TEST_TMPDIR/attack
  as_alice /shared/attack builder 10 >"$attack" 2>&1 3>&- &
  attacker=$!
  as_alice timeout 30 srun "$@" true >/dev/null 2>&1 || true
  wait $attacker || result=$?
  cat "$attack"
  [ "$result" -ne 1 ]
}

@test "ptrace of the builder gains nothing" {
  local before=0 round
  for round in $(seq 200); do  # it is there for a millisecond
    catch_builder --container-image=registry.test/tiny
    grep -q 'before its user namespace' "$attack" && before=$((before + 1))
    [ "$before" -ge 2 ] && break
  done
  [ "$before" -ge 1 ]
}

# Of a named container the image is mounted in the namespace of its builder, too, by root.
@test "ptrace of a named container's builder gains nothing" {
  local mounted=0 round
  as_alice srun --container-name=held --container-image=registry.test/tiny true
  for round in $(seq 100); do
    catch_builder --container-name=held --container-writable
    # "No such file or directory" came too early to mean anything.
    grep -q "^refused puppet: clear the image's flags: Operation not permitted" "$attack" && mounted=$((mounted + 1))
    [ "$mounted" -ge 2 ] && break
  done
  as_alice enroot remove -f pyxis_held
  [ "$mounted" -ge 1 ]
}

@test "the broker answers nobody but the step's tasks" {
  start_container --container-image=registry.test/tiny
  local address user door
  # Not that of Slurm's commands, which says first who it is: slurm_inside.bats.
  door=$(tr '\0' '\n' <"/proc/$task/environ" | sed -n 's/^SITULA_SLURM_INSIDE=@\(.*\):.*/\1/p')
  [ -n "$door" ]
  address=$(awk -v door="@$door" '$8 ~ /^@/ && $8 != door && $6 == "01" && $5 == "0005" {print substr($8, 2)}' /proc/net/unix | tail -n 1)
  [ -n "$address" ]
  for user in alice bob root; do
    run_and_show as "$user" /shared/attack broker "$address"
    [ "$status" -eq 0 ]
    [ "$(grep -c '^refused get an answer' <<<"$output")" -eq 5 ]
  done
  # It still serves: the step is alive and ends well.
  as_alice scancel -u alice
  wait_until 30 sh -c '! pgrep -x situla-broker'
}

@test "a crowd of strangers does not keep a task out" {
  # Fifty rounds of garbage from another user and from the same one, while a step starts.
  local user noise=()
  for user in alice bob; do
    as "$user" timeout 8 sh -c 'for round in $(seq 50); do
      for a in $(awk "\$8 ~ /^@/ && \$5 == \"0005\" {print substr(\$8, 2)}" /proc/net/unix); do /shared/attack broker "$a"; done; done' >/dev/null 2>&1 3>&- &
    noise+=($!)
  done
  run_and_show as_alice timeout 60 srun -n8 --container-image=registry.test/tiny true
  [ "$status" -eq 0 ]
  wait "${noise[@]}" || true
}

@test "no file descriptor of the broker or of the image mount reaches a task" {
  run_and_show as_alice srun --container-image=registry.test/tiny sh -c 'ls -l /proc/self/fd | grep -v -e "pipe:" -e "/proc" -e total; true'
  if grep -E 'socket|squashfs|memfd|loop' <<<"$output"; then false; fi
}

@test "the importer runs as an account of its own without capabilities" {
  as_alice srun --container-image=fault.test/slow true >/dev/null 2>&1 3>&- &
  wait_until 30 pgrep -x situla-importer
  local importer
  importer=$(pgrep -x situla-importer)
  [ "$(stat -c %U "/proc/$importer")" != alice ]
  grep -q "^Uid:"$'\t'"$(id -u situla-import)" "/proc/$importer/status"
  grep -q "^CapEff:"$'\t'"0000000000000000" "/proc/$importer/status"
  grep -q "^CapBnd:"$'\t'"0000000000000000" "/proc/$importer/status"
  grep -q "^NoNewPrivs:"$'\t'"1" "/proc/$importer/status"
  # Neither its memory nor its command line tells the user's secrets to others.
  if tr '\0' ' ' <"/proc/$importer/cmdline" | grep -q secret; then false; fi
  run as bob cat "/proc/$importer/environ"
  [ "$status" -ne 0 ]
}

@test "an image that one user may pull is not given to another" {
  run_and_show as_alice srun --container-image=auth.test/tiny true
  [ "$status" -eq 0 ]
  run_and_show as bob srun --container-image=auth.test/tiny true
  [ "$status" -ne 0 ]
  local digest
  digest=$(basename "$(find /var/lib/situla/images/sha256 -name '*.sqsh' | head -n 1)" .sqsh)
  run_and_show as bob srun --container-image="auth.test/tiny@sha256:${digest%%.*}" true
  [ "$status" -ne 0 ]
}
