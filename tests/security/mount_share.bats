# lab: --user root
# How many images does the kernel keep mounted for one user? A mount namespace that stays open keeps its images, beyond every job.
load ../cluster/helpers

# Loop devices are the machine's, and so those of other labs' users are among them: these two have numbers that nobody else has.
setup() {
  printf 'mounts_per_user = 2\nimage_mount_idle = 0\n' >/etc/situla/situla.toml
  local user number=100000
  for user in carol dave; do
    id "$user" >/dev/null 2>&1 || printf '%s:x:%d:60790::/home/%s:/bin/sh\n' "$user" $((number + $(cat "$SITULA_LAB/pid"))) "$user" >>/etc/passwd
    install -d -o "$user" -m 700 "/home/$user"
    number=$((number + 5000000))
  done
}

teardown() {
  as carol scancel -u carol -s KILL 2>/dev/null || true
  pkill -u carol -x tail || true
  wait 2>/dev/null || true
  rm -f /etc/situla/situla.toml
}

# carol keeps the mount namespace of a step of his, from outside of every job.
carol_keeps() {
  as carol srun --container-image="$1" sleep 300 >/dev/null 2>&1 3>&- &
  wait_until 20 pgrep -u carol -x sleep
  as carol sh -c 'exec 9<"/proc/$1/ns/mnt"; exec tail -f /dev/null' keep "$(pgrep -u carol -x sleep)" >/dev/null 2>&1 3>&- &
  wait_until 20 eval '[ "$(pgrep -u carol -xc tail)" -eq '"$2"' ]'
  as carol scancel -u carol
  wait_until 20 eval '! pgrep -u carol -x sleep'
}

mount_lines() { grep -o 'mount=[a-z]*' "$SITULA_LAB/logs/slurmd.node1.log"; }

# How a step of WHO got its image: the administrator's line of it, which comes when the step's last process has ended.
mounted() {
  local before
  before=$(mount_lines | wc -l)
  "$@" srun --container-image=registry.test/debian:12 true 2>/dev/null || return 1
  wait_until 20 eval '[ "$(mount_lines | wc -l)" -gt '"$before"' ]' >&2
  mount_lines | tail -n 1
}

# How many have her label (LOOP_GET_STATUS64; lo_file_name lies at byte 56 of the answer).
loops() {
  python3 - "situla:$(id -u carol)" <<'COUNT'
import fcntl, glob, sys
def label(device):
    try:
        with open(device, "rb") as opened:
            return fcntl.ioctl(opened, 0x4C05, bytes(232))[56:120].rstrip(b"\0").decode()
    except OSError:
        return ""
print(sum(label(device) == sys.argv[1] for device in glob.glob("/dev/loop[0-9]*")))
COUNT
}

# before: every step had its mount by the kernel: 60 of them kept 60 loop devices and 60 MB of the kernel's memory after the job
@test "who keeps namespaces open has his share of mounts; beyond it his images come by FUSE, and others have theirs" {
  carol_keeps registry.test/tiny:latest 1
  carol_keeps registry.test/tiny:zstd 2
  [ "$(loops)" -eq 2 ]
  [ "$(mounted as carol)" = mount=fuse ]
  [ "$(mounted as dave)" = mount=kernel ]
  pkill -u carol -x tail
  wait_until 20 eval '[ "$(loops)" -eq 0 ]'
  [ "$(mounted as carol)" = mount=kernel ]
}

@test "an image that one step uses for long stays for image_mount_idle after it" {
  printf 'image_mount_idle = 5\n' >/etc/situla/situla.toml
  as carol srun --container-image=registry.test/tiny sleep 7
  sleep 1
  [ "$(loops)" -eq 1 ]
  sleep 6
  as carol srun --container-image=registry.test/debian:12 true
  wait_until 20 eval '[ "$(loops)" -eq 1 ]'
  printf 'image_mount_idle = 0\n' >/etc/situla/situla.toml
  as carol srun --container-image=registry.test/debian:12 true
  wait_until 20 eval '[ "$(loops)" -eq 0 ]'
}

@test "mounts that nobody uses are no part of the share's end: they go for a new one" {
  printf 'mount = "kernel"\nmounts_per_user = 2\nimage_mount_idle = 600\n' >/etc/situla/situla.toml
  as carol srun --container-image=registry.test/tiny:latest true
  as carol srun --container-image=registry.test/tiny:zstd true
  wait_until 20 eval '[ "$(loops)" -eq 2 ]'
  as carol srun --container-image=registry.test/debian:12 true
  [ "$(loops)" -eq 1 ]
  printf 'image_mount_idle = 0\n' >/etc/situla/situla.toml
  as carol srun --container-image=registry.test/debian:12 true
  wait_until 20 eval '[ "$(loops)" -eq 0 ]'
}

@test "where FUSE is to serve nothing, the share's end is an error with a code of its own" {
  printf 'mount = "kernel"\nmounts_per_user = 2\nimage_mount_idle = 0\n' >/etc/situla/situla.toml
  carol_keeps registry.test/tiny:latest 1
  carol_keeps registry.test/tiny:zstd 2
  run as carol srun --container-image=registry.test/debian:12 true
  echo "$output"
  [ "$status" -ne 0 ]
  [[ "$output" == *"2 images are mounted for this user already, and 2 may be [mount-limit]"* ]]
  [[ "$output" == *"hint: they go with the last process that uses them"* ]]
  [ "$(mounted as dave)" = mount=kernel ]
  pkill -u carol -x tail
  wait_until 20 eval '[ "$(loops)" -eq 0 ]'
  as carol srun --container-image=registry.test/debian:12 true
}

# before: steps that began in the same moment all counted the same, and each had its mount
@test "steps that begin at the same time have one share together" {
  local image steps=()
  for image in tiny:latest tiny:zstd debian:12 multiarch; do as carol srun --container-image="registry.test/$image" true; done
  wait_until 20 eval '[ "$(loops)" -eq 0 ]'
  for image in tiny:latest tiny:zstd debian:12 multiarch; do
    as carol srun -n1 --overlap --container-image="registry.test/$image" sleep 300 >/dev/null 2>&1 3>&- &
    steps+=($!)
  done
  wait_until 60 eval '[ "$(pgrep -u carol -xc sleep)" -eq 4 ]'
  [ "$(loops)" -eq 2 ]
  as carol scancel -u carol
  wait "${steps[@]}" || true
  wait_until 20 eval '[ "$(loops)" -eq 0 ]'
}
