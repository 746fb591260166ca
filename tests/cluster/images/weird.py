"""weird: everything a layer may legally contain and an importer may get wrong. Five layers; `umoci unpack` is the judge.

Tags latest, zstd, v2s2. Folders are named after what they try; a name that must not survive says so ("gone").
"""

import struct

import tiny
from layers import DOCKER, OCI

CONFIG = {
    "Env": [tiny.PATH, "QUOTED=a 'b' \"c\" $d", "EMPTY=", "MULTI=one=two"],
    "WorkingDir": "/work dir/deep",  # exists in no layer, and has a space
    "Entrypoint": ["/bin/sh", "-c", "exec \"$@\"", "it's"],
    "Cmd": ["echo", "two words", "$HOME", "back\\slash"],
    "Volumes": {"/data": {}, "/vol/with space": {}},
    "Labels": {"plain": "value", "multi": "line one\nline two", "quote": "it's \"so\""},
}
CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)  # cap_net_raw=ep, VFS_CAP_REVISION_2
LONG = "n" * 200
FILLER = bytes(range(256)) * 16


def first(store):
    layer = store.layer()
    layer.directory("white")
    for name in ("gone", "stays", "back"):
        layer.file("white/" + name, f"{name} of layer one\n")
    layer.directory("white/gonedir")
    layer.file("white/gonedir/inside", "must not survive\n")
    layer.directory("opaque", 0o750)
    layer.file("opaque/gone", "hidden by the opaque mark\n")
    layer.directory("opaque/sub")
    layer.file("opaque/sub/gone", "hidden as well\n")
    layer.directory("opaque-late")
    layer.file("opaque-late/gone", "the mark comes after new content\n")
    layer.directory("replace")
    layer.directory("replace/dir-to-file")
    layer.file("replace/dir-to-file/gone", "x")
    layer.file("replace/file-to-dir", "x")
    layer.symlink("replace/link-to-dir", "/white")
    layer.directory("replace/dir-to-link")
    layer.file("replace/dir-to-link/gone", "x")
    layer.file("replace/file-to-fifo", "x")
    layer.file("thrice", "first\n", 0o600)
    layer.directory("hard")
    layer.file("hard/a", "linked in one layer\n")
    layer.hardlink("hard/b", "hard/a")
    layer.hardlink("hard/c", "hard/a")
    layer.file("hard/broken", "one of two is changed above\n")
    layer.hardlink("hard/kept", "hard/broken")
    layer.file("hard/first-gone", "the name with the content is removed above\n")
    layer.hardlink("hard/second-stays", "hard/first-gone")
    return layer.close()


def second(store):
    layer = store.layer()
    layer.directory("white")
    layer.whiteout("white/gone")
    layer.whiteout("white/gonedir")
    layer.whiteout("white/back")
    layer.whiteout("white/never-there")
    layer.directory("opaque", 0o700)
    layer.opaque("opaque")
    layer.file("opaque/new", "new\n")
    layer.directory("opaque-late")
    layer.file("opaque-late/new", "written before the mark\n")
    layer.opaque("opaque-late")
    layer.file("replace/dir-to-file", "now a file\n")
    layer.directory("replace/file-to-dir")
    layer.file("replace/file-to-dir/inside", "now a directory\n")
    layer.directory("replace/link-to-dir")
    layer.file("replace/link-to-dir/inside", "not in /white\n")
    layer.symlink("replace/dir-to-link", "/white")
    layer.fifo("replace/file-to-fifo")
    layer.file("thrice", "second, longer than before\n", 0o640)
    layer.hardlink("hard/across", "hard/a")
    layer.file("hard/broken", "changed\n")
    layer.whiteout("hard/first-gone")
    layer.directory("link")
    layer.symlink("link/absolute", "/hard/a")
    layer.symlink("link/relative", "../hard/a")
    layer.symlink("link/dangling", "/no/such/file")
    layer.symlink("link/loop", "loop")
    layer.symlink("link/loop-a", "loop-b")
    layer.symlink("link/loop-b", "loop-a")
    layer.symlink("link/escape", "../../../../../../etc/shadow")
    layer.symlink("link/dir", "/hard")
    layer.symlink("link/long", "t" * 250)
    return layer.close()


