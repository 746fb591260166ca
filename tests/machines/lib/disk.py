"""What is on a machine's disk? A base root with Situla as a site installs it, images behind a registry, Slurm's configuration, the tests."""
import glob
import os
import shutil
import subprocess
from collections.abc import Collection
from dataclasses import dataclass

import base
import kernel
import packages
import prepare
from places import MOCK_NVML, REPOSITORY, STATE, write
from releases import Release

HERE = f"{REPOSITORY}/tests/machines"
IMAGES = ["tiny", "debian", "blocks"]
SIZE, DATA_SIZE = "8G", "6G"
# Nobody looks at these, and they take seconds of a slow machine.
MASKED = ["serial-getty@ttyS0.service", "serial-getty@ttyS1.service", "getty@tty1.service", "apt-daily.timer", "apt-daily-upgrade.timer",
          "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer", "docker-registry.service"]
REGISTRY = """\
version: 0.1
log: {level: error, accesslog: {disabled: false}}
storage: {filesystem: {rootdirectory: /srv/registry}}
http: {addr: ":443", secret: machine, tls: {certificate: /srv/tls/server.crt, key: /srv/tls/server.key}}
"""
NODE = "CPUs=2 RealMemory=2048 Gres=gpu:2 State=UNKNOWN"
EXPORT = "/srv/nfs"
MODEL = """\
/
0 0
d--755 0 0
situla d--700 {situla}
$
home d--755 0 0
alice d--700 {alice}
$
$
$
"""


@dataclass
class Disk:
    """Of one machine: files of this host."""

    root: str
    data: str  # a second one; empty where everything is on the first
    kernel: str
    initrd: str
    owner: str  # how the files of an image become a user's on such a machine


