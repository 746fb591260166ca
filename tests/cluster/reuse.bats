# lab: --user root
# Layers that the node has already are not fetched again, and nobody gets an image or a layer in this way that the registry
# would not give him.
load helpers

store=/var/lib/situla

setup() {
  chmod 777 "$BATS_TEST_TMPDIR"
  chmod 755 "$BATS_RUN_TMPDIR" "$BATS_SUITE_TMPDIR" "$BATS_FILE_TMPDIR" "${BATS_TEST_TMPDIR%/*}"
}

start() { run_and_show as_alice srun -n1 --container-image="$1" "${@:2}"; }
stat_of() { curl -s "https://fault.test/stats/$1" | tee "$BATS_TEST_TMPDIR/stats" | jq -e "$2" >/dev/null || { cat "$BATS_TEST_TMPDIR/stats"; return 1; }; }
# shellcheck disable=SC2086 # the name of the origin stands behind the digest
record_of() { echo $store/images/sha256/$(skopeo inspect "docker://$1" | jq -r '.Digest | ltrimstr("sha256:")').*.json; }
forget() { rm -rf "$store"/images/sha256/* "$store"/layers; }

# push_derived NAME: debian:12 and one more layer with /opt/NAME.
push_derived() {
  local layout=$BATS_TEST_TMPDIR/$1
  cp -a "$SITULA_LAB_IMAGES/debian" "$layout"
  echo "content of $1" >"$BATS_TEST_TMPDIR/$1.txt"
  umoci insert --image "$layout:12" --tag new "$BATS_TEST_TMPDIR/$1.txt" "/opt/$1"
  skopeo copy -q "oci:$layout:new" "docker://registry.test/$1"
}

@test "an image upon one that the node has: only the new layer comes" {
  forget
  push_derived derived
  start registry.test/debian:12 true
  [ "$status" -eq 0 ]
  start registry.test/derived cat /opt/derived /etc/os-release
  [ "$status" -eq 0 ]
  [[ "$output" == *"content of derived"*'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"'* ]]
  run_and_show jq -e '.fetched_bytes < 10000 and .image_bytes > 30000000' "$(record_of registry.test/derived)"
  [ "$status" -eq 0 ]
  # The other way round: nothing at all comes.
  rm "$(record_of registry.test/debian:12)" "$(record_of registry.test/debian:12 | sed 's/json$/sqsh/')"
  start registry.test/debian:12 true
  [ "$status" -eq 0 ]
  run_and_show jq -e '.fetched_bytes == 0' "$(record_of registry.test/debian:12)"
  [ "$status" -eq 0 ]
}

@test "the tree is that of an import without anything to reuse" {
  local how
  push_derived twin
  for how in first reused; do
    as_alice env ENROOT_CACHE_PATH="$BATS_TEST_TMPDIR/cache" ENROOT_SQUASH_OPTIONS="-comp zstd -Xcompression-level 1" \
      situla import -o "$BATS_TEST_TMPDIR/$how.sqsh" "docker://registry.test/$([ $how = first ] && echo debian:12 || echo twin)"
  done
  as_alice env SOURCE_DATE_EPOCH=1 ENROOT_CACHE_PATH="$BATS_TEST_TMPDIR/cache" situla import -o "$BATS_TEST_TMPDIR/plain.sqsh" docker://registry.test/twin
  for how in reused plain; do
    unsquashfs -q -n -d "$BATS_TEST_TMPDIR/$how" "$BATS_TEST_TMPDIR/$how.sqsh"
    rm -r "$BATS_TEST_TMPDIR/$how/etc/rc"
  done
  diff -r --no-dereference "$BATS_TEST_TMPDIR/reused" "$BATS_TEST_TMPDIR/plain"
}

@test "another repository of the same registry does not send the layers that the user has" {
  forget
  start fault.test/good true
  [ "$status" -eq 0 ]
  start fault.test/slow-20 true
  [ "$status" -eq 0 ]
  stat_of slow-20 '.served < 10 and .requests >= 2'
}

@test "a repository that refuses its layers gives no image to somebody who has not got them, though the node has every one" {
  forget
  start fault.test/good true
  [ "$status" -eq 0 ]
  run_and_show as bob srun -n1 --container-image=fault.test/layers-403 true
  [ "$status" -ne 0 ]
  [[ "$output" == *"layer "[12]" of 2"*"access is forbidden (403)"* ]]
  # By a name of the user's own choice for the same registry, too.
  cp /etc/ssl/certs/ca-certificates.crt "$BATS_TEST_TMPDIR/own.crt"
  run_and_show as bob env SSL_CERT_FILE="$BATS_TEST_TMPDIR/own.crt" srun -n1 --container-image=fault.test/layers-403 true
  [ "$status" -ne 0 ]
}

@test "whoever serves a manifest that he has seen does not get the image" {
  forget
  start registry.test/tiny true
  [ "$status" -eq 0 ]
  [ "$(situla digest docker://fault.test/borrowed)" = "$(situla digest docker://registry.test/tiny)" ]
  run_and_show as bob srun -n1 --container-image=fault.test/borrowed true
  [ "$status" -ne 0 ]
  [[ "$output" == *"access is forbidden (403)"* ]]
  run_and_show jq -r '.source' "$(record_of registry.test/tiny)"
  [ "$output" = registry.test/tiny ]
}

@test "an image with blocks of another repository is its user's own" {
  forget
  push_derived own
  start registry.test/debian:12 true
  start registry.test/own true
  [ "$status" -eq 0 ]
  run_and_show jq -r '.only, .fetched_bytes' "$(record_of registry.test/own)"
  [ "${lines[0]}" = "$(id -u alice)" ]
  run_and_show as bob srun -n1 --container-image=registry.test/own cat /opt/own
  [ "$status" -eq 0 ]
  [ "$(record_of registry.test/own | wc -w)" -eq 2 ]
}

@test "a registry known by the user's own certificates is another one" {
  forget
  start registry.test/tiny true
  cp /etc/ssl/certs/ca-certificates.crt "$BATS_TEST_TMPDIR/own.crt"
  run_and_show as_alice env SSL_CERT_FILE="$BATS_TEST_TMPDIR/own.crt" srun -n1 --container-image=registry.test/tiny true
  [ "$status" -eq 0 ]
  # shellcheck disable=SC2046 # two names without blanks
  run_and_show jq -r .source $(record_of registry.test/tiny)
  [ "$(sort <<<"$output" | sed -E 's/sha256:[0-9a-f]{64}/DIGEST/' | paste -sd '|')" = 'registry.test as the certificates DIGEST/tiny|registry.test/tiny' ]
  # What stands around the certificates makes no other one of it.
  sed -i '1i # mine' "$BATS_TEST_TMPDIR/own.crt"
  run_and_show as_alice env SSL_CERT_FILE="$BATS_TEST_TMPDIR/own.crt" srun -n1 --container-image=registry.test/tiny true
  [ "$status" -eq 0 ]
  [ "$(record_of registry.test/tiny | wc -w)" -eq 2 ]
}
