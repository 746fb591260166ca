# lab: --name one-node --user root --situla-conf tests/cluster/own_store.toml
# lab: --name two-nodes --nodes 2 --user root --situla-conf tests/cluster/own_store.toml
# A node without an image store: each user keeps what steps import in a store of his own, by the rules of a node's.
load helpers

setup() {
  image=moody-own-$BATS_TEST_NUMBER
  settings
  # Users share it, as they do a scratch file system.
  cache=/scratch/cache-$BATS_TEST_NUMBER
  install -d -m 1777 "$cache"
  install -d /etc/enroot/enroot.conf.d
  # A registry that fails is else asked for two minutes.
  printf '%s\n' "ENROOT_CACHE_PATH $cache" "ENROOT_TRANSFER_RETRIES 3" >/etc/enroot/enroot.conf.d/cache.conf
}
teardown() {
  scancel -u alice -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
  settings
}

# settings LINE...: beside those of the lab. node_settings LINE...: and no others.
settings() { node_settings 'service_user = "nobody-such"' 'image_mount_idle = 0' "$@"; }
node_settings() { printf '%s\n' "$@" >/etc/situla/situla.toml; }
mood() { curl -s "https://fault.test/mood/$image?is=$1" >/dev/null; }
requests() { curl -s "https://fault.test/stats/$image" | jq .requests; }
# run_as USER REFERENCE OPTION...: a job of one step.
run_as() { run_and_show as "$1" srun -n1 --container-image="$2" "${@:3}" echo inside; }
inside() { [ "$status" -eq 0 ] && [ "${lines[-1]}" = inside ]; }
refused() { [ "$status" -ne 0 ] && [[ $output != *inside* ]]; }
store_of() { echo "$cache/situla-store.$(id -u "$1")"; }
images_of() { as "$1" situla images; }
# Nothing on the node has it open any more.
unused() { ! images_of alice | grep 'in use'; }

# bats file_tags=lab:one-node
@test "a job's second step asks nobody and imports nothing; the kernel mounts nothing; the log says so" {
  # shellcheck disable=SC2016
  run_and_show as_alice env IMAGE="fault.test#$image" STATS="https://fault.test/stats/$image" salloc -Q -n1 bash -euc '
    step() { srun -n1 --container-image="$IMAGE" echo inside; }
    requests() { curl -s "$STATS" | jq .requests; }
    step; before=$(requests); step; echo "$(($(requests) - before)) requests"'
  [ "$status" -eq 0 ]
  [[ $output == *"0 requests" ]]
  [ "$(grep -c 'importing docker image' <<<"$output")" -eq 1 ]
  [ "$(grep -c '^inside$' <<<"$output")" -eq 2 ]
  wait_until 30 grep -qE "image=fault.test#$image .*source=own-store mount=fuse" "$SITULA_LAB/logs/slurmd.node1.log"
  grep -qE "image=fault.test#$image .*source=registry mount=fuse" "$SITULA_LAB/logs/slurmd.node1.log"
  # A new job asks for one manifest.
  before=$(requests)
  run_as alice "fault.test#$image"
  inside
  [ $(($(requests) - before)) -eq 1 ]
  [[ $output != *importing* ]]
  settings 'kernel_mount_user_images = true'
  run_as alice "fault.test#$image"
  inside
  wait_until 30 grep -qE "image=fault.test#$image .*source=own-store mount=kernel" "$SITULA_LAB/logs/slurmd.node1.log"
}

@test "two users share a cache directory, and neither reads the other's store" {
  run_as alice registry.test/tiny
  inside
  run_as bob registry.test/tiny
  inside
  [[ $output == *"importing docker image"* ]]
  [ "$(stat -c '%a %U' "$(store_of alice)" "$(store_of bob)")" = "$(printf '700 alice\n700 bob')" ]
  run as bob ls "$(store_of alice)"
  [ "$status" -ne 0 ]
  [ "$(images_of alice | wc -l)" -eq 2 ]
  [ -z "$(find "$(store_of alice)" "$(store_of bob)" -type f -perm /077)" ]
}

