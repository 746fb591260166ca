# lab: --user root
# Who gets an image that the node has? Only somebody whom its registry lets in: neither a digest nor a manifest opens anything.
load ../cluster/helpers

# A registry of bob's own, that says it is auth.test: bob chooses his proxy, and the certificates he trusts. It has the manifest, which
# he may have seen in a log, and none of the layers; whoever asks for a byte of one gets a byte.
fake_registry() {
  rm -f "$BATS_TEST_TMPDIR/asked"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=auth.test -addext subjectAltName=DNS:auth.test \
    -keyout "$BATS_TEST_TMPDIR/key.pem" -out "$BATS_TEST_TMPDIR/certificate.pem" 2>/dev/null
  chmod 644 "$BATS_TEST_TMPDIR/certificate.pem"
  python3 - "$BATS_TEST_TMPDIR" <<'PYTHON' 3>&- &
import hashlib, ssl, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
folder = sys.argv[1]
manifest = open(folder + "/manifest", "rb").read()
configuration = open(folder + "/configuration", "rb").read()
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder + "/certificate.pem", folder + "/key.pem")
class Fake(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_CONNECT(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        self.connection = context.wrap_socket(self.connection, server_side=True)
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
        self.close_connection = False
    def do_GET(self):
        own = self.path.endswith(hashlib.sha256(configuration).hexdigest())
        blob = "/blobs/" in self.path and not own
        body = configuration if own else b"x" if blob else manifest
        self.send_response(206 if blob else 200)
        self.send_header("Content-Type", "application/vnd.oci.image.manifest.v1+json")
        self.send_header("Content-Length", str(len(body)))
        if blob:
            self.send_header("Content-Range", "bytes 0-0/*")
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        open(folder + "/asked", "a").write(self.path + "\n")
server = ThreadingHTTPServer(("127.0.0.1", 3200), Fake)
open(folder + "/asked", "w").close()
server.serve_forever()
PYTHON
  server=$!
  wait_until 30 test -e "$BATS_TEST_TMPDIR/asked"
}

# bob_asks REFERENCE: and gets nothing.
bob_asks() {
  run_and_show as bob env SSL_CERT_FILE="$BATS_TEST_TMPDIR/certificate.pem" https_proxy=http://127.0.0.1:3200 srun --container-image="$1" true
  kill "$server"
  cat "$BATS_TEST_TMPDIR/asked"
  [ "$status" -ne 0 ]
  grep -q manifests "$BATS_TEST_TMPDIR/asked"
}

# How many layers and configurations auth.test gave out.
blobs_given() { grep -c '"GET /v2/[^ ]*/blobs/[^ ]* HTTP' "$SITULA_LAB/logs/auth.test.log" || true; }

setup() {
  chmod 777 "$BATS_TEST_TMPDIR"
  printf '{"architecture":"amd64","os":"linux","config":{}}' >"$BATS_TEST_TMPDIR/configuration"
  chmod 755 "$BATS_RUN_TMPDIR" "$BATS_SUITE_TMPDIR" "$BATS_FILE_TMPDIR" "${BATS_TEST_TMPDIR%/*}"
}

@test "a registry of one's own with another's name opens no image of the node's store" {
  local digest server before
  digest=$(skopeo inspect docker://registry.test/weird | jq -r .Digest)
  skopeo inspect --raw "docker://registry.test/weird@$digest" >"$BATS_TEST_TMPDIR/manifest"
  run_and_show as_alice srun --container-image=auth.test/weird true
  [ "$status" -eq 0 ]
  fake_registry
  bob_asks "auth.test/weird@$digest"
  # Alice still starts from the store.
  before=$(blobs_given)
  run_and_show as_alice srun --container-image=auth.test/weird true
  [ "$status" -eq 0 ]
  [ "$(blobs_given)" -eq "$before" ]
}
@test "a manifest of one's own opens no layers of the node's store" {
  local server
  run_and_show as_alice srun --container-image=auth.test/debian:12 true
  [ "$status" -eq 0 ]
  # Bob knows digests of layers; the configuration is his own.
  skopeo inspect --raw docker://registry.test/debian:12 |
    jq -c --arg digest "sha256:$(sha256sum <"$BATS_TEST_TMPDIR/configuration" | cut -d' ' -f1)" \
      --argjson size "$(stat -c %s "$BATS_TEST_TMPDIR/configuration")" '.config.digest = $digest | .config.size = $size' >"$BATS_TEST_TMPDIR/manifest"
  fake_registry
  bob_asks auth.test/debian:12
}
@test "the same image at another registry is another one, which that registry has to give" {
  local digest before
  run_and_show as_alice srun --container-image=registry.test/tiny:v2s2 true
  [ "$status" -eq 0 ]
  before=$(blobs_given)
  run_and_show as_alice srun --container-image=auth.test/tiny:v2s2 true
  [ "$status" -eq 0 ]
  [ "$(blobs_given)" -gt "$before" ]
  before=$(blobs_given)
  run_and_show as_alice srun --container-image=auth.test/tiny:v2s2 true
  [ "$status" -eq 0 ]
  [ "$(blobs_given)" -eq "$before" ]
  digest=$(skopeo inspect docker://registry.test/tiny:v2s2 | jq -r .Digest)
  run_and_show jq -r .source "/var/lib/situla/images/sha256/${digest#sha256:}".*.json
  [ "$(sort <<<"$output" | paste -sd ' ')" = "auth.test/tiny registry.test/tiny" ]
}

@test "leave to have an image is one user's own, whatever is copied beside it" {
  run_and_show as_alice srun --container-image=auth.test/weird true
  [ "$status" -eq 0 ]
  [ "$(stat -c '%U %a' /var/lib/situla/grants "/var/lib/situla/grants/$(id -u alice)" | uniq)" = "situla 700" ]
  digest=$(skopeo inspect docker://registry.test/weird | jq -r .Digest)
  for image in "auth.test/weird@$digest" auth.test/weird; do
    rm -rf "/var/lib/situla/grants/$(id -u bob)"  # a refusal has taken them
    cp -a "/var/lib/situla/grants/$(id -u alice)" "/var/lib/situla/grants/$(id -u bob)"
    run_and_show as bob srun --container-image="$image" true
    [ "$status" -ne 0 ]
  done
  rm -rf "/var/lib/situla/grants/$(id -u bob)"
}

@test "without the login that had leave, a new job gets nothing, and after that no step does" {
  local login=/home/alice/.config/enroot/.credentials
  run_and_show as_alice srun --container-image=auth.test/weird true
  [ "$status" -eq 0 ]
  mv $login $login.away
  run_and_show as_alice srun --container-image=auth.test/weird true
  mv $login.away $login
  [ "$status" -ne 0 ]
  digest=$(skopeo inspect docker://registry.test/weird | jq -r .Digest)
  run_and_show as_alice env HOME=/nonexistent srun --container-image="auth.test/weird@$digest" true
  [ "$status" -ne 0 ]
}
