# lab: --user root
# The squashfs file that an import writes, in every compression, and what others make; what the user sees meanwhile.
bats_require_minimum_version 1.5.0

load import_trees

# mounted FILE COMMAND...: with the image at ./mount, by the kernel
mounted() {
  local file=$1 status=0
  shift
  mkdir -p mount
  mount -t squashfs -o loop,ro,nodev,nosuid "$file" mount
  "$@" || status=$?
  umount mount
  return "$status"
}

# same_content DIR DIR: types, modes, times, targets and bytes
same_content() {
  diff -r --no-dereference "$1" "$2"
  diff <(cd "$1" && find . ! -path . -printf '%p %y %m %T@ %l\n' | sort) <(cd "$2" && find . ! -path . -printf '%p %y %m %T@ %l\n' | sort)
}

# check_output COMPRESSOR BLOCK-BYTES OPTIONS: read by unsquashfs, the kernel and umoci's judge; the same again for any processors
check_output() {
  local image=oci:$SITULA_LAB_IMAGES/weird:latest processors
  export SOURCE_DATE_EPOCH=1700000000
  rm -rf a.sqsh b.sqsh unpacked
  for processors in 1 3; do
    ENROOT_SQUASH_OPTIONS=$3 ENROOT_MAX_PROCESSORS=$processors situla import -o "$processors.sqsh" "$image"
  done
  cmp 1.sqsh 3.sqsh
  rm 3.sqsh
  unsquashfs -s 1.sqsh >described
  grep -qx "Compression $1" described
  grep -qx "Block size $2" described
  unsquashfs -q -n -d unpacked 1.sqsh >/dev/null
  mounted 1.sqsh same_content mount unpacked
  "$here/import-vs-umoci" 1.sqsh "$SITULA_LAB_IMAGES/weird:latest"
  rm 1.sqsh
}

@test "every compressor and block size: unsquashfs, the kernel and umoci agree, and a second import is the same bytes" {
  cd "$work"
  check_output zstd 131072 ""
  check_output zstd 1048576 "-comp zstd -Xcompression-level 19 -b 1M"
  check_output gzip 131072 "-comp gzip -Xcompression-level 9"
  check_output gzip 4096 "-comp gzip -b 4K"
  check_output lz4 131072 "-comp lz4"
  check_output lz4 262144 "-comp lz4 -Xhc -b 256K"
  check_output xz 65536 "-comp xz -b 64K"
  check_output zstd 131072 "-noI -noD -noF -noX -no-duplicates"
  check_output zstd 131072 "-noD -no-fragments"
}

@test "lzo, which Debian's libsquashfs cannot write, becomes zstd with a warning" {
  cd "$work"
  ENROOT_SQUASH_OPTIONS="-comp lzo -noD" run situla import -o image.sqsh "oci:$SITULA_LAB_IMAGES/tiny:latest"
  echo "$output"
  [ "$status" = 0 ]
  if unsquashfs -s image.sqsh | grep -qx "Compression lzo"; then return 0; fi
  [[ "$output" == *"[WARN] ENROOT_SQUASH_OPTIONS: this libsquashfs cannot write the compressor asked for: using zstd level 1"* ]]
  unsquashfs -s image.sqsh | grep -qx "Compression zstd"
}

@test "options that make no sense are refused before anything is fetched" {
  cd "$work"
  local options
  for options in "-comp brotli" "-b 5000" "-b 2M" "-comp gzip -Xcompression-level 10" "-comp"; do
    ENROOT_SQUASH_OPTIONS=$options run situla import -o image.sqsh docker://unknown.test/x
    [ "$status" = 1 ]
    [[ "$output" == *"ENROOT_SQUASH_OPTIONS: "* ]]
    [ ! -e image.sqsh ]
  done
}

@test "images that mksquashfs made: inspected and started, whatever the compressor" {
  cd "$work"
  umoci unpack --image "$SITULA_LAB_IMAGES/tiny:latest" bundle >/dev/null
  local name
  for name in gzip lzo lz4 xz zstd "zstd -b 1M" "gzip -b 4K" "gzip -noI -noD -noF -noX" "lzma"; do
    mksquashfs bundle/rootfs image.sqsh -comp $name -noappend -quiet -no-progress >/dev/null
    run situla inspect ./image.sqsh
    echo "$output"
    grep -qx "Compressor:  ${name%% *}" <<<"$output"
    [ "$(situla start ./image.sqsh cat /etc/os-release | head -1)" = "$(head -1 bundle/rootfs/etc/os-release)" ]
  done
}