@test "the registry is away: who was let in starts, with one warning; nobody else does" {
  run_as alice "fault.test#$image"
  inside
  mood 503
  run_as alice "fault.test#$image"
  inside
  [ "$(grep -cE 'fault.test does not answer: .* is started as it was 0 min ago, sha256:[0-9a-f]{64}$' <<<"$output")" -eq 1 ]
  run_as bob "fault.test#$image"
  refused
  settings 'grant_offline = 0'
  run_as alice "fault.test#$image"
  refused
}

@test "images, verify, pin and rm are about the caller's own store" {
  run_as alice registry.test/tiny
  inside
  wait_until 30 unused
  run_and_show images_of alice
  [[ ${lines[1]} =~ ^"registry.test/tiny:latest "+[0-9a-f]{12}" "+[0-9.]+" MiB "+(now|[0-9]+" min ago")" "+1$ ]]
  [ "$(images_of bob | wc -l)" -eq 1 ]
  run_and_show as_alice situla verify
  [ "$status" -eq 0 ]
  as_alice situla pin registry.test/tiny
  run as_alice situla rm registry.test/tiny
  [ "$status" -eq 1 ]
  as_alice situla pin --undo registry.test/tiny
  run_and_show as_alice situla rm registry.test/tiny
  [ "$status" -eq 0 ]
  [[ $output == "removed registry.test/tiny:latest "* ]]
  run_as alice registry.test/tiny
  inside
  [[ $output == *"importing docker image"* ]]
}

@test "bytes_per_user: the oldest image goes for the newest, but none in use" {
  run_as alice registry.test/debian:12
  inside
  wait_until 30 unused
  bytes=$(as_alice situla images --json | jq '.[0].bytes')
  settings "bytes_per_user = $bytes" 'store_reserve = 0'
  as_alice srun -n1 --container-image=registry.test/debian:12 sh -c 'echo started; sleep 300' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 30 grep -q started "$BATS_TEST_TMPDIR/out"
  run_as alice registry.test/tiny
  refused
  [[ $output == *"in the store take"*"and may take"* ]]
  scancel -u alice
  wait
  wait_until 30 unused
  run_as alice registry.test/tiny
  inside
  run_and_show images_of alice
  [[ $output == *registry.test/tiny* && $output != *registry.test/debian* ]]
}

is_held() { curl -s "http://proxy.test:3128/stats/$1" | jq -e .held >/dev/null; }
no_importer() { ! pgrep -x -u alice situla-importer; }

@test "an import that is killed leaves nothing that the next one does not remove" {
  as_alice env ENROOT_STALL_TIMEOUT=600 https_proxy=http://hold-401:x@proxy.test:3128 \
    srun -n1 --container-image=registry.test/debian:12 true >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 30 is_held hold-401
  # shellcheck disable=SC2046
  kill -KILL $(pgrep -x -u alice situla-importer)
  status=0
  wait $! || status=$?
  [ "$status" -ne 0 ]
  wait_until 30 no_importer
  [ -z "$(find "$(store_of alice)" -name '*.sqsh' -o -name '*.part')" ]
  run_as alice registry.test/debian:12
  inside
  [[ $output != *"waiting for another import"* ]]
  [ -z "$(find "$(store_of alice)"/{leases,slots} -type f)" ]
}

@test "scancel during an import ends it, and leaves no lease" {
  as_alice env ENROOT_STALL_TIMEOUT=600 https_proxy=http://hold-402:x@proxy.test:3128 \
    srun -n1 --container-image=registry.test/debian:12 true >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 30 is_held hold-402
  [ "$(pgrep -c -x -u alice situla-importer)" -eq 2 ]
  scancel -u alice
  wait_until 30 no_importer
  [ -z "$(find "$(store_of alice)" -name '*.sqsh' -o -name '*.part')" ]
  [ -z "$(find "$(store_of alice)"/{leases,slots} -type f)" ]
}

