"""mpi: debian:12 and one layer with Open MPI (which speaks PMIx), MPICH and libpmi2 (which speak PMI2), and small programs for each.

/usr/local/bin: hello (Open MPI), hello-mpich, pmi2; their sources are in mpi/. mpirun is Open MPI's, mpiexec.hydra MPICH's (Debian's needs
libslurm). Tag latest.
"""

import glob
import os
import shutil
import subprocess

import debian
import tiny
from layers import OCI

LIB = "usr/lib/x86_64-linux-gnu"
PACKAGES = ["openmpi-bin", "openmpi-common", "libopenmpi3", "libpmix2", "libevent-core-2.1-7", "libevent-pthreads-2.1-7", "libhwloc15",
            "libmunge2", "libmpich12", "libucx0", "libnuma1", "libpmi2-0", "mpich", "libslurm38"]
HEADERS = ["libopenmpi-dev", "libmpich-dev"]  # compiled against, not in the image
CONFIG = {"Env": [tiny.PATH], "Cmd": ["bash"], "Labels": {"org.opencontainers.image.title": "mpi"}}

# Open MPI and UCX warn about each plugin whose library is missing; these are for networks that the lab does not have.
NETWORKS = ("_netlink", "_ofi", "_psm", "_psm2", "_ucx", "_openib", "_usnic", "_uct", "_ib", "_rdmacm")


def fetch(packages, debs):
    command = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download"] + packages
    os.makedirs(debs)
    if subprocess.run(command, cwd=debs, check=False, stdout=2).returncode != 0:
        # The lists may be old or absent.
        subprocess.run(["apt-get", "-q", "update"], check=True, stdout=2)
        subprocess.run(command, cwd=debs, check=True, stdout=2)


def unpack(debs, names, root):
    for name in names:
        (deb,) = glob.glob(os.path.join(debs, name + "_*.deb"))
        subprocess.run(["dpkg-deb", "--extract", deb, root], check=True)


def compile_programs(root, headers):
    sources = os.path.join(os.path.dirname(os.path.realpath(__file__)), "mpi")
    # The library's own libraries are in the image only, where the linker does not look.
    command = ["g++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Wl,--allow-shlib-undefined"]
    for source, program, include, library in (
            ("hello", "hello", os.path.join(headers, LIB, "openmpi/include"), os.path.join(root, LIB, "libmpi.so.40")),
            ("hello", "hello-mpich", os.path.join(headers, "usr/include/x86_64-linux-gnu/mpich"), os.path.join(root, LIB, "libmpich.so.12")),
            ("pmi2", "pmi2", headers, os.path.join(root, LIB, "libpmi2.so.0"))):
        subprocess.run(command + ["-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", "-isystem", include, "-o",
                                  os.path.join(root, "usr/local/bin", program), os.path.join(sources, source + ".cpp"), library], check=True)


def build(store):
    area = os.path.join(store.scratch, "mpi")
    shutil.rmtree(area, ignore_errors=True)
    debs, root, headers = (os.path.join(area, name) for name in ("debs", "root", "headers"))
    fetch(PACKAGES + HEADERS, debs)
    unpack(debs, PACKAGES, root)
    unpack(debs, HEADERS, headers)
    for plugin in glob.glob(os.path.join(root, LIB, "openmpi/lib/openmpi3/*.so")) + glob.glob(os.path.join(root, LIB, "ucx/*.so*")):
        if os.path.basename(plugin).split(".")[0].endswith(NETWORKS):
            os.unlink(plugin)
    for folder in ("doc", "man"):
        shutil.rmtree(os.path.join(root, "usr/share", folder), ignore_errors=True)
    os.symlink("mpirun.openmpi", os.path.join(root, "usr/bin/mpirun"))
    # mpirun wants it to exist, also where it starts all ranks by itself.
    os.symlink("false", os.path.join(root, "usr/bin/ssh"))
    os.makedirs(os.path.join(root, "usr/local/bin"))
    compile_programs(root, headers)
    layer = store.layer()
    layer.tree(root)
    store.variants("mpi", [layer.close()], CONFIG, {"latest": ("gzip", OCI)}, {"gzip": ("debian", "12")})
    shutil.rmtree(area)