@test "the trace adds up: no thread works longer than the import lasts, and every stage is told" {
  cd "$work"
  situla import --trace trace.json -o image.sqsh docker://registry.test/debian:12
  python3 - <<'PYTHON'
import json
spans = [e for e in json.load(open("trace.json")) if e["ph"] == "X"]
wall = max(s["ts"] + s["dur"] for s in spans)
outermost, rows = 0, {}
for span in sorted(spans, key=lambda s: (s["tid"], s["ts"], -s["dur"])):
    end = span["ts"] + span["dur"]
    if end > rows.get(span["tid"], (0, 0))[0] + 0.002:  # not inside the one before
        rows[span["tid"]] = (end, rows.get(span["tid"], (0, 0))[1] + span["dur"])
for row, (_, busy) in rows.items():
    assert busy <= wall * 1.001 + 10, (row, busy, wall)
names = {s["name"] for s in spans}
assert names >= {"download wait", "inflate", "hash", "tar", "compress block", "write"}, names
assert {s["name"] for s in spans if s["tid"] == next(t["tid"] for t in spans if t["name"] == "hash")} >= {"hash", "inflate"}
PYTHON
}

@test "a trace replaces what has its name when it is whole, and is refused early where it cannot be" {
  cd "$work"
  echo old >trace.json
  situla import --trace trace.json -o image.sqsh docker://fault.test/stall 2>/dev/null &
  local child=$!
  sleep 1
  kill -KILL "$child"
  wait "$child" || true
  [ "$(cat trace.json)" = old ]
  situla import --trace trace.json -o image.sqsh "oci:$SITULA_LAB_IMAGES/tiny:latest"
  python3 -m json.tool trace.json >/dev/null
  [ "$(ls -A)" = "$(printf 'image.sqsh\ntrace.json')" ]
  situla import --trace /dev/stdout -o other.sqsh "oci:$SITULA_LAB_IMAGES/tiny:latest" | python3 -m json.tool >/dev/null
  # Nothing is even resolved.
  run situla import --trace missing/trace.json -o none.sqsh docker://unknown.test/x
  [ "$status" = 1 ]
  [ "${#lines[@]}" = 1 ]
  [[ "$output" == *"create missing/trace.json: No such file or directory [not-found]" ]]
}

@test "in a log: one line per phase, with seconds and bytes" {
  cd "$work"
  run situla import -o image.sqsh docker://registry.test/debian:12
  echo "$output"
  [ "${#lines[@]}" = 4 ]
  [[ "${lines[0]}" =~ ^"[INFO] resolving registry.test/debian:12: "[0-9.]+" s"$ ]]
  [[ "${lines[1]}" =~ ^"[INFO] importing "[0-9]+" layer"s?", "[0-9.]+" MiB: "[0-9.]+" s, "[0-9.]+" MiB"$ ]]
  [[ "${lines[2]}" =~ ^"[INFO] syncing image.sqsh: "[0-9.]+" s"$ ]]
  [[ "${lines[3]}" == "[INFO] imported docker://registry.test/debian:12@sha256:"*" to image.sqsh, "*" MiB" ]]
}

@test "on a terminal: bars as wide as the window is at the time, with rate and time to go" {
  cd "$work"
  python3 - <<'PYTHON'
import fcntl, os, pty, re, select, signal, struct, termios
pid, terminal = pty.fork()
if pid == 0:
    os.execvp("situla", ["situla", "import", "-o", "image.sqsh", "docker://fault.test/slow"])

def resize(rows, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))  # the kernel sends SIGWINCH

def read():
    """What comes next; nothing when the other side is gone, or has drawn nothing for long."""
    try:
        return os.read(terminal, 65536) if select.select([terminal], [], [], 30)[0] else b""
    except OSError:
        return b""

def watch(enough):
    """What is drawn until it is enough: a list of drawings, each a list of lines. The layer comes for half a minute."""
    data, drawings = b"", []
    while not enough(drawings):
        more = read()
        assert more, drawings
        data += more
        # The first one and the last one may not be whole.
        whole = re.split("\x1b\\[\\d+A\r\x1b\\[J", data.decode(errors="replace"))[1:-1]
        drawings = [[line.replace("\x1b[K", "") for line in d.split("\r\n") if line] for d in whole]
    return drawings

