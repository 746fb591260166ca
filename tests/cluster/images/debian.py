"""debian: Debian 12 as debootstrap's minbase makes it, less what Debian's own slim images lack, one layer. Tags 12, 12-zstd, 12-v2s2."""

import os
import shutil
import subprocess

import tiny
from layers import DOCKER, OCI

CONFIG = {"Env": [tiny.PATH], "Cmd": ["bash"], "Labels": {"org.opencontainers.image.title": "debian"}}
SLIM = ("doc", "info", "lintian", "locale", "man")  # below /usr/share; copyrights stay
TAGS = {"12": ("gzip", OCI), "12-zstd": ("zstd", OCI), "12-v2s2": ("gzip", DOCKER)}


def rootfs(store):
    """The unpacked tree, made once and kept: other images build on it."""
    root = os.path.join(store.scratch, "debian-slim")
    if not os.path.exists(root):
        partial = root + ".partial"
        shutil.rmtree(partial, ignore_errors=True)
        made = os.path.join(store.scratch, "../bookworm")
        subprocess.run([os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../support/bookworm"), os.path.dirname(made)], check=True, stdout=2)
        subprocess.run(["cp", "-a", made, partial], check=True)
        for leftover in ("var/cache/apt/archives", "var/lib/apt/lists", "var/log"):
            for base, _, files in os.walk(os.path.join(partial, leftover)):
                for name in files:
                    os.unlink(os.path.join(base, name))
        for name in SLIM:
            for base, _, files in os.walk(os.path.join(partial, "usr/share", name), topdown=False):
                for file in files:
                    if file not in ("copyright", "locale.alias"):
                        os.unlink(os.path.join(base, file))
                if not os.listdir(base):
                    os.rmdir(base)
        with open(os.path.join(partial, "etc/hostname"), "w", encoding="ascii") as out:
            out.write("localhost\n")
        os.rename(partial, root)
    return root


def build(store):
    layer = store.layer()
    root = rootfs(store)
    # debootstrap makes device nodes; an image has an empty /dev, as registries have them.
    devices = {os.path.join("dev", name) for name in os.listdir(os.path.join(root, "dev"))}
    layer.tree(root, devices)
    made = store.variants("debian", [layer.close()], CONFIG, TAGS)
    store.tag("debian", "latest", made["12"][0]["digest"])
