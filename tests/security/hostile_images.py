#!/usr/bin/python3
"""Images that are small to fetch and want to be large: writes them, imports them, and says what that took.

usage: hostile_images.py list
       hostile_images.py write CASE DIRECTORY
       hostile_images.py measure [--keep DIR] [--timeout SECONDS] COMMAND... -- [CASE]...

`write` makes an OCI layout. `measure` runs COMMAND with {image} and {target} replaced, for each case, and prints a row: the case, the
size of the layout, the peak memory of the largest process, seconds, exit status, what was left behind, and the error.

Everything is made of pieces that are compressed once and repeated: gzip members and zstd frames may follow each other, so a hundred
gigabytes are written in a moment. zstd frames are made by hand, of blocks that repeat one byte.
"""
import functools
import hashlib
import itertools
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

MIB = 1 << 20
GIB = 1 << 30
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


# --- pieces ---------------------------------------------------------------------------------------------------------

def number(value, width):
    if value < 8 ** (width - 1):
        return b"%0*o\0" % (width - 1, value)
    return bytes([0x80]) + value.to_bytes(width - 1, "big")


@functools.lru_cache(maxsize=64)
def nameless_header(size, kind, target, magic):
    """A header of ustar, and the sum of its bytes."""
    block = bytearray(512)
    block[100:108] = number(0o755, 8)
    block[108:116] = block[116:124] = number(0, 8)
    block[124:136] = number(size, 12)
    block[136:148] = number(0, 12)
    block[148:156] = b" " * 8
    block[156:157] = kind
    block[157:257] = target[:100].ljust(100, b"\0")
    block[257:265] = magic
    return bytes(block), sum(block)


def header(name, size=0, kind=b"0", target=b"", magic=b"ustar\x0000"):
    block, total = nameless_header(size, kind, target, magic)
    name = name[:100]
    return name.ljust(100, b"\0") + block[100:148] + b"%06o\0" % (total + sum(name)) + block[155:]


def padded(body):
    return body + bytes(-len(body) % 512)


def pax_header(fields):
    body = bytearray()
    for key, value in fields:
        rest = b" " + key + b"=" + value + b"\n"
        length = len(rest) + 1
        while len(str(length)) + len(rest) != length:
            length = len(str(length)) + len(rest)
        body += str(length).encode() + rest
    return header(b"pax", len(body), b"x") + padded(bytes(body))


def long_name(name):
    return header(b"././@LongLink", len(name) + 1, b"L", magic=b"ustar  \0") + padded(name + b"\0")


def gzip(body, level=1):
    packer = zlib.compressobj(level, zlib.DEFLATED, 31)
    return packer.compress(body) + packer.flush()


def zstd_frame(pieces, window_log=17):
    """pieces: bytes as they are, or (byte, count) for a run."""
    out = [b"\x28\xb5\x2f\xfd\x00", bytes([(window_log - 10) << 3])]
    most = 1 << 17
    for piece in pieces:
        if isinstance(piece, tuple):
            byte, count = piece
            whole, rest = divmod(count, most)
            out.append((struct.pack("<I", most << 3 | 1 << 1)[:3] + byte) * whole)
            if rest:
                out.append(struct.pack("<I", rest << 3 | 1 << 1)[:3] + byte)
            continue
        for at in range(0, len(piece), most):
            part = piece[at:at + most]
            out.append(struct.pack("<I", len(part) << 3)[:3] + part)
    out.append(struct.pack("<I", 1)[:3])
    return b"".join(out)


def skippable(size):
    return b"\x50\x2a\x4d\x18" + struct.pack("<I", size) + bytes(size)


END = bytes(1024)


class Layout:
    def __init__(self, directory):
        self.directory = directory
        os.makedirs(os.path.join(directory, "blobs", "sha256"))
        with open(os.path.join(directory, "oci-layout"), "w") as file:
            file.write('{"imageLayoutVersion":"1.0.0"}')

    def blob(self, chunks):
        """chunks: bytes, or (bytes, how often)."""
        sha, size = hashlib.sha256(), 0
        path = os.path.join(self.directory, "blobs", "sha256", "new")
        with open(path, "wb") as file:
            for chunk in chunks:
                piece, times = chunk if isinstance(chunk, tuple) else (chunk, 1)
                for _ in range(times):
                    sha.update(piece)
                    file.write(piece)
                    size += len(piece)
        digest = sha.hexdigest()
        os.rename(path, os.path.join(self.directory, "blobs", "sha256", digest))
        return {"digest": "sha256:" + digest, "size": size, "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip"}

    def image(self, layers, config=None, manifest=None, index=None):
        config = config or json.dumps({"architecture": "amd64", "os": "linux", "config": {}}).encode()
        described = self.blob([config])
        if manifest is None:
            manifest = json.dumps({"schemaVersion": 2, "config": described, "layers": layers}).encode()
        entry = dict(self.blob([manifest]), mediaType="application/vnd.oci.image.manifest.v1+json")
        with open(os.path.join(self.directory, "index.json"), "wb") as file:
            file.write(index(entry) if index else json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode())

    def one_layer(self, *chunks):
        self.image([self.blob(chunks)])


