# lab: --user root
# Proxies, certificates, plain HTTP, HTTP/2, connections: what a site's network asks of an import.
load helpers

setup() {
  chmod 777 "$BATS_TEST_TMPDIR"
  chmod 755 "$BATS_RUN_TMPDIR" "$BATS_SUITE_TMPDIR" "$BATS_FILE_TMPDIR" "${BATS_TEST_TMPDIR%/*}"
  stranger=$(dirname "$SITULA_LAB_IMAGES")/tls/stranger.crt
}

# import REFERENCE [VAR=VALUE...]: as alice, who has no layer of it yet.
import() {
  rm -f "$BATS_TEST_TMPDIR/image.sqsh"
  run_and_show as_alice env ENROOT_CACHE_PATH="$(mktemp -d -p "$BATS_TEST_TMPDIR")/none" "${@:2}" timeout 50 situla import -o "$BATS_TEST_TMPDIR/image.sqsh" "$1"
  [ "$status" -ne 124 ]
}
arrives() {
  import "$@"
  [ "$status" -eq 0 ]
  [ -s "$BATS_TEST_TMPDIR/image.sqsh" ]
}
# breaks PATTERN REFERENCE [VAR=VALUE...]: one error, which says so.
breaks() {
  import "${@:2}"
  [ "$status" -ne 0 ]
  [ "$(grep -c ERROR <<<"$output")" -eq 1 ]
  grep ERROR <<<"$output" | grep -Eq -- "$1" || { echo "the error does not say: $1"; return 1; }
}

# What the proxy, or a registry, counted, through a filter of jq's.
proxied() { curl -s "http://proxy.test:3128/stats/$1" | jq -c "$2"; }
counted() { curl -s "https://fault.test/stats/$1" | tee "$BATS_TEST_TMPDIR/stats" | jq -e "$2" >/dev/null || { cat "$BATS_TEST_TMPDIR/stats"; return 1; }; }

# Lines of an access log since mark().
mark() { marked=$(wc -l <"$SITULA_LAB/logs/$1.log"); }
since() { tail -n "+$((marked + 1))" "$SITULA_LAB/logs/$1.log"; }


