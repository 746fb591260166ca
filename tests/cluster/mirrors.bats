# lab: --user root --situla-conf tests/cluster/mirrors.toml
# Mirrors, pull-through caches and blocked registries, as administrators and users write them down.
load helpers

setup() {
  chmod 777 "$BATS_TEST_TMPDIR"
  chmod 755 "$BATS_RUN_TMPDIR" "$BATS_SUITE_TMPDIR" "$BATS_FILE_TMPDIR" "${BATS_TEST_TMPDIR%/*}"
  rm -rf /home/alice/.config/containers
}

# rules: standard input becomes alice's registries.conf.
rules() {
  install -d -o alice -g alice /home/alice/.config/containers
  cat >/home/alice/.config/containers/registries.conf
}

# import REFERENCE: as alice, who has no layer of it yet.
import() {
  rm -f "$BATS_TEST_TMPDIR/image.sqsh"
  run_and_show as_alice env ENROOT_CACHE_PATH="$(mktemp -d -p "$BATS_TEST_TMPDIR")/none" timeout 50 situla import -o "$BATS_TEST_TMPDIR/image.sqsh" "$1"
  [ "$status" -ne 124 ]
}

arrives() {
  import "$1"
  [ "$status" -eq 0 ]
  unsquashfs -cat "$BATS_TEST_TMPDIR/image.sqsh" etc/rc >"$BATS_TEST_TMPDIR/rc"
}

# breaks REFERENCE PATTERN...: one error, and every pattern is in it.
breaks() {
  local pattern
  import "$1"
  [ "$status" -ne 0 ]
  [ "$(grep -c ERROR <<<"$output")" -eq 1 ]
  for pattern in "${@:2}"; do
    grep ERROR <<<"$output" | grep -Eq -- "$pattern" || { echo "the error does not say: $pattern"; return 1; }
  done
}

digest_of() { skopeo inspect "docker://registry.test/$1" | jq -r .Digest; }