def make(release: Release, file_system: str, directory: str, nodes: int = 1) -> Disk:
    """In a mount namespace of the caller's own, which the overlay stays in. Of several machines, each has a copy."""
    for folder in ("images", "registry", "tls"):
        os.makedirs(f"{STATE}/{folder}", exist_ok=True)
    prepare.images([*IMAGES, *(["mpi"] if nodes > 1 else [])])
    prepare.certificates()
    library = mock_library()
    debs = packages.build(release.distribution)
    log = f"{directory}/disk.log"
    with base.base_root(release, base.needs(debs["1"])) as lower:
        root = f"{directory}/root"
        kernel.overlay(lower, f"{directory}/changes", root)
        install(root, debs, log)
        fill(root, library, nodes)
        disk = Disk(f"{directory}/disk", "", f"{directory}/kernel", f"{directory}/initrd", release.owner[file_system])
        for name, source in ((disk.kernel, "vmlinuz-*"), (disk.initrd, "initrd.img-*")):
            shutil.copy(sorted(glob.glob(f"{root}/boot/{source}"))[-1], name)
        if file_system == "xfs":
            disk.data = f"{directory}/data"
            make_data(root, disk.data)
        if file_system == "nfs":
            make_export(root, {"home": "alice", "situla": "situla"})
        elif nodes > 1:
            make_export(root, {"home": "alice"})
            write(f"{root}/etc/situla/situla.toml", 'distribute = "sbcast"\n', "a")
        subprocess.run(["truncate", "-s", SIZE, disk.root], check=True)
        base.logged(["mkfs.ext4", "-q", "-F", "-i", "32768", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-d", root, disk.root], log, "making the disk")
        kernel.detach(root)
    shutil.rmtree(f"{directory}/changes")
    return disk


def mock_library() -> str:
    """What answers for the management library of the simulated GPUs."""
    with prepare.locked("build"):
        prepare.logged([["cmake", "--preset", "release"], ["cmake", "--build", "--preset", "release", "--target", "tests/gpu/all"]],
                       f"{STATE}/machines.log", "building what the simulated GPUs need")
    return MOCK_NVML


def install(root: str, debs: dict[str, list[str]], log: str) -> None:
    """As packaging/guides/install.md says, by apt; all that the packages need is there."""
    offer = f"{root}/srv/packages"
    os.makedirs(f"{root}/usr/local/share/ca-certificates", exist_ok=True)
    for revision, files in debs.items():
        os.makedirs(f"{offer}/{revision}")
        for deb in files:
            shutil.copy(deb, f"{offer}/{revision}/")
    write(f"{root}/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n")
    os.chmod(f"{root}/usr/sbin/policy-rc.d", 0o755)
    shutil.copy(f"{STATE}/tls/ca.crt", f"{root}/usr/local/share/ca-certificates/machine.crt")
    script = """
        update-ca-certificates
        cd /srv/packages/1
        apt-get -q install -y --no-install-recommends ./situla_*.deb ./situla-slurm-plugin_*.deb
        grep -qsE '^[[:space:]]*include[[:space:]]+(/etc/slurm/)?plugstack\\.conf\\.d/\\*' /etc/slurm/plugstack.conf || echo 'include /etc/slurm/plugstack.conf.d/*.conf' >>/etc/slurm/plugstack.conf
        useradd --create-home --shell /bin/bash alice
        install -d -o slurm -g slurm /var/lib/slurm/slurmctld /var/log/slurm
        install -d /var/lib/slurm/slurmd
        """
    base.logged(base.chroot(root, "sh", "-euc", script), log, "installing Situla")
    os.unlink(f"{root}/usr/sbin/policy-rc.d")


def fill(root: str, library: str, nodes: int) -> None:
    for source, target in ((f"{HERE}/root/.", "/"), (f"{HERE}/inside/.", "/tests"), (f"{STATE}/registry/.", "/srv/registry"), (f"{STATE}/tls/.", "/srv/tls")):
        os.makedirs(f"{root}{target}", exist_ok=True)
        subprocess.run(["cp", "-r", "--preserve=mode", source, f"{root}{target}"], check=True)
    write(f"{root}/srv/registry.yml", REGISTRY)
    write(f"{root}/etc/slurm/nodes.conf", "".join(f"NodeName=node{node} NodeAddr=192.0.2.{node} {NODE}\n" for node in range(1, nodes + 1)))
    subprocess.run([f"{REPOSITORY}/tests/gpu/make-driver-root", "--gpus", "2", "--devices=real", "--nvml", library, f"{root}/srv/gpu"], check=True)
    # Each machine would have its own; on one that boots from a copy, systemd would make it at the first boot.
    write(f"{root}/etc/machine-id", "a" * 32 + "\n")
    units = f"{root}/etc/systemd/system"
    for unit in MASKED:
        if os.path.lexists(f"{units}/{unit}"):
            os.unlink(f"{units}/{unit}")
        os.symlink("/dev/null", f"{units}/{unit}")
    enabled = ["machine-devices", "machine-registry", "machine", "munge", "slurmctld", "slurmd"]
    subprocess.run(["systemctl", f"--root={root}", "--quiet", "enable", *enabled], stderr=subprocess.DEVNULL, check=True)


def owners_of(root: str) -> dict[str, str]:
    """The numbers of its accounts, "UID GID"."""
    with open(f"{root}/etc/passwd", encoding="utf-8") as accounts:
        return {fields[0]: f"{fields[2]} {fields[3]}" for fields in (line.split(":") for line in accounts)}


def mount_data(root: str, line: str, options: str, folders: Collection[str] = ("home", "situla")) -> None:
    """Store and homes, or one of them, are in /data from the boot on."""
    os.makedirs(f"{root}/data", exist_ok=True)
    places = {"home": "/home", "situla": "/var/lib/situla"}
    write(f"{root}/etc/fstab", f"{line}\n" + "".join(f"/data/{name} {places[name]} none {options} 0 0\n" for name in folders), "a")


def make_export(root: str, folders: dict[str, str]) -> None:
    """The users' files and perhaps the store come from an NFS server to which root is nobody: the first machine. By name: whose they are."""
    for name, owner in folders.items():
        uid, gid = (int(number) for number in owners_of(root)[owner].split())
        top = f"{root}{EXPORT}/{name}{'/alice' if name == 'home' else ''}"
        os.makedirs(top)
        os.chown(top, uid, gid)
        os.chmod(top, 0o700)
    write(f"{root}/etc/exports", f"{EXPORT} 192.0.2.0/24(rw,root_squash,sync,no_subtree_check)\n")
    # What was open when the machine went down is asked for again only so long: a boot waits for it.
    os.makedirs(f"{root}/etc/nfs.conf.d", exist_ok=True)
    write(f"{root}/etc/nfs.conf.d/machine.conf", "[nfsd]\ngrace-time = 10\nlease-time = 10\nvers3 = n\n")
    mount_data(root, f"192.0.2.1:{EXPORT} /data nfs4 _netdev,x-systemd.requires=nfs-server.service 0 0", "bind,_netdev", folders)


def make_data(root: str, data: str) -> None:
    """An XFS with the store and the users' files; mkfs.xfs makes the directories, so that nothing has to be mounted here."""
    write(f"{data}.model", MODEL.format(**owners_of(root)))
    subprocess.run(["truncate", "-s", DATA_SIZE, data], check=True)
    subprocess.run(["mkfs.xfs", "-q", "-p", f"{data}.model", data], check=True)
    mount_data(root, "/dev/vdb /data xfs defaults 0 0", "bind")