def last_three(drawings, holds):
    return len(drawings) >= 3 and all(holds(drawing) for drawing in drawings[-3:])

resize(24, 120)
wide = watch(lambda seen: last_three(seen, lambda d: len(d) == 3 and re.search(r"MiB/s  \d+:\d\d$", d[-1])))
resize(24, 50)
narrow = watch(lambda seen: last_three(seen, lambda d: all(len(line) < 50 for line in d)))
resize(5, 80)
low = watch(lambda seen: last_three(seen, lambda d: len(d[-1]) == 79))
os.kill(pid, signal.SIGINT)
while read():
    pass
status = os.waitpid(pid, 0)[1]
for name, drawings, columns in (("wide", wide, 120), ("narrow", narrow, 50), ("low", low, 80)):
    print(name, *drawings[-1], sep="\n")
    for drawing in drawings[-3:]:
        assert all(len(line) < columns for line in drawing), drawing
        assert drawing[0].startswith("importing "), drawing
        assert drawing[-1].startswith("total ") or "MiB/s" in drawing[-1], drawing
for drawing in wide[-3:]:
    assert len(drawing) == 3 and re.match(r"layer \d of \d sha256:\w+… \[=*>? *\] \d+\.\d/\d+\.\d MiB$", drawing[1]), drawing
    assert len(drawing[2]) == 119 and re.match(r"total \[=*>? *\] \d+\.\d/\d+\.\d MiB  \d+\.\d MiB/s  (\d+:\d\d|-:--)$", drawing[2]), drawing
assert any(re.search(r"MiB/s  \d+:\d\d$", line) for drawing in wide for line in drawing), wide
assert all(len(drawing) <= 3 for drawing in low)
assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) != 0, status
assert os.listdir(".") == [], os.listdir(".")
PYTHON
}

@test "on a terminal: what keeps an import is told, and the lines that stay are those of a log" {
  cd "$work"
  curl -s "https://fault.test/mood/moody-terminal?is=silent" >/dev/null
  python3 - <<'PYTHON'
import os, pty, re, select, signal

def run(image, enough, **variables):
    """What the terminal gets until it is enough, or the command has ended."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm", **variables)
        os.execvp("enroot", ["enroot", "import", "-o", "image.sqsh", "docker://" + image])
    text, more = "", b" "
    while more and not enough(text):
        try:
            more = os.read(terminal, 65536) if select.select([terminal], [], [], 60)[0] else b""
        except OSError:
            more = b""
        text += more.decode(errors="replace")
    if more:
        os.kill(pid, signal.SIGINT)
    os.close(terminal)
    os.waitpid(pid, 0)
    return text

resolving = run("fault.test/moody-terminal", lambda seen: "no answer for 4 s" in seen)
assert re.search(r"resolving fault\.test/moody-terminal:latest: no answer for 3 s", resolving), resolving
stalled = run("fault.test/stall", lambda seen: "stalled for" in seen and "trying again" in seen, ENROOT_STALL_TIMEOUT="8")
assert re.search(r"MiB  stalled for \d+ s\r?\x1b", stalled), stalled[-2000:]
assert re.search(r"MiB  stalled, trying again in \d+ s\r?\x1b", stalled), stalled[-2000:]

whole = run("registry.test/debian:12", lambda seen: False)
lines = []
for piece in re.split("(\x1b\\[\\d+A\r\x1b\\[J)", whole):
    erased = re.match("\x1b\\[(\\d+)A", piece)
    if erased:
        del lines[-int(erased[1]):]
    else:
        lines += piece.replace("\x1b[K", "").split("\r\n")[:-1]
print(*lines, sep="\n")
assert len(lines) == 4 and all(line.startswith("[INFO] ") for line in lines), lines
assert re.match(r"\[INFO\] resolving registry\.test/debian:12: [0-9.]+ s$", lines[0]), lines
assert lines[3].startswith("[INFO] imported docker://registry.test/debian:12@sha256:"), lines
PYTHON
  curl -s "https://fault.test/mood/moody-terminal?is=fine" >/dev/null
}
