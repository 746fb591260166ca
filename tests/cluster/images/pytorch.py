"""pytorch: the big one. debian:12, then python3, numpy, the libraries of torch, torch, what is used with it, and an application: nine layers.

About 2 GB unpacked. Tags latest, zstd. The packages are Debian's, fetched by this machine's apt as it is configured.
"""

import os
import shutil
import subprocess

import debian
import tiny
from layers import OCI

STEPS = ["python3", "python3-numpy", "libtorch1.13", "python3-torch", "build-essential", "python3-scipy python3-pandas python3-sklearn",
         "python3-torchvision"]

# Runs in a mount namespace of its own: LOWER, UPPER, WORK and DEBS are set. What dpkg changes lands in UPPER.
INSTALL = r"""
set -eu
merged=$WORK/merged
mkdir -p "$merged" "$UPPER" "$WORK/work" "$DEBS/partial"
# Without these options the upper directory could hold references to the lower one instead of plain files.
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$UPPER,workdir=$WORK/work,metacopy=off,redirect_dir=off,index=off" "$merged"
apt-get -q -y --no-install-recommends --download-only -o Debug::NoLocking=1 -o "Dir::State::status=$merged/var/lib/dpkg/status" \
  -o "Dir::Cache::archives=$DEBS/" -o APT::Sandbox::User=root install $PACKAGES
mount -t tmpfs tmpfs "$merged/tmp"
mount -t proc proc "$merged/proc"
mkdir "$merged/tmp/debs"
mount --bind "$DEBS" "$merged/tmp/debs"
chroot "$merged" env DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -c \
  'apt-get -q -y --no-install-recommends -o Acquire::Check-Valid-Until=false install /tmp/debs/*.deb'
rm -rf "$merged"/var/cache/apt/*.bin "$merged"/var/cache/apt/archives/*.deb "$merged"/var/log/apt "$merged"/var/log/dpkg.log \
  "$merged"/var/log/alternatives.log "$merged"/var/cache/ldconfig/aux-cache
"""


def install(store, packages, lowers):
    area = os.path.join(store.scratch, "pytorch", packages.split()[0])
    shutil.rmtree(area, ignore_errors=True)
    upper = os.path.join(area, "upper")
    os.makedirs(upper)
    subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", INSTALL], check=True, stdout=2,
                   env=dict(os.environ, LOWER=":".join(reversed(lowers)), UPPER=upper, WORK=area, DEBS=os.path.join(area, "debs"),
                            PACKAGES=packages, DEBIAN_FRONTEND="noninteractive", LC_ALL="C"))
    shutil.rmtree(os.path.join(area, "debs"))
    return upper


def application(store):
    layer = store.layer()
    layer.directory("workspace")
    layer.file("workspace/train.py", "import torch\nprint(torch.ones(3).sum().item())\n")
    return layer.close()


def torch_version(upper):
    with open(os.path.join(upper, "var/lib/dpkg/status"), encoding="utf-8") as stream:
        entry = next(part for part in stream.read().split("\n\n") if part.startswith("Package: python3-torch\n"))
    version = next(line for line in entry.splitlines() if line.startswith("Version: "))
    return version.split()[1].split("+")[0].split("-")[0]


def build(store):
    if not any(name.endswith(("Packages", "Packages.lz4", "Packages.gz")) for name in os.listdir("/var/lib/apt/lists")):
        subprocess.run(["apt-get", "-q", "update"], check=True, stdout=2)
    lowers, tars = [debian.rootfs(store)], []
    for packages in STEPS:
        upper = install(store, packages, lowers)
        lowers.append(upper)
        layer = store.layer()
        layer.tree(upper)
        tars.append(layer.close())
    config = {"Env": [tiny.PATH, "PYTORCH_VERSION=" + torch_version(lowers[-1])], "WorkingDir": "/workspace", "Cmd": ["python3"],
              "Labels": {"org.opencontainers.image.title": "pytorch"}}
    tars.append(application(store))
    store.variants("pytorch", tars, config, {"latest": ("gzip", OCI), "zstd": ("zstd", OCI)},
                   {"gzip": ("debian", "12"), "zstd": ("debian", "12-zstd")})
    shutil.rmtree(os.path.join(store.scratch, "pytorch"))
