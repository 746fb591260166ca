# lab: --name kernel --user root --situla-conf tests/cluster/no_idle.toml
# lab: --name fuse --user root --situla-conf tests/cluster/tier_fuse.toml
# lab: --name own-store --user root --situla-conf tests/cluster/own_store.toml
# lab: --name two-nodes --nodes 2 --user root --situla-conf tests/cluster/no_idle.toml
# Images of registries as mounts of a container: tools beside the image that a job is about. On every tier users see the same.
load helpers

setup_file() {
  as_alice srun -N"$(sinfo -h -o %D)" --container-image=registry.test/debian:12 true
  as_alice srun -N"$(sinfo -h -o %D)" --container-image=registry.test/tiny true
}
setup() { snapshot; }
teardown() {
  scancel -u alice -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf /home/alice/.config/enroot /home/alice/tools.toml
}

tools=docker://registry.test/tiny
inside() { run_and_show as_alice srun --container-image=registry.test/debian:12 "$@"; }

@test "beside the step's own image, the user's own files, read-only" {
  inside --container-mounts="$tools:/opt/tiny:image" sh -c 'cat /opt/tiny/srv/hello.txt; stat -c "owner %u" /opt/tiny/bin/busybox; touch /opt/tiny/x; grep " /opt/tiny " /proc/mounts; echo $GREETING'
  [ "$status" -eq 0 ]
  grep -qx "hello from the top layer" <<<"$output"
  grep -qx "owner $(id -u alice)" <<<"$output"
  grep -q 'Read-only file system' <<<"$output"
  local type=squashfs
  case $SITULA_LAB_NAME in fuse | own-store) type=fuse ;; esac
  grep -E " /opt/tiny $type[^ ]* ro,nosuid,nodev" <<<"$output"
  nothing_left
}

@test "a part of it, a file of it, and one whose way leads out of it" {
  inside --container-mounts="$tools:/data:image+subpath=srv,$tools:/hello:subpath=srv/hello.txt,$tools:/up:image+subpath=../../srv" sh -c 'cmp /data/hello.txt /hello && cmp /up/hello.txt /hello && echo same'
  [ "$status" -eq 0 ]
  grep -qx same <<<"$output"
  inside --container-mounts="$tools:/data:image+subpath=none" echo ran
  [ "$status" -ne 0 ]
  grep -q "mount image $tools on /data" <<<"$output"
  grep -q none <<<"$output"
  if grep -qx ran <<<"$output"; then false; fi
  nothing_left
}

@test "for several tasks, as root inside, and nobody takes its flags away" {
  inside -n4 --overcommit --container-remap-root --container-mounts="$tools:/opt/tiny" sh -c 'stat -c "owner %u" /opt/tiny/bin/busybox; mount -o remount,bind,rw,suid,dev /opt/tiny || echo refused; grep " /opt/tiny " /proc/mounts; cat /opt/tiny/srv/hello.txt'
  [ "$status" -eq 0 ]
  [ "$(grep -cx 'owner 0' <<<"$output")" -eq 4 ]
  # What the kernel's mount has is locked; the user's own file system belongs to a namespace of the user's.
  case $SITULA_LAB_NAME in kernel | two-nodes)
    [ "$(grep -cx refused <<<"$output")" -eq 4 ]
    [ "$(grep -c ' /opt/tiny squashfs ro,nosuid,nodev' <<<"$output")" -eq 4 ]
    ;;
  esac
  nothing_left
}

@test "an environment file, an fstab of the user's, a container with a name, start" {
  printf 'image = "registry.test/debian:12"\nmounts = ["%s:/opt/tiny:image", "/etc/hostname:/name"]\n' "$tools" >/home/alice/tools.toml
  run_and_show as_alice srun --environment=/home/alice/tools.toml cat /opt/tiny/srv/hello.txt /name
  [ "$status" -eq 0 ]
  grep -qi hello <<<"$output"
  as_alice mkdir -p /home/alice/.config/enroot/mounts.d
  echo "$tools /opt/fstab image x-create=dir,subpath=srv" >/home/alice/.config/enroot/mounts.d/tools.fstab
  for use in first second; do
    inside --container-name=tooled --container-mounts="$tools:/opt/tiny:image" sh -c 'cat /opt/fstab/hello.txt && ls /opt/tiny/bin/busybox && echo both'
    [ "$status" -eq 0 ]
    grep -qx both <<<"$output"
  done
  as_alice enroot remove -f pyxis_tooled
  as_alice enroot import -o /home/alice/d.sqsh docker://registry.test/debian:12
  run_and_show as_alice enroot start --mount "$tools:/opt/tiny" --mount "$tools:/x:image,noexec" /home/alice/d.sqsh sh -ec 'cat /opt/fstab/hello.txt; ls /opt/tiny/bin/busybox; echo "noexec $(grep -c " /x .*noexec" /proc/mounts)"; ls /proc/self/fd | wc -l'
  [ "$status" -eq 0 ]
  grep -qx 'hello from the top layer' <<<"$output"
  grep -qx /opt/tiny/bin/busybox <<<"$output"
  grep -qx 'noexec 1' <<<"$output"
  [ "${lines[-1]}" -eq 4 ]  # ls has the directory open
  run_and_show as_alice enroot run --mount "$tools:/opt/tiny" registry.test/debian:12 cat /opt/tiny/srv/hello.txt
  [ "$status" -eq 0 ]
  printf '#ENROOT_ROOTFS=/home/alice/d.sqsh\nmounts() { echo "/etc/hostname /name"; }\n' >/home/alice/script.conf
  run_and_show as_alice enroot batch /home/alice/script.conf cat /opt/fstab/hello.txt /name
  [ "$status" -eq 0 ]
  grep -qx 'hello from the top layer' <<<"$output"
  rm /home/alice/script.conf
  run_and_show as_alice enroot start --mount "$tools:/opt/tiny" nosuchcontainer true
  [ "$status" -ne 0 ]
  if grep -q importing <<<"$output"; then false; fi
  rm -r /home/alice/d.sqsh "/tmp/enroot-$(id -u alice)"
  nothing_left
}