@test "a job's image from the mirror of a registry that is down, by tag and by digest" {
  local digest
  digest=$(digest_of tiny:v2s2)
  run_and_show as_alice srun --container-image=refused.test/tiny:v2s2 cat /etc/os-release
  [ "$status" -eq 0 ]
  # The store knows it by the name that was asked for.
  run_and_show jq -r .source "/var/lib/situla/images/sha256/${digest#sha256:}".*.json
  [ "$output" = "refused.test/tiny" ]
  run_and_show as_alice srun --container-image="refused.test/tiny@$(digest_of tiny:zstd)" true
  [ "$status" -eq 0 ]
}
@test "situla import does the same, and the file says where the image is from" {
  arrives docker://refused.test/tiny
  grep -F 'docker://refused.test/tiny:latest@sha256:' "$BATS_TEST_TMPDIR/rc"
  arrives "docker://refused.test/tiny@$(digest_of tiny:latest)"
  run_and_show as_alice situla digest docker://refused.test/tiny
  [ "$output" = "$(digest_of tiny:latest)" ]
}
@test "a blocked registry is refused, in jobs and by the command" {
  breaks docker://blocked.test/tiny 'images of blocked.test are blocked by /etc/situla/situla.toml:9'
  run_and_show as_alice srun --container-image=blocked.test/tiny true
  [ "$status" -ne 0 ]
  grep -q 'images of blocked.test are blocked by /etc/situla/situla.toml:9' <<<"$output"
}
@test "a mistake in situla.toml says its line" {
  sed 's/^location/lokation/' /etc/situla/situla.toml >"$BATS_TEST_TMPDIR/wrong.toml"
  cp /etc/situla/situla.toml "$BATS_TEST_TMPDIR/right.toml"
  cat "$BATS_TEST_TMPDIR/wrong.toml" >/etc/situla/situla.toml
  import docker://registry.test/tiny
  cat "$BATS_TEST_TMPDIR/right.toml" >/etc/situla/situla.toml
  [ "$status" -ne 0 ]
  grep -F '/etc/situla/situla.toml:7: unknown key "lokation"' <<<"$output"
  grep -F 'hint: did you mean "location"? known keys here: location, insecure, pull-from-mirror' <<<"$output"
}
@test "the machine's registries.conf counts in jobs; a user's own does not" {
  printf '[[registry]]\nprefix = "unknown.test"\nlocation = "registry.test"\n' >/etc/containers/registries.conf.d/lab.conf
  run_and_show as_alice srun --container-image=unknown.test/tiny true
  [ "$status" -eq 0 ]
  arrives docker://unknown.test/tiny
  rm /etc/containers/registries.conf.d/lab.conf
  rules <<<$'[[registry]]\nprefix = "unknown.test"\nlocation = "registry.test"'
  arrives docker://unknown.test/tiny
  run_and_show as_alice srun --container-image=unknown.test/tiny true
  [ "$status" -ne 0 ]
}
@test "a registries.conf that others can write to decides nothing for everybody" {
  printf '[[registry]]\nprefix = "unknown.test"\nlocation = "registry.test"\n' >/etc/containers/registries.conf.d/lab.conf
  chmod 666 /etc/containers/registries.conf.d/lab.conf
  run_and_show as_alice srun --container-image=registry.test/tiny true
  rm /etc/containers/registries.conf.d/lab.conf
  [ "$status" -ne 0 ]
  grep -q 'others than root can write to it' <<<"$output"
}
@test "mirrors in their order, then the registry; what was not used is told" {
  rules <<'CONF'
[[registry]]
location = "registry.test/tiny"
[[registry.mirror]]
location = "unknown.test/tiny"
[[registry.mirror]]
location = "fault.test/status-500"
CONF
  local asked
  asked=$(curl -s https://fault.test/stats/status-500 | jq .requests)
  arrives docker://registry.test/tiny
  grep -q 'mirror not used: at unknown.test/tiny: resolve host unknown.test' <<<"$output"
  grep -q 'mirror not used: at fault.test/status-500: .*500' <<<"$output"
  [ "$(curl -s https://fault.test/stats/status-500 | jq .requests)" -eq $((asked + 1)) ]
}
@test "when all fail the error names all" {
  rules <<'CONF'
[[registry]]
location = "refused.test/tiny"
[[registry.mirror]]
location = "badcert.test/good"
[[registry.mirror]]
location = "fault.test/status-404"
CONF
  breaks docker://refused.test/tiny 'refused.test/tiny: connect to refused.test.*refused' 'before that' 'badcert.test/good: .*certificate' 'fault.test/status-404: .*404'
}
@test "a mirror that gives the manifest and no layers: they come from the registry" {
  rules <<'CONF'
[[registry]]
prefix = "content.test/good"
[[registry.mirror]]
location = "fault.test/truncated"
CONF
  arrives docker://content.test/good
  [ "$(curl -s https://content.test/stats/good | jq '.logins["content.test"] | length')" -ge 1 ]
}
@test "mirrors for digests only" {
  rules <<'CONF'
[[registry]]
prefix = "refused.test/tiny"
mirror-by-digest-only = true
[[registry.mirror]]
location = "registry.test/tiny"
CONF
  # The longer prefix of situla.toml and of this file would win; this one is longer.
  breaks docker://refused.test/tiny 'connect to refused.test'
  arrives "docker://refused.test/tiny@$(digest_of tiny:latest)"
}
@test "Docker Hub by its names" {
  rules <<'CONF'
[[registry]]
prefix = "docker.io/library"
location = "registry.test"
[[registry]]
prefix = "docker.io"
blocked = true
CONF
  arrives docker://tiny
  arrives docker://index.docker.io/library/tiny
  breaks docker://somebody/tiny 'images of docker.io are blocked by /home/alice/.config/containers/registries.conf:4'
}
@test "a registry without TLS, or with a stranger's certificate, where a rule says so" {
  rules <<'CONF'
[[registry]]
location = "badcert.test"
insecure = true
[[registry]]
location = "plain.test"
insecure = true
[[registry]]
prefix = "refused.test/good"
[[registry.mirror]]
location = "plain.test/good"
insecure = true
CONF
  arrives docker://badcert.test/good
  arrives docker://plain.test/good
  arrives docker://refused.test/good
  rm -r /home/alice/.config/containers
  breaks docker://badcert.test/good 'certificate'
}
@test "a mirror is asked with its own login" {
  rules <<'CONF'
[[registry]]
prefix = "refused.test/team"
[[registry.mirror]]
location = "auth.test"
CONF
  arrives docker://refused.test/team/tiny
  rules <<'CONF'
[[registry]]
prefix = "refused.test/team"
[[registry.mirror]]
location = "token.test"
CONF
  # .credentials has the token server's host, which counts for token.test itself; here it would be somebody else's.
  breaks docker://refused.test/team/tiny 'at token.test/tiny: token server auth-token.test: refuses an anonymous user'
  printf '{"auths":{"token.test":{"auth":"%s"}}}' "$(printf alice:secret | base64)" >"$BATS_TEST_TMPDIR/auth.json"
  chmod 644 "$BATS_TEST_TMPDIR/auth.json"
  export REGISTRY_AUTH_FILE=$BATS_TEST_TMPDIR/auth.json
  arrives docker://refused.test/team/tiny
}
@test "the registry's login goes to no mirror, and no token for it" {
  rules <<'CONF'
[[registry]]
prefix = "auth.test"
[[registry.mirror]]
location = "fault.test/status-401/x"
[[registry.mirror]]
location = "fault.test/greedy/x"
CONF
  arrives docker://alice@auth.test/tiny
  run_and_show curl -s https://fault.test/stats/status-401/x/tiny
  jq -e '.requests >= 1 and (.logins["fault.test"] | any | not)' <<<"$output"
  run_and_show curl -s https://fault.test/stats/greedy/x/tiny
  jq -e '.requests >= 1 and (.logins["fault.test"] | any | not)' <<<"$output"
}