# --- names, entries, attributes -------------------------------------------------------------------------------------

@case
def empty_files_100_million(layout):
    many = gzip(header(b"file") * 131072, 9)
    layout.one_layer((many, 763), gzip(END))


@case
def long_names_2_million(layout):
    parts = []
    for i in range(16384):
        name = b"%06d" % i + b"n" * 240
        parts += [long_name(name), header(name)]
    layout.one_layer((gzip(b"".join(parts)), 128), gzip(END))


@case
def directories_2_million(layout):
    parts = []
    for i in range(16384):
        name = b"%06d" % i + b"d" * 230 + b"/" + b"e" * 240 + b"/f"
        parts += [long_name(name), header(name)]
    piece = b"".join(parts)
    layout.one_layer(*[gzip(piece.replace(b"ddddd/", b"%05d/" % i)) for i in range(24)], gzip(END))


@case
def xattrs_distinct(layout):
    chunks = []
    for i in range(4000):
        fields = [(b"SCHILY.xattr.user.%d" % k, b"%08d" % i + b"v" * 60000) for k in range(5)]
        name = b"f%d" % i
        chunks.append(gzip(pax_header(fields) + header(name)))
    layout.one_layer(*chunks, gzip(END))


@case
def xattrs_equal(layout):
    fields = [(b"SCHILY.xattr.user.%d" % k, b"v" * 60000) for k in range(5)]
    layout.one_layer((gzip(pax_header(fields) + header(b"f")), 4000), gzip(END))


@case
def xattrs_many_small(layout):
    def part(layer):
        return gzip(b"".join(pax_header([(b"SCHILY.xattr.user.x%d" % k, b"%d.%d" % (layer, i)) for k in range(8)]) + header(b"f%d" % i)
                             for i in range(20000)))
    layout.one_layer(*[part(n) for n in range(5)], gzip(END))


@case
def pax_header_of_1_gib(layout):
    layout.one_layer(gzip(header(b"pax", GIB, b"x") + b"1073741824 path="), (gzip(b"p" * 16 * MIB, 9), 64), gzip(header(b"f") + END))


@case
def long_names_chained(layout):
    """Headers in front of headers, and none of a file."""
    layout.one_layer((gzip((long_name(b"n" * 200)) * 8192), 256), gzip(header(b"f") + END))


# --- depth and links ------------------------------------------------------------------------------------------------

@case
def depth_4095(layout):
    chunks = []
    for i in range(4000):
        path = b"%07d/" % i + b"a/" * 2043
        chunks.append(gzip(pax_header([(b"path", path + b"f")]) + header(b"f")))
    layout.one_layer(*chunks, gzip(END))


@case
def depth_through_links(layout):
    """Each link leads deeper than the one before, so that no path is long and the tree is deep all the same."""
    chunks, at = [], b""
    for i in range(3000):
        path = at + b"a/" * 1000
        chunks.append(gzip(pax_header([(b"path", path)]) + header(b"d", kind=b"5") +
                           pax_header([(b"linkpath", b"/" + path)]) + header(b"l%d" % i, kind=b"2", target=b"/" + path)))
        at = b"l%d/" % i
    layout.one_layer(*chunks, gzip(END))


@case
def links_in_circles(layout):
    """255 links, each through 2000 components, for every name."""
    parts = [pax_header([(b"linkpath", b"./" * 2000 + b"l%d" % (i + 1))]) + header(b"l%d" % i, kind=b"2", target=b"./" * 50)
             for i in range(250)]
    parts.append(header(b"l250", kind=b"5"))
    files = b"".join(header(b"l0/f%d" % i) + header(b"other/f%d" % i) for i in range(4096))
    layout.one_layer(gzip(b"".join(parts)), (gzip(files), 200), gzip(END))


