"""ubuntu: debian:12 under another name, with a mirror of one package in it: `apt-get update && apt-get install -y htop` works. Tag latest.

The htop of that package is a script. Its installation changes owners, as packages do.
"""

import gzip
import hashlib
import os
import shutil
import subprocess

import tiny
from layers import OCI

CONFIG = {"Env": [tiny.PATH], "Cmd": ["/bin/bash"], "Labels": {"org.opencontainers.image.title": "ubuntu"}}
NAME = 'PRETTY_NAME="Ubuntu 24.04 LTS"\nNAME="Ubuntu"\nVERSION_ID="24.04"\nID=ubuntu\nID_LIKE=debian\n'
CONTROL = {"Package": "htop", "Version": "3.3.0", "Architecture": "all", "Maintainer": "nobody <nobody@example.org>", "Description": "a stand-in",
           "Section": "utils", "Priority": "optional"}


def package(area):
    tree, deb = os.path.join(area, "tree"), os.path.join(area, "htop.deb")
    for folder in ("DEBIAN", "usr/bin", "var/lib/htop"):
        os.makedirs(os.path.join(tree, folder))
    files = {"DEBIAN/control": "".join(f"{key}: {value}\n" for key, value in CONTROL.items()),
             "DEBIAN/postinst": "#!/bin/sh\nset -e\nchown daemon:daemon /var/lib/htop\n", "usr/bin/htop": "#!/bin/sh\necho htop 3.3.0\n"}
    for name, text in files.items():
        with open(os.path.join(tree, name), "w", encoding="ascii") as out:
            out.write(text)
    for name in ("DEBIAN/postinst", "usr/bin/htop"):
        os.chmod(os.path.join(tree, name), 0o755)
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, deb], check=True, stdout=2)
    with open(deb, "rb") as stream:
        return stream.read()


def build(store):
    area = os.path.join(store.scratch, "ubuntu")
    shutil.rmtree(area, ignore_errors=True)
    os.makedirs(area)
    deb = package(area)
    entry = {**CONTROL, "Filename": "./htop.deb", "Size": len(deb), "SHA256": hashlib.sha256(deb).hexdigest()}
    layer = store.layer()
    layer.file("usr/lib/os-release", NAME)
    layer.file("etc/apt/sources.list", "deb [trusted=yes] file:/opt/mirror ./\n")
    layer.directory("opt/mirror")
    layer.file("opt/mirror/htop.deb", deb)
    layer.file("opt/mirror/Packages.gz", gzip.compress("".join(f"{key}: {value}\n" for key, value in entry.items()).encode(), mtime=0))
    store.variants("ubuntu", [layer.close()], CONFIG, {"latest": ("gzip", OCI)}, {"gzip": ("debian", "12")})
    shutil.rmtree(area)