@test "a directory that somebody else put there is refused, and so is one that others can write to" {
  as bob install -d -m 0777 "$(store_of alice)"
  run_as alice registry.test/tiny
  refused
  [[ $output == *"open your own image store: ENROOT_CACHE_PATH: $(store_of alice) belongs to bob (uid $(id -u bob)), not to alice"* ]]
  [[ $output == *"hint: as root: rm -r $(store_of alice), or another ENROOT_CACHE_PATH in enroot.conf"* ]]
  run_and_show as_alice situla images
  [ "$status" -eq 1 ]
  [ -z "$(ls -A "$(store_of alice)")" ]
  rmdir "$(store_of alice)"
  as alice install -d -m 0770 "$(store_of alice)"
  run_as alice registry.test/tiny
  refused
  [[ $output == *"hint: look at what is in it, then: chmod go-w $(store_of alice)"* ]]
}

@test "a container with a name, and one that is saved, come from the own store" {
  run_as alice registry.test/tiny --container-name=own --container-save="/scratch/alice/own.sqsh"
  inside
  [ -s /scratch/alice/own.sqsh ]
  run_as alice registry.test/tiny
  inside
  [[ $output != *importing* ]]
}

@test "a store that nobody has made, where the account cannot make it, is none; one that is somebody else's is an error" {
  node_settings 'store_path = "/var/lib/not/there"'
  run_as alice registry.test/tiny
  inside
  [[ $output == *"importing docker image"* ]]
  [ -d "$(store_of alice)/images" ]
  run_as alice registry.test/tiny --container-name=not-there
  inside
  [[ $output != *importing* ]]
  install -d -m 0700 -o situla /var/lib/fixed
  mount --bind /var/lib/fixed /var/lib/fixed
  mount -o remount,bind,ro /var/lib/fixed
  node_settings 'store_path = "/var/lib/fixed"'
  run_as alice registry.test/tiny
  inside
  [[ $output != *importing* ]]
  run_and_show situla doctor
  [[ $output =~ warn\ +store\ +"/var/lib/fixed is on a file system that is mounted read-only: each user imports" ]]
  umount /var/lib/fixed
  rm -rf "$(store_of alice)"
  install -d -m 0755 /var/lib/foreign
  node_settings 'store_path = "/var/lib/foreign"'
  run_as alice registry.test/tiny
  refused
  [[ $output == *"/var/lib/foreign belongs to uid 0"* ]]
  [ ! -e "$(store_of alice)" ]
}

@test "import copies what srun has in the own store: the same bytes, for one request; bob does not get it" {
  run_as alice "fault.test#$image"
  inside
  before=$(requests)
  run_and_show as_alice situla import -o /scratch/alice/copy.sqsh "docker://fault.test#$image"
  [ "$status" -eq 0 ]
  [[ $output == *"copying "*" from your own store"* ]]
  [ $(($(requests) - before)) -eq 1 ]
  cmp "$(store_of alice)"/images/sha256/*.sqsh /scratch/alice/copy.sqsh
  run_and_show as_alice env ENROOT_DATA_PATH=/scratch/alice/data situla load -n copied "docker://fault.test#$image"
  [ "$status" -eq 0 ]
  [[ $output == *"from your own store"* ]]
  run_and_show as bob situla import -o /scratch/bob/copy.sqsh "docker://fault.test#$image"
  [ "$status" -eq 0 ]
  [[ $output != *"own store"* ]]
  [ ! -e "$(store_of bob)" ]
}

@test "the doctor warns, and says what is lost" {
  run_and_show situla doctor
  [[ $output =~ warn\ +service-user\ +"there is no user \"nobody-such\": each user imports his own images" ]]
  [[ ! $output =~ fail\ +(service-user|import-user|store)\  ]]
}

# bats file_tags=lab:two-nodes
@test "two nodes share a user's own store: one of them imports" {
  log="$SITULA_LAB/logs/slurmd.node"
  # shellcheck disable=SC2016
  run_and_show as_alice srun -N2 -n2 --container-image=registry.test/debian:12 sh -c 'echo inside $SLURM_NODEID'
  [ "$status" -eq 0 ]
  [ "$(grep -cE '^inside [01]$' <<<"$output")" -eq 2 ]
  [ "$(images_of alice | wc -l)" -eq 2 ]
  wait_until 30 sh -c "[ \$(cat '$log'*.log | grep -c 'situla: image=') -eq 2 ]"
  [ "$(cat "$log"*.log | grep -c 'source=registry')" -eq 1 ]
  [ "$(cat "$log"*.log | grep -c 'source=own-store')" -eq 1 ]
}
