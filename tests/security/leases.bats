# lab: --user root
# Can one user keep another waiting for an image? A lease says who imports it; nobody waits for one who does not get on.
load ../cluster/helpers

store=/var/lib/situla

# bob's import stops after a megabyte, for as long as a test takes.
bob_holds() {
  as bob env ENROOT_MAX_CONNECTIONS=1 ENROOT_STALL_TIMEOUT=600 https_proxy="http://hold-$1:x@proxy.test:3128" \
    srun --container-image=registry.test/debian:12 true 3>&- &
  bob=$!
  wait_until 30 is_held "hold-$1"
}

is_held() { curl -s "http://proxy.test:3128/stats/$1" | jq -e .held >/dev/null; }

no_image() { [ -z "$(find "$store" -name '*.sqsh' -o -name '*.part')" ]; }

teardown() {
  as bob scancel -u bob -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
}

# before: waiting for another import of the same image (node1 ... pid 595), until timeout(1) ended it: 124
@test "alice does not wait for bob's slow proxy" {
  local bob
  bob_holds 301
  run_and_show as_alice timeout 120 srun --container-image=registry.test/debian:12 true
  [ "$status" -eq 0 ]
  [[ "$output" == *"waiting for another import of the same image"* ]]
  [[ "$output" == *"the other import of the same image is slow: importing it here as well"* ]]
  kill -0 "$bob"
}

# before: flock(1) opened it (0644), and said by its status that the importer has the lock now
@test "nobody but the store can open a lease, and so lock it" {
  local bob lease
  rm -rf "${store:?}"/images
  bob_holds 302
  lease=$(find "$store" -name '*lease*' -type f -o -path '*/leases/*' -type f)
  [ -n "$lease" ]
  run_and_show as_alice flock --nonblock "$lease" true
  [ "$status" -ne 0 ]
  [[ "$output" == *"Permission denied"* ]]
}

# before: the same, but leases lay among images, where everybody saw them
@test "an import that was killed leaves nothing" {
  local bob
  rm -rf "${store:?}"/images
  bob_holds 303
  kill -KILL "$(pgrep -x situla-store || pgrep -x situla-importer)"
  wait "$bob" || true
  wait_until 30 no_image
  run_and_show as_alice srun --container-image=registry.test/debian:12 true
  [ "$status" -eq 0 ]
  [[ "$output" != *"waiting for another import"* ]]
  # Who took bob's place in the first test stays known for an hour.
  run_and_show find "$store/leases" "$store/slots" -type f ! -name '*.next'
  [ -z "$output" ]
}
