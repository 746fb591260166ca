"""ngc: what a PyTorch image of NVIDIA's catalogue looks like to its users: mpi, and one layer with python, torchrun and torch.

python is Debian's. torch and torchrun are stand-ins of some lines each (ngc/): processes find each other, add a number, and say who they are.
The environment, the working directory and the entrypoint are as there. Tag latest.
"""

import os
import shutil

import mpi
import tiny
from layers import OCI

PACKAGES = ["python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libexpat1", "libffi8"]
CONFIG = {"Env": [tiny.PATH, "PYTORCH_VERSION=2.5.0a0+e000cf0ad9", "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"],
          "Entrypoint": ["/opt/nvidia/nvidia_entrypoint.sh"], "WorkingDir": "/workspace", "Labels": {"org.opencontainers.image.title": "ngc"}}
FILES = {"torch.py": ("usr/lib/python3/dist-packages/torch/__init__.py", 0o644),
         "distributed.py": ("usr/lib/python3/dist-packages/torch/distributed.py", 0o644),
         "torchrun": ("usr/local/bin/torchrun", 0o755), "entrypoint.sh": ("opt/nvidia/nvidia_entrypoint.sh", 0o755)}


def build(store):
    area = os.path.join(store.scratch, "ngc")
    shutil.rmtree(area, ignore_errors=True)
    debs, root = os.path.join(area, "debs"), os.path.join(area, "root")
    mpi.fetch(PACKAGES, debs)
    mpi.unpack(debs, PACKAGES, root)
    # The image's /lib is a link.
    shutil.copytree(os.path.join(root, "lib"), os.path.join(root, "usr/lib"), symlinks=True, dirs_exist_ok=True)
    shutil.rmtree(os.path.join(root, "lib"))
    shutil.rmtree(os.path.join(root, "usr/share/doc"), ignore_errors=True)
    for name in ("python", "python3"):
        os.symlink("python3.11", os.path.join(root, "usr/bin", name))
    for name, (place, mode) in FILES.items():
        path = os.path.join(root, place)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copyfile(os.path.join(os.path.dirname(os.path.realpath(__file__)), "ngc", name), path)
        os.chmod(path, mode)
    os.makedirs(os.path.join(root, "workspace"))
    layer = store.layer()
    layer.tree(root)
    store.variants("ngc", [layer.close()], CONFIG, {"latest": ("gzip", OCI)}, {"gzip": ("mpi", "latest")})
    shutil.rmtree(area)
