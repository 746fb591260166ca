"""tiny: static busybox, two layers. Tags latest, zstd, tar (layers without compression), v2s2, entrypoint. Also as public/tiny."""

import subprocess

from layers import DOCKER, OCI

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CONFIG = {
    "Env": [PATH, "GREETING=hello"],
    "WorkingDir": "/srv",
    "Cmd": ["sh"],
    "Labels": {"org.opencontainers.image.title": "tiny", "test.situla.note": "two words"},
}


def base(store, arch="amd64"):
    layer = store.layer()
    for name in ("bin", "dev", "etc", "proc", "root", "run", "srv", "sys", "usr", "usr/bin", "var", "var/lib"):
        layer.directory(name, 0o700 if name == "root" else 0o755)
    layer.directory("tmp", 0o1777)
    layer.symlink("var/run", "../run")
    layer.file("etc/os-release", 'ID=tiny\nNAME="tiny"\nPRETTY_NAME="tiny test image"\nVERSION_ID=1\n')
    layer.file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n")
    layer.file("etc/group", "root:x:0:\nnogroup:x:65534:\n")
    layer.file("etc/arch", arch + "\n")
    layer.file("srv/hello.txt", "hello from the base layer\n")
    if arch == "amd64":  # the other architecture is only ever looked at, never run
        with open("/bin/busybox", "rb") as binary:
            layer.file("bin/busybox", binary.read(), 0o755)
        for applet in subprocess.run(["/bin/busybox", "--list"], check=True, capture_output=True, text=True).stdout.split():
            if applet != "busybox":
                layer.symlink("bin/" + applet, "busybox")
        layer.symlink("usr/bin/env", "../../bin/busybox")
    return layer.close()


def build(store):
    top = store.layer()
    top.directory("srv")
    top.file("srv/hello.txt", "hello from the top layer\n")
    top.file("srv/entry", '#!/bin/sh\necho "entrypoint: $*"\nexport ENTRYPOINT_RAN=yes\nexec "$@"\n', 0o755)
    tars = [base(store), top.close()]
    tags = {"latest": ("gzip", OCI), "zstd": ("zstd", OCI), "tar": ("tar", OCI), "v2s2": ("gzip", DOCKER)}
    made = store.variants("tiny", tars, CONFIG, tags)
    _, layers, diff_ids = made["latest"]
    store.image("tiny", "entrypoint", layers, diff_ids, dict(CONFIG, Entrypoint=["/srv/entry"], Cmd=["echo", "default command"]))
    for descriptor in layers:
        store.borrow("public/tiny", "tiny", descriptor)
    store.image("public/tiny", "latest", layers, diff_ids, CONFIG)
