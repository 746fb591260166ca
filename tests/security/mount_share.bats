# lab: --user root
# How many images does the kernel keep mounted for one user? A mount namespace that stays open keeps its images, beyond every job.
load ../cluster/helpers

setup() { printf 'mounts_per_user = 2\nimage_mount_idle = 0\n' >/etc/situla/situla.toml; }

teardown() {
  as bob scancel -u bob -s KILL 2>/dev/null || true
  pkill -u bob -x tail || true
  wait 2>/dev/null || true
  rm -f /etc/situla/situla.toml
}

# bob keeps the mount namespace of a step of his, from outside of every job.
bob_keeps() {
  as bob srun --container-image="$1" sleep 300 >/dev/null 2>&1 3>&- &
  wait_until 20 pgrep -u bob -x sleep
  as bob sh -c 'exec 9<"/proc/$1/ns/mnt"; exec tail -f /dev/null' keep "$(pgrep -u bob -x sleep)" >/dev/null 2>&1 3>&- &
  wait_until 20 eval '[ "$(pgrep -u bob -xc tail)" -eq '"$2"' ]'
  as bob scancel -u bob
  wait_until 20 eval '! pgrep -u bob -x sleep'
}

# How a step of WHO got its image: the administrator's line of it.
mounted() {
  "$@" srun --container-image=registry.test/debian:12 true 2>/dev/null || return 1
  grep -o 'mount=[a-z]*' "$SITULA_LAB/logs/slurmd.node1.log" | tail -n 1
}

loops() { losetup --list --noheadings --output BACK-FILE | grep -c /var/lib/situla/images; }

# before: every step had its mount by the kernel: 60 of them kept 60 loop devices and 60 MB of the kernel's memory after the job
@test "who keeps namespaces open has his share of mounts; beyond it his images come by FUSE, and others have theirs" {
  bob_keeps registry.test/tiny:latest 1
  bob_keeps registry.test/tiny:zstd 2
  [ "$(loops)" -eq 2 ]
  [ "$(mounted as bob)" = mount=fuse ]
  [ "$(mounted as_alice)" = mount=kernel ]
  pkill -u bob -x tail
  wait_until 20 eval '[ "$(loops)" -eq 0 ]'
  [ "$(mounted as bob)" = mount=kernel ]
}
