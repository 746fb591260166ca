# lab: --user root
# What users get of the node's store without a job: copies of images, and the commands for what is theirs. systemd's own program accepts the
# connections, as situla-store.socket has it.
load helpers

setup_file() {
  truncate -s 600M /var/tmp/beside.xfs
  mkfs.xfs -q /var/tmp/beside.xfs
  mkdir -p /var/tmp/beside /run/situla
  mount -o loop /var/tmp/beside.xfs /var/tmp/beside
  install -d -o situla -m 700 /var/tmp/beside/store
  install -d -o alice -m 755 /var/tmp/beside/alice
  libexec=$(dirname "$(dirname "$(command -v situla)")")/libexec/situla
  systemd-socket-activate --seqpacket --accept --inetd -l /run/situla/store.sock setpriv --reuid situla --regid situla --clear-groups --no-new-privs \
    "$libexec/situla-store" --answer 3>&- 2>"$BATS_FILE_TMPDIR/socket.log" &
  echo $! >"$BATS_FILE_TMPDIR/socket.pid"
  wait_until 30 test -S /run/situla/store.sock
  chmod 666 /run/situla/store.sock
}

teardown_file() {
  kill "$(cat "$BATS_FILE_TMPDIR/socket.pid")"
  rm -f /etc/situla/situla.toml /run/situla/store.sock
  umount -l /var/tmp/beside
}

setup() {
  image=moody-socket-$BATS_TEST_NUMBER
  site
  work=/scratch/alice/$BATS_TEST_NUMBER
  as_alice mkdir -p "$work"
}
teardown() {
  cat "$BATS_FILE_TMPDIR/socket.log"
  site
}