@test "https_proxy: every connection is a tunnel, the token server's too" {
  arrives docker://token.test/tiny https_proxy=http://one:x@proxy.test:3128
  [ "$(proxied one '.connects | unique')" = '["auth-token.test:443","token.test:443"]' ]
  arrives docker://registry.test/tiny HTTPS_PROXY=http://two:x@proxy.test:3128
  [ "$(proxied two '.connects | unique')" = '["registry.test:443"]' ]
  arrives docker://registry.test/tiny all_proxy=http://three:x@proxy.test:3128
  [ "$(proxied three '.connects | unique')" = '["registry.test:443"]' ]
}
@test "no_proxy: by name, by domain, all" {
  arrives docker://token.test/tiny https_proxy=http://some:x@proxy.test:3128 no_proxy=other.test,token.test
  [ "$(proxied some '.connects | unique')" = '["auth-token.test:443"]' ]
  arrives docker://token.test/tiny https_proxy=http://none:x@proxy.test:3128 no_proxy=.test
  arrives docker://token.test/tiny https_proxy=http://none:x@proxy.test:3128 NO_PROXY='*'
  [ "$(proxied none .connects)" = '[]' ]
}
@test "http_proxy: plain requests, and not its name in capitals" {
  arrives docker://plain.test/good ENROOT_ALLOW_HTTP=yes http_proxy=http://plain:x@proxy.test:3128
  [ "$(proxied plain '.urls | length >= 4 and all(startswith("http://plain.test/v2/"))')" = true ]
  arrives docker://plain.test/good ENROOT_ALLOW_HTTP=yes HTTP_PROXY=http://capitals:x@proxy.test:3128
  [ "$(proxied capitals .urls)" = '[]' ]
}
@test "a job's proxy serves its import" {
  run_and_show as_alice env https_proxy=http://job:x@proxy.test:3128 srun --container-image=registry.test/tiny:zstd true
  [ "$status" -eq 0 ]
  [ "$(proxied job '.connects | unique')" = '["registry.test:443"]' ]
}
@test "a proxy that refuses, is down or unknown: the error says that it is the proxy" {
  breaks 'connect to registry.test: the proxy refuses \(403\)' docker://registry.test/tiny https_proxy=http://refuse:hidden-word@proxy.test:3128
  [[ "$output" != *hidden-word* ]]
  breaks 'connect to the proxy refused.test:3128 for registry.test: Connection refused' docker://registry.test/tiny https_proxy=http://me:hidden-word@refused.test:3128
  [[ "$output" != *hidden-word* ]]
  breaks 'resolve the proxy' docker://registry.test/tiny https_proxy=http://unknown.test:3128
}
@test "SSL_CERT_FILE, by the command and in a job" {
  breaks 'certificate' docker://badcert.test/good
  arrives docker://badcert.test/good SSL_CERT_FILE="$stranger"
  run_and_show as_alice env SSL_CERT_FILE="$stranger" srun --container-image=badcert.test/good true
  [ "$status" -eq 0 ]
  breaks 'certificate' docker://registry.test/tiny SSL_CERT_FILE="$stranger"
  breaks 'CA certificates' docker://registry.test/tiny SSL_CERT_FILE=/nosuch.pem
  breaks 'read the CA certificates SSL_CERT_FILE=/etc/passwd: there is none \[registry-certificate\]' docker://registry.test/tiny SSL_CERT_FILE=/etc/passwd SSL_CERT_DIR=/etc/ssl/certs
  run_and_show as_alice env SSL_CERT_FILE=/etc/passwd srun --container-image=registry.test/tiny:zstd true
  [ "$status" -ne 0 ]
  [[ "$output" == *"read the CA certificates SSL_CERT_FILE=/etc/passwd: there is none [registry-certificate]"* ]]
}
@test "SSL_CERT_DIR" {
  mkdir "$BATS_TEST_TMPDIR/certificates"
  cp "$stranger" "$BATS_TEST_TMPDIR/certificates/$(openssl x509 -noout -hash -in "$stranger").0"
  chmod -R a+rX "$BATS_TEST_TMPDIR/certificates"
  arrives docker://badcert.test/good SSL_CERT_DIR="$BATS_TEST_TMPDIR/certificates"
  breaks 'certificate' docker://badcert.test/good SSL_CERT_DIR="$BATS_TEST_TMPDIR/bats"
}
@test "ENROOT_ALLOW_HTTP: a registry without TLS; one with TLS keeps it" {
  breaks 'connect to plain.test.*refused' docker://plain.test/good
  arrives docker://plain.test/good ENROOT_ALLOW_HTTP=yes
  breaks 'certificate' docker://badcert.test/good ENROOT_ALLOW_HTTP=yes
  mark registry.test
  arrives docker://registry.test/tiny ENROOT_ALLOW_HTTP=yes
  since registry.test | grep -q 'HTTP/2.0'
}
@test "HTTP/2 where the server speaks it, and connections that are used again" {
  mark registry.test
  arrives docker://registry.test/debian:12 ENROOT_MAX_CONNECTIONS=3
  since registry.test >"$BATS_TEST_TMPDIR/log"
  [ "$(grep -c '"GET /v2/debian/.* HTTP/2.0"' "$BATS_TEST_TMPDIR/log")" -ge 8 ]
  if grep 'HTTP/1' "$BATS_TEST_TMPDIR/log"; then return 1; fi
  grep -o 'http.request.remoteaddr="[^"]*"' "$BATS_TEST_TMPDIR/log" | sort | uniq -c | tee "$BATS_TEST_TMPDIR/connections"
  [ "$(wc -l <"$BATS_TEST_TMPDIR/connections")" -le 3 ]
}
@test "HTTP/1.1 elsewhere: no more than ENROOT_MAX_CONNECTIONS at once, each for many requests" {
  arrives docker://fault.test/slow-1-large ENROOT_MAX_CONNECTIONS=3
  counted slow-1-large '.requests >= 9 and .peak >= 2 and .peak <= 3 and .connections <= 3'
  arrives docker://fault.test/slow-2-large ENROOT_MAX_CONNECTIONS=1
  counted slow-2-large '.requests >= 9 and .peak == 1 and .connections == 1'
}