@case
def hard_links_1_million(layout):
    chunks = [gzip(header(b"f", 1) + padded(b"x"))]
    for n in range(64):
        chunks.append(gzip(b"".join(header(b"%02d/l%d" % (n, i), 0, b"1", b"f") for i in range(16384))))
    layout.one_layer(*chunks, gzip(END))


@case
def hard_links_in_a_chain(layout):
    chunks = [gzip(header(b"l0", 1) + padded(b"x"))]
    for n in range(16):
        chunks.append(gzip(b"".join(header(b"l%d" % (n * 8192 + i + 1), 0, b"1", b"l%d" % (n * 8192 + i)) for i in range(8192))))
    layout.one_layer(*chunks, gzip(END))


def deep_files(count, size):
    """Files in two directories 2043 deep, by turns: each is looked up anew."""
    parts = []
    for i in range(1024):
        path = b"%d/" % (i % 2) + b"a/" * 2040 + b"f%d" % i
        parts.append(pax_header([(b"path", path)]) + header(b"f", size) + padded(b"x" * size))
    return (gzip(b"".join(parts), 9), count // 1024)


@case
def deep_paths_by_turns(layout):
    layout.one_layer(deep_files(16384, 0), gzip(END))


@case
def deep_paths_below_a_layer(layout):
    layout.image([layout.blob([deep_files(16384, 1), gzip(END)]), small_layer(layout)])


@case
def layers_that_hide(layout):
    """What upper layers hide is remembered for the lower ones."""
    piece = gzip(b"".join(header(b"f%06d" % i) for i in range(100000)))
    layer = layout.blob([piece, gzip(END)])
    layout.image([layer] * 40)


@case
def deep_paths_in_many_layers(layout):
    """The same small layer again and again, of directories that are all deep and different."""
    piece = b"".join(pax_header([(b"path", b"%05d/" % i + b"a/" * 2040 + b"f")]) + header(b"f", 1) + padded(b"x") for i in range(3500))
    layout.image([layout.blob([gzip(piece + END, 9)])] * 300)


# --- contents that libsquashfs takes for equal ----------------------------------------------------------------------

MASK = 0xFFFFFFFF
PRIMES = (2654435761, 2246822519, 3266489917, 668265263)


def rotated(value, bits):
    return (value << bits | value >> (32 - bits)) & MASK


def of_one_checksum(size, count):
    """Distinct ends of 16 bytes for `size` bytes, a multiple of 16, that are zeros before: all have the same xxh32."""
    def step(lane, word):
        return rotated((lane + word * PRIMES[1]) & MASK, 13) * PRIMES[0] & MASK
    first, second = (PRIMES[0] + PRIMES[1]) & MASK, PRIMES[1]
    for _ in range(size // 16 - 1):
        first, second = step(first, 0), step(second, 0)
    undo = [pow(prime, -1, 1 << 32) for prime in PRIMES[:2]]
    wanted = rotated(step(first, 1), 1) + rotated(step(second, 0), 7)
    for word in range(1, count + 1):
        lane = rotated((wanted - rotated(step(first, word), 1)) & MASK, 25)
        yield struct.pack("<IIII", word, (rotated(lane * undo[0] & MASK, 19) - second) * undo[1] & MASK, 0, 0)


def files_of_one_checksum(layout, size, count):
    pieces = []
    for i, end in enumerate(of_one_checksum(size, count)):
        pieces += [header(b"f%06d" % i, size), (b"\0", size - 16), end]
    layout.one_layer(zstd_frame(pieces + [END]))


@case
def small_files_of_one_checksum(layout):
    files_of_one_checksum(layout, 4096, 20000)


@case
def large_files_of_one_checksum(layout):
    files_of_one_checksum(layout, 131072, 20000)


# --- attributes that libsquashfs finds by one checksum ---------------------------------------------------------------

def texts_of_one_checksum(pair):
    """Either of two texts, sixteen times: all have one R5."""
    return (b"".join(parts) for parts in itertools.product(pair, repeat=16))


def empty_files_with(layout, attributes):
    files = [pax_header([(b"SCHILY.xattr.user." + name, value)]) + header(b"f%06d" % i) for i, (name, value) in enumerate(attributes)]
    layout.one_layer(gzip(b"".join(files) + END))


@case
def xattr_values_of_one_checksum(layout):
    values = texts_of_one_checksum((b"\x00\xaa\x40", b"\x10\x57\xab"))
    empty_files_with(layout, ((b"a", value) for value in values))


@case
def xattr_names_of_one_checksum(layout):
    empty_files_with(layout, ((name, b"v") for name in texts_of_one_checksum((b"al", b"ba"))))


@case
def xattrs_of_one_entry(layout):
    fields = [(b"SCHILY.xattr.user.%05x" % i, b"") for i in range(34000)]
    # They differ in the last bytes only: all else is compressed once.
    entries = [pax_header([*fields, (b"SCHILY.xattr.user.n", b"%02d" % i)]) + header(b"f%02d" % i) for i in range(30)]
    same = len(os.path.commonprefix(entries))
    first = gzip(entries[0][:same])
    pieces = [piece for entry in entries for piece in (first, gzip(entry[same:]))]
    layout.one_layer(*pieces, gzip(END))


# --- sparse files and bombs -----------------------------------------------------------------------------------------

@case
def file_of_8_eib(layout):
    layout.one_layer(gzip(header(b"huge", (1 << 63) - 1)), (gzip(bytes(16 * MIB), 9), 64))


@case
def sparse_of_8_eib(layout):
    fields = [(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.name", b"huge"), (b"GNU.sparse.realsize", b"9223372036854775807")]
    layout.one_layer(gzip(pax_header(fields) + header(b"huge", 512) + padded(b"1\n9223372036854775807\n0\n") + END))


@case
def sparse_of_1_tib_1000_times(layout):
    fields = [(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.name", b"huge"), (b"GNU.sparse.realsize", b"%d" % (1 << 40))]
    layout.one_layer((gzip(pax_header(fields) + header(b"huge", 512) + padded(b"1\n%d\n0\n" % (1 << 40))), 1000), gzip(END))


@case
def sparse_below_a_liar(layout):
    """The manifest claims a bottom layer of 20 GiB, which would have come last."""
    fields = [(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.name", b"huge"), (b"GNU.sparse.realsize", b"%d" % (64 * GIB))]
    sparse = layout.blob([gzip(pax_header(fields) + header(b"huge", 512) + padded(b"1\n%d\n0\n" % (64 * GIB)) + END)])
    liar = dict(small_layer(layout), size=20 * GIB)
    os.truncate(os.path.join(layout.directory, "blobs", "sha256", liar["digest"][7:]), 20 * GIB)
    layout.image([liar, sparse])


@case
def sparse_map_of_40_million(layout):
    count = 40_000_000
    text = b"%d\n" % count
    body = b"0\n0\n" * (4 * MIB)
    size = len(text) + 10 * len(body)
    size += -size % 512
    fields = [(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.name", b"many"), (b"GNU.sparse.realsize", b"1024")]
    layout.one_layer(gzip(pax_header(fields) + header(b"many", size) + text), (gzip(body, 6), 10), gzip(END))


@case
def gzip_bomb_of_members(layout):
    layout.one_layer(gzip(header(b"zeros", 100 * GIB)), (gzip(bytes(64 * MIB), 9), 1600), gzip(END))


@case
def gzip_bomb_of_letters(layout):
    layout.one_layer(gzip(header(b"letters", 100 * GIB)), (gzip(b"A" * 64 * MIB, 9), 1600), gzip(END))


@case
def gzip_members_of_nothing(layout):
    layout.one_layer(gzip(header(b"f")), (gzip(b"") * 4096, 1000), gzip(END))


@case
def zstd_bomb(layout):
    layout.one_layer(zstd_frame([header(b"zeros", 200 * GIB)]), (zstd_frame([(b"\0", GIB)]), 200), zstd_frame([END]))


@case
def zstd_skippable_frames(layout):
    layout.one_layer((skippable(MIB), 64), zstd_frame([header(b"f"), END]), (skippable(0) * 65536, 16))


@case
def zstd_bomb_behind_the_archive(layout):
    layout.one_layer(zstd_frame([header(b"f"), END]), (zstd_frame([(b"\0", GIB)]), 300))


@case
def zstd_window_of_128_mib(layout):
    layout.one_layer(zstd_frame([header(b"f", 300 * MIB), (b"A", 300 * MIB), END], 27))


@case
def zstd_window_and_names(layout):
    parts = []
    for i in range(16384):
        name = b"%06d" % i + b"n" * 240
        parts += [long_name(name), header(name)]
    plain = layout.blob([(gzip(b"".join(parts)), 24), gzip(END)])
    window = layout.blob([zstd_frame([header(b"f", 300 * MIB), (b"A", 300 * MIB), END], 27)])
    layout.image([window, plain])


# --- manifests ------------------------------------------------------------------------------------------------------

def small_layer(layout):
    return layout.blob([gzip(header(b"f") + END)])


def manifest_with(layout, extra):
    layer = small_layer(layout)
    config = layout.blob([b'{"architecture":"amd64","os":"linux","config":{}}'])
    layout.image([], manifest=json.dumps({"schemaVersion": 2, "config": config, "layers": [layer]}).encode()[:-1] + b"," + extra + b"}")


@case
def manifest_of_100_mb(layout):
    manifest_with(layout, b'"annotations":{"a":"' + b"x" * 100_000_000 + b'"}')


@case
def manifest_deep(layout):
    manifest_with(layout, b'"a":' + b"[" * 2_000_000 + b"]" * 2_000_000)


@case
def manifest_wide(layout):
    manifest_with(layout, b'"a":[' + b"{}," * 1_300_000 + b"0]")


@case
def manifest_huge_annotations(layout):
    manifest_with(layout, b'"annotations":{' + b",".join(b'"%d":""' % i for i in range(300_000)) + b"}")


@case
def layers_10000(layout):
    layout.image([small_layer(layout)] * 10_000)


@case
def config_of_100_mb(layout):
    layout.image([small_layer(layout)], config=b'{"architecture":"amd64","os":"linux","config":{"Env":["A=' + b"x" * 100_000_000 + b'"]}}')


@case
def config_deep(layout):
    layout.image([small_layer(layout)], config=b'{"architecture":"amd64","os":"linux","a":' + b"[" * 1_900_000 + b"]" * 1_900_000 + b"}")


@case
def config_16_mb_of_values(layout):
    layout.image([small_layer(layout)], config=b'{"architecture":"amd64","os":"linux","a":[' + b"[]," * 5_000_000 + b"0]}")


@case
def index_of_100000(layout):
    def index(entry):
        return json.dumps({"schemaVersion": 2, "manifests": [entry] * 100_000}).encode()
    layout.image([small_layer(layout)], index=index)


# --- measuring ------------------------------------------------------------------------------------------------------

def bytes_in(directory):
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(directory) for f in files)


def run(command, timeout):
    """Exit status, seconds, peak KiB of the largest process, output. A process that takes longer is ended."""
    with tempfile.TemporaryFile() as output:
        began = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
        timer = threading.Timer(timeout, lambda: os.killpg(process.pid, 9))
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - began
        output.seek(0)
        return process.returncode, seconds, usage.ru_maxrss, output.read().decode(errors="replace")


def measure(arguments):
    keep, timeout = None, 120.0
    while arguments and arguments[0].startswith("--") and arguments[0] != "--":
        option, value, *arguments = arguments
        if option == "--keep":
            keep = value
        elif option == "--timeout":
            timeout = float(value)
        else:
            sys.exit(f"unknown option {option}")
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    command, names = arguments[:cut], arguments[cut + 1:] or list(CASES)
    print("case\tblob bytes\tpeak MiB\tseconds\tstatus\tleft\terror", flush=True)
    for name in names:
        with tempfile.TemporaryDirectory() as work:
            image = os.path.join(keep or work, name)
            if not os.path.exists(image):
                # In another process: what this one takes counts for its children until they call exec.
                subprocess.run([sys.executable, __file__, "write", name, image], check=True)
            place = os.path.join(work, "target")
            os.mkdir(place)
            words = [word.format(image="oci:" + image, target=os.path.join(place, "image.sqsh")) for word in command]
            status, seconds, peak, output = run(words, timeout)
            errors = [line for line in output.splitlines() if line.strip()]
            left = len(os.listdir(place)) if status != 0 else 0
            said = " / ".join(errors[-2:]) if status != 0 else ""
            print(f"{name}\t{bytes_in(image)}\t{peak / 1024:.0f}\t{seconds:.1f}\t{status}\t{left}\t{said}", flush=True)


def main(arguments):
    if arguments[:1] == ["list"]:
        print("\n".join(CASES))
    elif arguments[:1] == ["write"] and len(arguments) == 3:
        shutil.rmtree(arguments[2], ignore_errors=True)
        CASES[arguments[1]](Layout(arguments[2]))
    elif arguments[:1] == ["measure"]:
        measure(arguments[1:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
