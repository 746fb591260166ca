# lab: --user root
# On a kernel that cannot id-map squashfs (before Linux 6.2) images are the job user's own by a view: a file that shares its blocks with the
# image. Here the better way is switched off. The third one needs a kernel with device-mapper.
load helpers

log=$SITULA_LAB/logs/slurmd.node1.log

setup_file() {
  truncate -s 600M /var/tmp/views.xfs
  mkfs.xfs -q /var/tmp/views.xfs
  mkdir -p /var/tmp/views
  mount -o loop /var/tmp/views.xfs /var/tmp/views
  install -d -o situla -m 700 /var/tmp/views/store
}

teardown_file() {
  rm -f /etc/situla/situla.toml /run/situla/images/no-id-map
  umount -l /var/tmp/views
}

setup() { site image_owner=\"reflink\" image_mount_idle=0; }

# site KEY=VALUE...: for this test; the store is on XFS.
site() { printf '%s\n' 'store_path="/var/tmp/views/store"' "$@" >/etc/situla/situla.toml; }

# The administrator's line of the last step.
way() { grep -o 'mount=[a-z]*' "$log" | tail -n 1; }

views() { find /run/situla/images -maxdepth 1 -name '*.v[0-9]*' -type d | wc -l; }

# Block devices of files in this store, wherever a namespace keeps them.
devices() { losetup -n -O BACK-FILE | grep -c /var/tmp/views/store/ || true; }

@test "files are the user's own: owner and group, read-only, writable, as root, in a container with a name" {
  own="$(id -u alice):$(id -g alice)"
  run_and_show as_alice srun --container-image=registry.test/tiny stat -c %u:%g /bin/busybox /etc/passwd /
  [ "$status" -eq 0 ]
  [ "$(grep -cx "$own" <<<"$output")" -eq 3 ]
  [ "$(way)" = mount=reflink ]
  run_and_show as_alice srun --container-remap-root --container-image=registry.test/tiny sh -c 'id -u; stat -c %u:%g /bin/busybox'
  [ "$(grep -cx 0:0 <<<"$output")" -eq 1 ]
  # shellcheck disable=SC2016
  run_and_show as_alice srun --container-writable --container-image=registry.test/debian:12 \
    sh -c 'rm /etc/issue && echo new >/etc/motd && cat /etc/motd && chown "$(id -u):$(id -g)" /etc/passwd && chmod 600 /etc/passwd && ! ls /etc/issue'
  [ "$status" -eq 0 ]
  [[ $output == *new* ]]
  run_and_show as_alice srun --container-name=viewed --container-image=registry.test/tiny stat -c %u:%g /bin/busybox
  [ "$status" -eq 0 ]
  [[ $output == *"$own"* ]]
  as_alice enroot remove -f pyxis_viewed
}

@test "a view takes no space, and is there for as long as steps use it; the image is in use meanwhile" {
  as_alice srun --container-image=registry.test/debian:12 true
  snapshot
  free=$(df --output=avail -B1 /var/tmp/views | tail -n 1)
  as_alice srun --container-image=registry.test/debian:12 sleep 300 3>&- &
  wait_until 30 eval '[ "$(views)" -eq 1 ]'
  wait_until 30 sh -c 'situla images | grep -q "debian:12.*in use"'
  # XFS counts in blocks of its own; the image has 30 MB.
  [ $((free - $(df --output=avail -B1 /var/tmp/views | tail -n 1))) -lt 1000000 ]
  # Both of these have the view of the first.
  as_alice srun --overlap --container-image=registry.test/debian:12 true
  [ "$(way)" = mount=reflink ]
  [ "$(views)" -eq 1 ]
  as_alice scancel -u alice
  wait
  nothing_left
  [ "$(views)" -eq 0 ]
  wait_until 10 eval '[ "$(devices)" -eq 0 ]'
}

@test "two users: each owns the files of his view, and reaches no other's" {
  [ "$(id -g alice)" != "$(id -g bob)" ]
  for user in alice bob; do
    # shellcheck disable=SC2016
    as "$user" srun --container-image=registry.test/tiny sh -c 'stat -c %u:%g /bin/busybox; touch /bin/busybox 2>&1; echo ready; sleep 300' \
      >"$BATS_TEST_TMPDIR/$user" 2>&1 3>&- &
    wait_until 30 grep -qx ready "$BATS_TEST_TMPDIR/$user"
    grep -qx "$(id -u $user):$(id -g $user)" "$BATS_TEST_TMPDIR/$user"
    grep -q 'Read-only file system' "$BATS_TEST_TMPDIR/$user"
  done
  [ "$(views)" -eq 2 ]
  # Neither the mounts, nor the devices beneath them, nor the store.
  run_and_show as_alice ls /run/situla/images /var/tmp/views/store
  [ "$status" -ne 0 ]
  [ "$(grep -c 'Permission denied' <<<"$output")" -eq 2 ]
  for device in $(losetup -n -O NAME); do
    run -1 as_alice test -r "$device" -o -w "$device"
  done
  # Whoever has it open has it for reading only, and it has no name.
  run_and_show losetup -n -O RO,BACK-FILE
  grep -q '1 .*views/store/images/sha256/.*(deleted)' <<<"$output"
  scancel -u alice
  scancel -u bob
  wait
}

@test "what it cannot be made of comes by FUSE: no shared blocks, an image of an older release" {
  sed -i /store_path/d /etc/situla/situla.toml
  run_and_show as_alice srun --container-image=registry.test/tiny stat -c %u /bin/busybox
  [ "$status" -eq 0 ]
  [[ $output == *"$(id -u alice)"* ]]
  [ "$(way)" = mount=fuse ]

  setup
  # With one entry for user and group, as it was before.
  image=$(ls -S /var/tmp/views/store/images/sha256/*.sqsh | tail -n 1)
  unsquashfs -q -n -d "$BATS_TEST_TMPDIR/tree" "$image" >/dev/null
  mksquashfs "$BATS_TEST_TMPDIR/tree" "$BATS_TEST_TMPDIR/old.sqsh" -all-root -quiet -no-progress >/dev/null
  install -o situla -m 400 "$BATS_TEST_TMPDIR/old.sqsh" "$image"
  run_and_show as_alice srun --container-image=registry.test/tiny stat -c %u /bin/busybox
  [ "$status" -eq 0 ]
  [ "$(way)" = mount=fuse ]
  rm "$image"
}

@test "device-mapper: the same without shared blocks" {
  [ -e /dev/mapper/control ] || skip "no device-mapper in this kernel"
  site image_owner=\"dm\" image_mount_idle=0
  sed -i /store_path/d /etc/situla/situla.toml
  run_and_show as_alice srun --container-image=registry.test/debian:12 sh -c 'stat -c %u:%g /etc/passwd; md5sum /etc/passwd /bin/bash'
  [ "$status" -eq 0 ]
  [ "$(way)" = mount=dm ]
  [[ $output == *"$(id -u alice):$(id -g alice)"* ]]
  wait_until 10 eval '! dmsetup ls | grep -q situla-view'
}

@test "a kernel that refused once is not asked again" {
  site image_mount_idle=0
  as_alice srun --container-image=registry.test/debian:12 true
  [ "$(way)" = mount=kernel ]
  touch /run/situla/images/no-id-map
  as_alice srun --container-image=registry.test/debian:12 true
  [ "$(way)" = mount=reflink ]
  rm /run/situla/images/no-id-map
  site image_owner=\"reflink\" mount=\"kernel\"
  sed -i /store_path/d /etc/situla/situla.toml
  run_and_show as_alice srun --container-image=registry.test/debian:12 true
  [ "$status" -ne 0 ]
  [[ $output == *"show the image as the user's"* ]]
}
