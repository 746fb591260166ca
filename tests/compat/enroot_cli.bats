# lab:
# The enroot commands of users' scripts, as they write them. COMPAT.md section 3. As alice, on a node.
bats_require_minimum_version 1.5.0

setup() {
  work=$(mktemp -d "$HOME/enroot.XXXXXX")
  cd "$work"
  export ENROOT_DATA_PATH=$work/data
}

teardown() {
  cd /
  chmod -R u+rwX "$work"
  rm -rf "$work"
}

# errors_match PATTERN...: every pattern is on standard error of the last `run --separate-stderr`.
errors_match() {
  local pattern
  for pattern in "$@"; do
    grep -Eq -- "$pattern" <<<"$stderr" || { echo "standard error lacks $pattern:"; echo "$stderr"; return 1; }
  done
}

@test "import, create, list, start, remove: the whole life of a container" {
  enroot import docker://registry.test#debian:12
  [ -f debian+12.sqsh ]
  enroot create --name mine debian+12.sqsh
  run --separate-stderr enroot list
  [ "$output" = mine ]
  run --separate-stderr enroot start mine grep PRETTY /etc/os-release
  [ "$status" -eq 0 ]
  [ "$output" = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"' ]
  enroot remove -f mine
  [ -z "$(enroot list)" ]
  [ -z "$(ls -A data)" ]
}

@test "load: a container at once, without a squashfs file" {
  enroot load docker://registry.test#debian:12
  enroot load -n named docker://registry.test#tiny
  run --separate-stderr enroot list
  [ "$output" = "debian+12
named" ]
  [ -z "$(ls -A | grep -v data)" ]
  run --separate-stderr enroot start debian+12 grep PRETTY /etc/os-release
  [ "$output" = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"' ]
  run --separate-stderr enroot load --name=named docker://registry.test#nosuchimage
  [ "$status" -eq 1 ]
  errors_match '^\[ERROR\] File already exists: .*/named'
  run --separate-stderr enroot load -f --name=named docker://registry.test#nosuchimage
  [ "$status" -eq 1 ]
  errors_match 'failed to import docker image: registry.test#nosuchimage'
  run --separate-stderr enroot start named true
  [ "$status" -eq 0 ]
  enroot load --force --name named docker://registry.test#debian:12
  run --separate-stderr enroot start named grep -c PRETTY /etc/os-release
  [ "$output" = 1 ]
  enroot remove -f named debian+12
  [ -z "$(ls -A data)" ]
}

@test "default names of imported files" {
  enroot import docker://registry.test#tiny
  [ -f tiny+latest.sqsh ]
  enroot import docker://registry.test/public/tiny:latest
  [ -f public+tiny+latest.sqsh ]
  enroot import --output=named.sqsh docker://registry.test#tiny
  [ -f named.sqsh ]
  enroot import -o other.sqsh docker://registry.test#tiny
  # Without the dates: those of /etc/rc and its like are when the import was.
  listing() { unsquashfs -ll -n "$1" | awk '{ $4 = $5 = ""; print }'; }
  listing named.sqsh | grep -q 'bin/busybox'
  cmp <(listing named.sqsh) <(listing other.sqsh)
}

@test "an existing file is not overwritten" {
  touch tiny+latest.sqsh
  run --separate-stderr enroot import docker://registry.test#tiny
  [ "$status" -eq 1 ]
  errors_match '^\[ERROR\] .*File already exists: .*tiny\+latest\.sqsh'
  [ ! -s tiny+latest.sqsh ]
}

@test "create names the container after the file and refuses an existing one" {
  enroot import -o tiny.sqsh docker://registry.test#tiny
  enroot create tiny.sqsh
  run --separate-stderr enroot create tiny.sqsh
  [ "$status" -eq 1 ]
  errors_match "^\[ERROR\] File already exists: $ENROOT_DATA_PATH/tiny \[container-exists\]$"
  enroot create -f tiny.sqsh
  [ "$(enroot list)" = tiny ]
}

@test "start returns the command's exit status" {
  enroot import -o tiny.sqsh docker://registry.test#tiny
  enroot create tiny.sqsh
  run enroot start tiny sh -c 'exit 42'
  [ "$status" -eq 42 ]
  run enroot start tiny sh -c 'kill -TERM $$'
  [ "$status" -eq 143 ]
}

@test "start NAME is the container also where a file that is no image has that name" {
  enroot import -o tiny.sqsh docker://registry.test#tiny
  enroot create -n train tiny.sqsh
  echo 'a log' >train
  [ "$(enroot start train cat hello.txt)" = "hello from the top layer" ]
  chmod 000 train
  [ "$(enroot start train cat hello.txt)" = "hello from the top layer" ]
  rm -f train
  enroot start --rw train touch /made
  [ "$(enroot start train ls /made)" = /made ]
  # An image is meant before a container.
  mv tiny.sqsh train
  run enroot start train ls /made
  [ "$status" -eq 1 ]
}

@test "start runs a squashfs file without extracting it" {
  enroot import -o tiny.sqsh docker://registry.test#tiny
  run --separate-stderr enroot start tiny.sqsh sh -c 'echo inside; cat /proc/mounts'
  [ "$status" -eq 0 ]
  [ "${lines[0]}" = inside ]
  grep -Eq '^situla / overlay ' <<<"$output"
  [ ! -e data ] || [ -z "$(ls -A data)" ]
}

@test "start --root, --rw, --env and --mount" {
  enroot import -o tiny.sqsh docker://registry.test#tiny
  enroot create tiny.sqsh
  mkdir shared
  echo content >shared/f
  [ "$(enroot start --root tiny id -u)" = 0 ]
  [ "$(enroot start tiny id -u)" = "$(id -u)" ]
  run ! enroot start tiny touch /new
  enroot start --rw tiny touch /new
  enroot start tiny [ -e /new ]
  [ "$(MINE=host enroot start --env A=b -e MINE tiny sh -c 'echo $A $MINE')" = "b host" ]
  [ "$(enroot start -m "$work/shared:/mnt" tiny cat /mnt/f)" = content ]
  [ "$(enroot start --mount "$work/shared:/deep/dir:none:bind,ro,x-create=dir" tiny cat /deep/dir/f)" = content ]
}

@test "remove asks, and -f does not" {
  mkdir -p data/a data/b
  run --separate-stderr enroot remove a <<<n
  [ "$status" -eq 0 ]
  [ -d data/a ]
  errors_match "^Do you really want to delete $ENROOT_DATA_PATH/a\? \[y/N\]"
  enroot remove a <<<y
  [ ! -e data/a ]
  enroot remove -f b
  [ ! -e data/b ]
  run --separate-stderr enroot remove -f b
  [ "$status" -eq 1 ]
  errors_match '^\[ERROR\] No such file or directory: '
}

@test "settings come from enroot.conf style variables" {
  enroot import -o tiny.sqsh docker://registry.test#tiny
  enroot create tiny.sqsh
  [ "$(ENROOT_REMAP_ROOT=y enroot start tiny id -u)" = 0 ]
  ENROOT_ROOTFS_WRITABLE=yes enroot start tiny touch /written
  enroot start tiny [ -e /written ]
  ENROOT_SQUASH_OPTIONS="-comp lz4 -b 256K" enroot import -o lz4.sqsh docker://registry.test#tiny
  unsquashfs -s lz4.sqsh | grep -q 'Compression lz4'
  unsquashfs -s lz4.sqsh | grep -q 'Block size 262144'
}

@test "credentials of .credentials are used, and missing ones are said to be missing" {
  enroot import -o auth.sqsh docker://auth.test#tiny
  ENROOT_CONFIG_PATH=/nonexistent run --separate-stderr enroot import -o none.sqsh docker://auth.test#tiny
  [ "$status" -eq 1 ]
  errors_match '^\[ERROR\] .*auth\.test' '^hint: '
  [ ! -e none.sqsh ]
}

@test "usage goes to standard output, errors to standard error" {
  run --separate-stderr enroot help
  [ "$status" -eq 0 ]
  [[ "$output" == *"Usage: enroot"* ]]
  [ -z "$stderr" ]
  run --separate-stderr enroot nonsense
  [ "$status" -eq 1 ]
  [ -z "$output" ]
  errors_match '^\[ERROR\] unknown command "nonsense" \[option\]$' '^hint: enroot help$'
  [[ "$(enroot version)" =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]]
}

@test "info prints the configuration" {
  run --separate-stderr enroot info
  [ "$status" -eq 0 ]
  grep -qx "ENROOT_DATA_PATH=$ENROOT_DATA_PATH" <<<"$output"
}

# manifest_digest LAYOUT TAG ARCH: the digest of the image's manifest for an architecture, from the OCI layout itself.
manifest_digest() {
  python3 - "$SITULA_LAB_IMAGES/$1" "$2" "$3" <<'END'
import json, sys
layout, tag, architecture = sys.argv[1:]
entries = json.load(open(f"{layout}/index.json"))["manifests"]
entry = next(e for e in entries if e["annotations"]["org.opencontainers.image.ref.name"] == tag)
document = json.load(open(f"{layout}/blobs/{entry['digest'].replace(':', '/')}"))
if "manifests" in document:
    entry = next(e for e in document["manifests"] if e["platform"]["architecture"] == architecture)
print(entry["digest"])
END
}

@test "digest prints what a reference means now" {
  run --separate-stderr enroot digest docker://registry.test#tiny
  [ "$status" -eq 0 ]
  [ "$output" = "$(manifest_digest tiny latest amd64)" ]
  [ -z "$stderr" ]
  run --separate-stderr enroot digest "docker://registry.test#tiny@$output"
  [ "$output" = "$(manifest_digest tiny latest amd64)" ]
  run --separate-stderr enroot digest -a aarch64 docker://registry.test/multiarch
  [ "$output" = "$(manifest_digest multiarch latest arm64)" ]
  run --separate-stderr enroot digest --arch=amd64 docker://registry.test/multiarch
  [ "$output" = "$(manifest_digest multiarch latest amd64)" ]
  [ "$(situla digest docker://auth.test#tiny)" = "$(manifest_digest tiny latest amd64)" ]
}

@test "digest of what cannot be had is an error" {
  run --separate-stderr enroot digest docker://registry.test#no/such
  [ "$status" -eq 1 ]
  [ -z "$output" ]
  errors_match '^\[ERROR\] .*registry\.test#no/such: .*404' '^hint: '
  run --separate-stderr enroot digest -a ppc64le docker://registry.test/multiarch
  [ "$status" -eq 1 ]
  errors_match '^\[ERROR\] .*does not exist for linux/ppc64le' '^hint: it exists for '
}

@test "inspect shows an image in a registry" {
  run --separate-stderr situla inspect docker://registry.test#debian:12
  [ "$status" -eq 0 ]
  [ -z "$stderr" ]
  grep -qx "Digest:      $(manifest_digest debian 12 amd64)" <<<"$output"
  grep -qx 'Platform:    linux/amd64' <<<"$output"
  grep -Eq '^Layers:      [0-9]+, .* MiB \([0-9]+ bytes\)$' <<<"$output"
  # The manifest's own bytes, and the same facts for programs.
  [ "sha256:$(situla inspect --raw docker://registry.test#debian:12 | sha256sum | cut -d' ' -f1)" = "$(manifest_digest debian 12 amd64)" ]
  situla inspect --json docker://registry.test#debian:12 >json
  situla inspect --raw docker://registry.test#debian:12 >raw
  python3 - <<'END'
import json
shown, raw = json.load(open("json")), json.load(open("raw"))
assert [l["digest"] for l in shown["layers"]] == [l["digest"] for l in raw["layers"]]
assert shown["size"] == sum(l["size"] for l in raw["layers"])
assert shown["mediaType"] == raw["mediaType"], shown["mediaType"]
assert shown["platform"]["architecture"] == "amd64"
assert any(line.startswith("PATH=") for line in shown["config"]["env"]), shown["config"]
END
  run --separate-stderr situla inspect --arch=arm64 registry.test/multiarch
  grep -q '^Platform:    linux/arm64' <<<"$output"
}

@test "inspect shows squashfs files, ours and mksquashfs's" {
  enroot import -o tiny.sqsh docker://registry.test#tiny
  run --separate-stderr situla inspect tiny.sqsh
  [ "$status" -eq 0 ]
  grep -qx 'Compressor:  zstd' <<<"$output"
  grep -Eqx "Provenance:  docker://registry.test/tiny:latest@$(manifest_digest tiny latest amd64)" <<<"$output"
  mkdir tree
  mksquashfs tree plain.sqsh -quiet -no-progress >/dev/null
  situla inspect ./plain.sqsh | grep -q '^Provenance:  none: '
  situla inspect --json ./plain.sqsh | python3 -c 'import json, sys; assert json.load(sys.stdin)["source"] is None'
}

# check_trace FILE NAME...: valid events, without overlaps in a row but nested ones, and spans of these names.
check_trace() {
  python3 - "$@" <<'END'
import json, sys
events = json.load(open(sys.argv[1]))
assert {e["ph"] for e in events} <= {"X", "M"}, events[0]
spans = [e for e in events if e["ph"] == "X"]
rows = {e["tid"] for e in events if e["ph"] == "M"}
ends = {}
for span in sorted(spans, key=lambda e: (e["tid"], e["ts"], -e["dur"])):
    assert span["tid"] in rows and span["dur"] >= 0 and span["ts"] >= 0, span
    stack = ends.setdefault(span["tid"], [])
    while stack and stack[-1] <= span["ts"] + 0.002:
        stack.pop()
    assert not stack or span["ts"] + span["dur"] <= stack[-1] + 0.002, ("overlap", span)
    stack.append(span["ts"] + span["dur"])
names = {e["name"] for e in spans}
missing = set(sys.argv[2:]) - names
assert not missing, (missing, names)
layers = {e["args"]["layer"] for e in spans if e["name"] == "inflate"}
assert all(layer.startswith("layer ") for layer in layers), layers
END
}

@test "import --trace shows where the time goes, also when the import fails" {
  situla import --trace trace.json -o debian.sqsh docker://registry.test#debian:12
  check_trace trace.json resolve 'fetch configuration' 'download wait' hash inflate 'wait for inflate' tar compress \
    'compress block' write 'merge and write inodes' sync
  run --separate-stderr situla import --trace broken.json -o broken.sqsh docker://registry.test/broken:digest
  [ "$status" -eq 1 ]
  [ ! -e broken.sqsh ]
  check_trace broken.json resolve 'download wait' hash
  run --separate-stderr situla import --trace /nonexistent/trace -o none.sqsh docker://registry.test#tiny
  [ "$status" -eq 1 ]
  errors_match '^\[ERROR\] create /nonexistent/trace: No such file or directory'
  [ ! -e none.sqsh ]
}