@test "what cannot be had ends the step before a task runs, but with nofail" {
  inside --container-mounts=docker://registry.test/nosuchimage:/opt/x:image echo ran
  [ "$status" -ne 0 ]
  grep -q 'nosuchimage' <<<"$output"
  grep -q '\[image-not-found\]' <<<"$output"
  if grep -qx ran <<<"$output"; then false; fi
  inside --container-mounts="docker://registry.test/nosuchimage:/opt/x:image+nofail,$tools:/opt/tiny" sh -c 'echo ran; ls /opt/tiny/bin/busybox; ! ls -d /opt/x'
  [ "$status" -eq 0 ]
  grep -qx ran <<<"$output"
  grep -qx /opt/tiny/bin/busybox <<<"$output"
  grep -q 'docker://registry.test/nosuchimage is not mounted: .*\[image-not-found\]' <<<"$output"
  [ "$(grep -c 'nosuchimage' <<<"$(grep -v hint <<<"$output")")" -eq 1 ]
  nothing_left
  # A container with a name is made when everything else is there.
  for flag in "" :create; do
    inside --container-name=x$flag --container-mounts=docker://registry.test/nosuchimage:/opt/x:image echo ran
    [ "$status" -ne 0 ]
    grep -q '\[image-not-found\]' <<<"$output"
    [ -z "$(as_alice enroot list)" ]
  done
  inside --container-mounts="docker://registry.test/nosuchimage:/opt/x:image+nofail+silent" echo ran
  [ "$status" -eq 0 ]
  if grep -q nosuchimage <<<"$output"; then false; fi
  inside --container-mounts=docker://UPPER:/opt/x:image echo ran
  [ "$status" -ne 0 ]
  grep -q '\[image-name\]\|\[mount-syntax\]' <<<"$output"
  inside --container-mounts="$tools" echo ran
  [ "$status" -ne 0 ]
  grep -q 'an image needs a target' <<<"$output"
  inside --container-mounts=python:/opt:image echo ran
  [ "$status" -ne 0 ]
  grep -q 'docker://IMAGE:TAG:/DST:image' <<<"$output"
}

@test "a step that is cancelled while such an image is fetched, and one whose broker is killed, leave nothing" {
  as_alice srun -w node1 --container-image=registry.test/tiny --container-mounts=docker://fault.test/slow:/opt/x:image echo ran >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 30 grep -q 'importing docker image: docker://fault.test/slow' "$BATS_TEST_TMPDIR/out"
  as_alice scancel -u alice
  wait
  if grep -qx ran "$BATS_TEST_TMPDIR/out"; then false; fi
  nothing_left
  as_alice srun -w node1 --container-image=registry.test/debian:12 --container-mounts="$tools:/opt/tiny:image" sh -c 'echo started; sleep 3; cat /opt/tiny/srv/hello.txt; echo ended' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 30 grep -q started "$BATS_TEST_TMPDIR/out"
  pkill -KILL situla-broker
  wait
  cat "$BATS_TEST_TMPDIR/out"
  grep -q ended "$BATS_TEST_TMPDIR/out"
  nothing_left
}

@test "two of them, the image of the container itself among them, and a container that is saved" {
  inside --container-mounts="$tools:/opt/tiny:image,docker://registry.test/debian:12:/opt/self:image+subpath=etc" --container-save=/home/alice/saved.sqsh sh -c 'cat /opt/tiny/srv/hello.txt; cmp /etc/debian_version /opt/self/debian_version && echo same'
  [ "$status" -eq 0 ]
  grep -qx 'hello from the top layer' <<<"$output"
  grep -qx same <<<"$output"
  run unsquashfs -l /home/alice/saved.sqsh
  if grep -q 'squashfs-root/opt/tiny/srv' <<<"$output"; then false; fi
  rm /home/alice/saved.sqsh
  nothing_left
}

@test "an image asks for none in its own fstab" {
  as_alice enroot import -o /home/alice/t.sqsh "$tools"
  as_alice enroot create -n asks /home/alice/t.sqsh
  as_alice enroot start -w asks sh -c "echo '$tools /opt none image,x-create=dir' >/etc/fstab"
  as_alice enroot export -f -o /home/alice/asks.sqsh asks
  as_alice enroot remove -f asks
  run_and_show as_alice srun --container-image=/home/alice/asks.sqsh echo ran
  rm -r /home/alice/t.sqsh /home/alice/asks.sqsh "/tmp/enroot-$(id -u alice)"
  [ "$status" -ne 0 ]
  grep -q 'image /etc/fstab:1: .*it is not fetched for this mount' <<<"$output"
  nothing_left
}

# bats test_tags=lab:two-nodes
@test "on every node of a step, and in steps that srun starts inside" {
  inside -N2 -n2 --container-mounts="$tools:/opt/tiny:image" sh -c 'ls /opt/tiny/bin/busybox'
  [ "$status" -eq 0 ]
  [ "$(grep -cx /opt/tiny/bin/busybox <<<"$output")" -eq 2 ]
  inside -N2 -n1 --container-mounts="$tools:/opt/tiny:image" srun -n1 --overlap ls /opt/tiny/bin/busybox
  [ "$status" -eq 0 ]
  grep -qx /opt/tiny/bin/busybox <<<"$output"
  nothing_left
}
