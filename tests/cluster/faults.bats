# lab: --user root
# What a network and a registry do on bad days: an import gets through by itself, or fails with one clear message.
load helpers

setup() {
  chmod 777 "$BATS_TEST_TMPDIR"
  chmod 755 "$BATS_RUN_TMPDIR" "$BATS_SUITE_TMPDIR" "$BATS_FILE_TMPDIR" "${BATS_TEST_TMPDIR%/*}"
  snapshot
}

# pull NAME [VAR=VALUE...]: as alice, who has no layer of it yet.
pull() {
  local name=$1
  shift
  rm -f "$BATS_TEST_TMPDIR/image.sqsh"
  run_and_show as_alice env ENROOT_CACHE_PATH="$(mktemp -d -p "$BATS_TEST_TMPDIR")/none" "$@" timeout 50 situla import -o "$BATS_TEST_TMPDIR/image.sqsh" "docker://fault.test#$name"
  [ "$status" -ne 124 ]
}

# arrives NAME...: and the same tree as from a registry without faults.
arrives() {
  pull "$@"
  [ "$status" -eq 0 ]
  unsquashfs -f -d "$BATS_TEST_TMPDIR/tree" "$BATS_TEST_TMPDIR/image.sqsh" bin/busybox usr/bin/bash >/dev/null
  [ -s "$BATS_TEST_TMPDIR"/tree/bin/busybox ] || [ -s "$BATS_TEST_TMPDIR"/tree/usr/bin/bash ]
  nothing_left
}

# breaks PATTERN NAME [VAR=VALUE...]: one error, which says so, and no file.
breaks() {
  local pattern=$1
  shift
  pull "$@" ENROOT_TRANSFER_RETRIES=3  # else two minutes for each
  [ "$status" -ne 0 ]
  grep -Eiq -- "$pattern" <<<"$output" || { echo "no line matches: $pattern"; return 1; }
  [ "$(grep -c 'ERROR' <<<"$output")" -eq 1 ] || { echo "not exactly one error"; return 1; }
  [ -z "$(ls -A "$BATS_TEST_TMPDIR" | grep sqsh)" ]
  nothing_left
}

# stat_of NAME FILTER: jq over what the server counted.
stat_of() {
  curl -s "https://fault.test/stats/$1" | tee "$BATS_TEST_TMPDIR/stats" | jq -e "$2" >/dev/null || { cat "$BATS_TEST_TMPDIR/stats"; return 1; }
}


@test "control: an import without a fault" { arrives good; }

@test "cut again and again: each time it goes on at the last good byte" {
  arrives cut
  stat_of cut '.served == .size and (.ranges | length) >= 3'
}
@test "cut in every segment of a large layer: no byte is served twice" {
  arrives cut-large
  stat_of cut-large '.served == .size and (.ranges | length) >= 14'
}
@test "cut once by a server that ignores Range: what came already is skipped" {
  arrives cut-norange
  stat_of cut-norange '.served > .size and .served < .size * 2'
}
@test "reset by the peer, once" {
  arrives reset-once
  stat_of reset-once '.ranges | length == 2 and .[1] > 0'
}
@test "a stall is noticed, and the rest asked for again" {
  arrives stall-once ENROOT_STALL_TIMEOUT=3
  stat_of stall-once '.served == .size and (.ranges | length == 2 and .[1] > 0)'
}
@test "a stall that comes back each time ends with a message" {
  breaks 'layer 1 of 2 .*: fault.test: no answer in time' stall ENROOT_TRANSFER_TIMEOUT=1
}
@test "a server that is slow but sends" { arrives slow-2; }

@test "429 with Retry-After, in seconds and as a date: waited for, asked again" {
  arrives busy
  stat_of busy '.retries | length >= 4 and min >= 1'
}
@test "500 twice, then fine" {
  arrives twice-500
  stat_of twice-500 '.requests >= 12'
}
# before: three attempts within two seconds
@test "503 for some seconds, as of a registry that starts again: waited for" {
  curl -s "https://fault.test/mood/moody-away?is=503" >/dev/null
  (sleep 6 && curl -s "https://fault.test/mood/moody-away?is=fine") >/dev/null 3>&- &
  arrives moody-away
}
@test "500 for good, 429 for good" {
  breaks 'the registry failed \(500\)' blob-status-500
  breaks 'too many requests \(429\)' blob-status-429
}
@test "a blob of wrong length" {
  breaks 'layer 1 of 2 .*bytes of it instead of' short
  breaks 'layer 1 of 2 .*bytes of it instead of' wrong-size
  breaks 'layer 1 of 2 .*(closed|ended|broke)' truncated
}
@test "a blob with a wrong digest" { breaks 'layer 1 of 2 .*digest' bad-digest; }