# site KEY=VALUE...: for this test.
site() { printf '%s\n' 'image_mount_idle = 0' "$@" >/etc/situla/situla.toml; }
is_unused() { situla images --json | jq -e --arg name "$1" '.[] | select(.reference == $name) | .in_use == false'; }
mood() { curl -s "https://fault.test/mood/$image?is=$1" >/dev/null; }
requests() { curl -s "https://fault.test/stats/$image" | jq .requests; }
srun_as() { as "$1" srun -Q -n1 --container-image="fault.test#$image" true; }
# import_as USER FILE OPTION...: with how many requests.
import_as() {
  local before
  before=$(requests)
  run_and_show as "$1" situla import -o "$2" "${@:3}" "docker://fault.test#$image"
  asked=$(($(requests) - before))
}
store_file() { ls "${1:-/var/lib/situla}"/images/sha256/*"$(situla images --json | jq -r "[.[] | select(.reference | startswith(\"fault.test/$image\"))][0].name")".sqsh; }

@test "import copies what srun has imported: the same bytes, for one request" {
  srun_as alice
  import_as alice "$work/copy.sqsh"
  [ "$status" -eq 0 ]
  [ "$asked" -eq 1 ]
  [[ $output == *"copying "*" from the node's store"* ]]
  [[ $output == *"imported docker://fault.test/$image:latest@sha256:"*" to $work/copy.sqsh, "* ]]
  cmp "$(store_file)" "$work/copy.sqsh"
  before=$(requests)
  run_and_show as_alice situla run "docker://fault.test#$image" sh -c 'echo it runs'
  grep -qx 'it runs' <<<"$output"
  [ $(($(requests) - before)) -eq 1 ]
  # What the site has set, with its line.
  run_and_show situla info --origin
  grep -qx '# /etc/situla/situla.toml:1: image_mount_idle = 0' <<<"$output"
  [ "$(stat -c '%U %a' "$work/copy.sqsh")" = "alice 644" ]
  run_and_show as_alice situla create -n "copy$BATS_TEST_NUMBER" "$work/copy.sqsh"
  [ "$status" -eq 0 ]
  run_and_show as_alice situla start "copy$BATS_TEST_NUMBER" echo inside
  [ "${lines[-1]}" = inside ]
  # Nobody keeps the image by having copied it.
  wait_until 30 is_unused "fault.test/$image:latest"
}

@test "on the store's file system the copy shares its blocks" {
  site 'store_path="/var/tmp/beside/store"'
  srun_as alice
  file=/var/tmp/beside/alice/copy.sqsh
  import_as alice $file
  [ "$status" -eq 0 ]
  [ "$asked" -eq 1 ]
  cmp "$(store_file /var/tmp/beside/store)" $file
  xfs_io -r -c 'fiemap -v' $file | grep -qE '0x200[01]$'
}

@test "load makes a container of the store's image" {
  srun_as alice
  before=$(requests)
  run_and_show as_alice situla load -n "loaded$BATS_TEST_NUMBER" "docker://fault.test#$image"
  [ "$status" -eq 0 ]
  [ $(($(requests) - before)) -eq 1 ]
  run_and_show as_alice situla start "loaded$BATS_TEST_NUMBER" echo inside
  [ "${lines[-1]}" = inside ]
}

@test "who was not let have it fetches it himself, or gets nothing" {
  srun_as alice
  import_as bob /scratch/bob/own.sqsh
  [ "$status" -eq 0 ]
  [ "$asked" -gt 1 ]
  [[ $output != *"from the node's store"* ]]
  as_alice srun -Q -n1 --container-image=auth.test/weird true
  run_and_show as bob situla import -o /scratch/bob/private.sqsh docker://auth.test#weird
  [ "$status" -ne 0 ]
  [ ! -e /scratch/bob/private.sqsh ]
  run_and_show as_alice situla import -o "$work/private.sqsh" docker://auth.test#weird
  [ "$status" -eq 0 ]
  [[ $output == *"from the node's store"* ]]
}

@test "leave that is older than the site's limits is none; wishes are imported" {
  srun_as alice
  SOURCE_DATE_EPOCH=1 import_as alice "$work/epoch.sqsh"
  [ "$asked" -gt 1 ]
  ENROOT_SQUASH_OPTIONS='-comp lz4' import_as alice "$work/lz4.sqsh"
  [ "$asked" -gt 1 ]
  unsquashfs -s "$work/lz4.sqsh" | grep -q 'Compression lz4'
  site 'grant_lifetime = 1'
  sleep 1.1
  import_as alice "$work/old.sqsh"
  [ "$status" -eq 0 ]
  [ "$asked" -gt 1 ]
}

@test "a registry that fails: what the name meant last, with a word about it, for whom it let have it" {
  srun_as alice
  mood 503
  import_as alice "$work/offline.sqsh"
  [ "$status" -eq 0 ]
  grep -E 'fault.test does not answer: .* is copied as it was 0 min ago, sha256:[0-9a-f]{64}$' <<<"$output"
  cmp "$(store_file)" "$work/offline.sqsh"
  # Where there is no copy the registry would be asked for two minutes.
  export ENROOT_TRANSFER_RETRIES=3
  import_as bob /scratch/bob/offline.sqsh
  [ "$status" -ne 0 ]
  [ ! -e /scratch/bob/offline.sqsh ]
  site 'grant_offline = 0'
  import_as alice "$work/forbidden.sqsh"
  [ "$status" -ne 0 ]
  [ ! -e "$work/forbidden.sqsh" ]
}

@test "a user sees what he was let have and removes what was imported for him" {
  as_alice srun -Q -n1 --container-image=registry.test/debian:12 true
  as bob srun -Q -n1 --container-image=registry.test/debian:12 true
  as bob srun -Q -n1 --container-image=registry.test/tiny true
  run_and_show as_alice situla images
  [ "$status" -eq 0 ]
  [[ $output == *"registry.test/debian:12"* ]]
  [[ $output != *"registry.test/tiny"* ]]
  as_alice situla images --json | jq -e "all(.[]; .users == [$(id -u alice)])"
  run_and_show as bob situla rm registry.test/debian
  [ "$status" -eq 1 ]
  [[ $output == *"it was imported for another user"* ]]
  run_and_show as_alice situla rm registry.test/tiny
  [ "$status" -eq 1 ]
  [[ $output == *"there is no image"* ]]
  run_and_show as_alice situla pin registry.test/debian
  [ "$status" -eq 1 ]
  [[ $output == *"only the administrator"* ]]
  run_and_show as_alice situla verify registry.test/debian
  [ "$status" -eq 0 ]
  run_and_show as_alice situla prune --unused-for 0 --dry-run
  [[ $output == *"would remove registry.test/debian:12 "* ]]
  [[ $output != *tiny* ]]
  wait_until 30 as_alice situla rm registry.test/debian
  [[ $(situla images) != *registry.test/debian* ]]
  situla images | grep 'registry.test/tiny'
}

@test "a user who is killed, and one who sends nonsense, leave nothing" {
  srun_as alice
  python3 - <<'PYTHON'
import os, socket
os.setuid(int(os.popen("id -u alice").read()))
for message in (b"", b"x" * 100, b"\0" * 16384):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.connect("/run/situla/store.sock")
        if message:
            line.send(message)
            line.settimeout(20)
            assert line.recv(100) == b"", "an answer to nonsense"
PYTHON
  wait_until 30 bash -c '! pgrep -u situla -f situla-store'
  for delay in 0.01 0.02 0.03 0.05; do
    as_alice timeout -s KILL $delay situla import -o "$work/killed.sqsh" "docker://fault.test#$image" || true
    rm -f "$work/killed.sqsh"
  done
  wait_until 30 bash -c '! pgrep -u situla -f situla-store'
  [ -z "$(ls -A "$work")" ]
  [ -z "$(ls -A /var/lib/situla/slots)" ]
  import_as alice "$work/after.sqsh"
  [ "$status" -eq 0 ]
  [ "$asked" -eq 1 ]
}

@test "nobody has more answers at a time than imports" {
  srun_as alice
  site 'imports_per_user = 1'
  runuser -u situla -- touch "/var/lib/situla/slots/$(hostname).$(id -u alice).0"
  exec 9<>"/var/lib/situla/slots/$(hostname).$(id -u alice).0"
  flock 9
  import_as alice "$work/busy.sqsh"
  run_and_show as_alice situla images
  exec 9>&-
  [ "$status" -eq 1 ]
  [[ $output == *"imports_per_user"* ]]
  [ "$asked" -gt 1 ]
  unsquashfs -s "$work/busy.sqsh" >/dev/null
}