def third(store):
    layer = store.layer()
    layer.directory("white")
    layer.file("white/back", "removed in layer two, back in layer three\n")
    layer.file("thrice", "third\n", 0o604)
    layer.directory("mode")
    for mode in (0o4755, 0o2755, 0o6711, 0o1644, 0o000, 0o444, 0o777):
        layer.file(f"mode/file-{mode:04o}", f"{mode:04o}\n", mode)
    for mode in (0o000, 0o555, 0o2775, 0o1777, 0o111):
        layer.directory(f"mode/dir-{mode:04o}", mode)
        layer.file(f"mode/dir-{mode:04o}/inside", "readable once imported\n")
    layer.file("mode/owned", "by 1000:100\n", 0o640, uid=1000, gid=100)
    layer.directory("mode/owned-dir", 0o700, uid=65534, gid=65534)
    layer.file("mode/big-id", "beyond the octal header\n", 0o644, uid=3000000, gid=3000001)
    layer.directory("xattr", xattrs={"user.on-directory": b"yes"})
    layer.file("xattr/capability", "binary\n", 0o755, xattrs={"security.capability": CAPABILITY})
    layer.file("xattr/user", "text\n", xattrs={"user.comment": b"a comment", "user.binary": b"\0\1\2\xff\n="})
    layer.file("xattr/shared", "same attributes as user\n", xattrs={"user.comment": b"a comment", "user.binary": b"\0\1\2\xff\n="})
    layer.file("xattr/large", "big value\n", xattrs={"user.large": b"v" * 2000})
    layer.directory("name")
    layer.file("name/" + LONG, "two hundred characters\n")
    layer.directory("name/" + "d" * 200)
    layer.file("name/" + "d" * 200 + "/" + LONG, "long in long\n")
    for name in ("grüße", "日本語", "emoji-🐳", "e\u0301-combining", " leading", "trailing ", "new\nline", "tab\tand\\backslash", "-dash", "quote'\"", "*?[]", ".hidden", "..not-a-parent"):
        layer.file("name/" + name, name)
    layer.directory("special")
    layer.fifo("special/fifo", 0o622)
    layer.char_device("special/null", 1, 3)
    layer.char_device("special/mem", 1, 1)
    layer.block_device("special/disk", 254, 0, 0o666)
    layer.directory("dev")
    layer.char_device("dev/planted", 1, 5)
    layer.file("dev/file", "content of /dev is dropped\n")
    return layer.close()


def fourth(store):
    layer = store.layer()
    layer.directory("./size")
    layer.file("./size/empty")
    layer.file("./size/one", "1")
    for size in (131071, 131072, 131073, 1 << 20):  # around the block size of squashfs
        layer.file(f"./size/{size}", (FILLER * (size // len(FILLER) + 1))[:size])
    # A hole of 8 MiB between two blocks with data, and a file that is nothing but a hole.
    layer.file("./size/sparse", b"head" + b"\0" * (8 << 20) + b"tail")
    layer.file("./size/zeros", b"\0" * (1 << 20))
    layer.file("./size/same", FILLER)
    layer.file("./size/same-again", FILLER)
    layer.file("implied/parents/never/listed", "the directories above have no entry\n")
    layer.file("twice", "the first entry of this layer\n")
    layer.file("twice", "the second entry of the same layer wins\n", 0o600)
    layer.directory("link/dir-later")
    layer.file("link/dir-later/inside", "x")
    layer.directory("times")
    layer.file("times/zero", "1970\n", mtime=0)
    layer.file("times/late", "2100\n", mtime=4102444800)
    layer.directory("empty")
    return layer.close()


def build(store):
    tars = [tiny.base(store), first(store), second(store), third(store), fourth(store)]
    store.variants("weird", tars, CONFIG, {"latest": ("gzip", OCI), "zstd": ("zstd", OCI), "v2s2": ("gzip", DOCKER)})