@test "a redirect to another host gets no credentials" {
  echo "machine fault.test login alice password secret" >"$BATS_TEST_TMPDIR/.credentials"
  chmod 644 "$BATS_TEST_TMPDIR/.credentials"
  arrives redirect-login ENROOT_CONFIG_PATH="$BATS_TEST_TMPDIR"
  stat_of redirect-login '(.logins["fault.test"] | length >= 4 and any) and (.logins["content.test"] | length >= 3 and (any | not))'
}
@test "tokens that expire in the middle are renewed" {
  arrives expiring
  arrives expiring-large ENROOT_MAX_CONNECTIONS=2
  stat_of expiring-large '.tokens >= 2 and .tokens <= 9 and .served == .size'
}
@test "a token that expires in the middle is renewed, by docker-registry and a real token server" {
  skopeo copy -q "docker://registry.test/debian:12" "docker://token.test/brief/debian:12" --dest-creds alice:secret
  # The proxy holds the first layer back for longer than a token lives; nothing else is slow.
  run_and_show as_alice env ENROOT_CACHE_PATH="$BATS_TEST_TMPDIR/none" ENROOT_MAX_CONNECTIONS=1 https_proxy=http://hold-5:x@proxy.test:3128 no_proxy=auth-token.test \
    timeout 50 situla import -o "$BATS_TEST_TMPDIR/image.sqsh" docker://token.test/brief/debian:12
  [ "$status" -eq 0 ]
  [ "$(grep -c 'scope=repository%3Abrief%2Fdebian%3Apull' "$SITULA_LAB/logs/servers.log")" -ge 2 ]
  nothing_left
}
@test "foreign layers come from their URL, without credentials" {
  arrives foreign
  stat_of foreign '.requests >= 3'
  stat_of good '.logins["content.test"] | length >= 2 and (any | not)'
}
@test "an identity token of docker's configuration is traded for a token" {
  mkdir -p /home/alice/.docker
  echo '{"auths":{"https://fault.test/v1/":{"auth":"","identitytoken":"refresh-me"}}}' >/home/alice/.docker/config.json
  chmod -R a+rX /home/alice/.docker
  arrives oauth
  stat_of oauth '.tokens == 1'
  sed -i 's/refresh-me/stale/' /home/alice/.docker/config.json
  breaks 'token server fault.test: refuses the identity token \(401\)' oauth
  rm -r /home/alice/.docker
}
@test "docker's login, a credential helper, podman's login; in jobs too" {
  mkdir -p /home/bob/.docker /home/bob/bin
  echo '{"auths":{"https://auth.test":{"auth":"'"$(printf alice:secret | base64)"'"}}}' >/home/bob/.docker/config.json
  chmod -R a+rX /home/bob/.docker
  run_and_show as bob srun --container-image=auth.test/tiny true
  [ "$status" -eq 0 ]
  cat >/home/bob/bin/docker-credential-lab <<'HELPER'
#!/bin/sh
read -r server
[ "$1 $server" = "get auth-token.test" ] && exit 3  # only the registry's host is asked for
[ "$1 $server" = "get token.test" ] || { echo "credentials not found in native keychain"; exit 1; }
echo '{"ServerURL":"token.test","Username":"alice","Secret":"secret"}'
HELPER
  chmod 755 /home/bob/bin/docker-credential-lab
  echo '{"credHelpers":{"token.test":"lab","other.test":"missing"}}' >/home/bob/.docker/config.json
  run_and_show as bob env PATH="/home/bob/bin:$PATH" srun --container-image=token.test/tiny true
  [ "$status" -eq 0 ]
  [[ "$output" != *warning* ]]
  rm -r /home/bob/.docker
  run_and_show as bob srun --container-image=token.test/tiny true
  [ "$status" -ne 0 ]
  printf '{"auths":{"token.test/tiny":{"auth":"%s"}}}' "$(printf alice:secret | base64)" >/home/bob/auth.json
  chmod 644 /home/bob/auth.json
  run_and_show as bob env REGISTRY_AUTH_FILE=/home/bob/auth.json srun --container-image=token.test/tiny true
  [ "$status" -eq 0 ]
}
@test "an IPv6 address with a port" {
  [ -e /proc/net/if_inet6 ] || skip "this kernel has no IPv6"
  run_and_show as_alice situla import -o "$BATS_TEST_TMPDIR/image.sqsh" 'docker://[::1]:5443/good'
  [ "$status" -eq 0 ]
  unsquashfs -cat "$BATS_TEST_TMPDIR/image.sqsh" etc/rc | grep -F 'docker://[::1]:5443/good:latest@sha256:'
}
