# lab: --user root
# Can one user fill the node's store, or take it for himself? Limits of situla.toml: each says its numbers and leaves nothing.
load ../cluster/helpers

store=/var/lib/situla

setup() {
  rm -rf "${store:?}"/*
  limits
}

teardown() {
  as bob scancel -u bob -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
  [ -z "${small-}" ] || umount -l "$store"
  rm -f /etc/situla/situla.toml
}

limits() { printf '%s\n' "$@" >/etc/situla/situla.toml; }

# A file system of its own for the store.
small_disk() {
  mount -t tmpfs -o "size=$1,mode=700,uid=situla,gid=situla" none "$store"
  small=yes
}

runs() {
  local user=$1 image=$2
  shift 2
  run_and_show as "$user" env "$@" srun --container-image="$image" true
}

images() { find "$store/images" -name '*.sqsh' | wc -l; }

# What the service account knows stays: who may have an image, and how often a step got one (written after the step's answer).
nothing_in_store() {
  local left
  left=$(find "$store" -type f -not -path '*/grants/*' -not -path '*/counts/*')
  [ -z "$left" ] || echo "left: $left"
  [ -z "$left" ]
}

# bob's import stops after a megabyte, for as long as a test takes.
bob_holds() {
  as bob env ENROOT_MAX_CONNECTIONS=1 ENROOT_STALL_TIMEOUT=600 https_proxy="http://hold-$1:x@proxy.test:3128" \
    srun --container-image=registry.test/debian:12 true 3>&- &
  wait_until 30 is_held "hold-$1"
}

is_held() { curl -s "http://proxy.test:3128/stats/$1" | jq -e .held >/dev/null; }

# before: bob got a third image, and alice, for one of a few bytes: the image store /var/lib/situla has 2.0 MiB free, and 7.5 MiB
# have to stay so
@test "one user does not fill the store: beyond his half of it his own images go that nobody uses" {
  small_disk 90M
  limits 'image_mount_idle = 0'
  local tag
  for tag in 12 12-zstd 12-v2s2; do
    runs bob registry.test/debian:"$tag"
    [ "$status" -eq 0 ]
    [ "$(images)" -eq 1 ]
  done
  runs alice registry.test/debian:12
  [ "$status" -eq 0 ]
  [ "$(images)" -eq 2 ]
}

# before: bob's step ran, and two thirds of the store were his
@test "what is in use stays: the import is refused with the numbers, and others import" {
  small_disk 90M
  limits 'image_mount_idle = 0'
  as bob srun --container-image=registry.test/debian:12 sleep 300 3>&- &
  wait_until 60 pgrep -u bob -x sleep
  runs bob registry.test/debian:12-zstd
  [ "$status" -ne 0 ]
  [[ "$output" =~ "the images of uid $(id -u bob) in the store take "[0-9.]+" MiB with this one, and may take 45.0 MiB" ]]
  [[ "$output" == *"hint: images that steps use now"*"bytes_per_user in /etc/situla/situla.toml"* ]]
  [ "$(images)" -eq 1 ]
  runs alice registry.test/tiny
  [ "$status" -eq 0 ]
}

# before: unknown key "bytes_per_user"
@test "bytes_per_user: an image that is larger alone is refused, and what he has stays" {
  runs alice registry.test/tiny
  limits 'bytes_per_user = "10MiB"'
  runs alice registry.test/debian:12
  [ "$status" -ne 0 ]
  [[ "$output" =~ "the images of uid $(id -u alice) in the store take "[0-9.]+" MiB with this one, and may take 10.0 MiB" ]]
  [ "$(images)" -eq 1 ]
  [ -z "$(find "$store/slots" "$store/leases" -type f)" ]
}

# before: the same refusal for alice, whoever's images they were, in use or not
@test "store_reserve: at it images go that nobody uses, of whoever has most; when there are none the import is refused" {
  small_disk 90M
  limits 'image_mount_idle = 0' 'bytes_per_user = 0' 'store_reserve = "35MiB"'
  runs bob registry.test/debian:12
  runs alice registry.test/tiny
  [ "$(images)" -eq 2 ]
  runs alice registry.test/debian:12-zstd
  [ "$status" -eq 0 ]
  run_and_show grep -l '"uid": '"$(id -u bob)" -r "$store/images"
  [ -z "$output" ]
  limits 'image_mount_idle = 0' 'store_reserve = "1TiB"'
  runs bob registry.test/debian:12
  [ "$status" -ne 0 ]
  [[ "$output" =~ "the image store $store has "[0-9.]+" MiB free, and 1.0 TiB have to stay so" ]]
  [[ "$output" == *"hint: no image in it is unused"*store_reserve* ]]
  [ "$(images)" -eq 0 ]
}

# before: write ...: No space left on device, however many images nobody used
@test "a full disk: images go that nobody uses, in the middle of an import; when there are none it says the numbers" {
  small_disk 48M
  limits 'image_mount_idle = 0' 'bytes_per_user = 0' 'store_reserve = 0'
  runs bob registry.test/debian:12
  [ "$status" -eq 0 ]
  runs alice registry.test/debian:12-zstd
  [ "$status" -eq 0 ]
  [ "$(images)" -eq 1 ]
  as alice srun --container-image=registry.test/debian:12-zstd sleep 300 3>&- &
  wait_until 20 pgrep -u alice -x sleep
  log=$BATS_TEST_TMPDIR/log
  python3 -u -c '
import socket
line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
line.bind("/dev/log")
while True: print(line.recv(65536).decode().strip("\0"))' >"$log" 3>&- &
  listener=$!
  wait_until 20 test -S /dev/log
  runs bob registry.test/debian:12
  kill $listener
  rm /dev/log
  cat "$log"
  # The administrator reads it as a warning: facility and level.
  grep -E "^<(12|28)>" "$log" | grep -q "no room for an image: .*No space left on device: the image store $store has"
  [ "$status" -ne 0 ]
  [[ "$output" =~ "No space left on device: the image store $store has "[0-9.]+" "[KM]?i?"B of 48.0 MiB free, images take "[0-9.]+" MiB" ]]
  [[ "$output" == *"hint: no image in it is unused"* ]]
  [ "$(images)" -eq 1 ]
  as alice scancel -u alice
}

# before: File too large, and the hint: the file size limit (ulimit -f) is too small for this image
@test "largest_image: what is larger is refused with both numbers, and nothing stays of it" {
  limits 'largest_image = "1MiB"'
  runs alice registry.test/debian:12
  [ "$status" -ne 0 ]
  [[ "$output" == *"the image's file may have 1.0 MiB"*largest_image* || "$output" == *"the image's file has "*" and may have 1.0 MiB"*largest_image* ]]
  nothing_in_store
}

# before: with no limit bob's second import was done at once
@test "imports_per_user: the next one waits and says so, others do not" {
  limits 'imports_per_user = 1'
  bob_holds 401
  run_and_show as bob timeout 15 srun --container-image=registry.test/tiny true
  [ "$status" -eq 124 ]
  [[ "$output" == *"waiting: this user has 1 imports on this node already, and may have 1 (imports_per_user)"* ]]
  runs alice registry.test/tiny
  [ "$status" -eq 0 ]
  [[ "$output" != *waiting* ]]
}
