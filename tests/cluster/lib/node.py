"""First process of one node: a machine of its own (processes, mounts, host name, IPC), which runs slurmd and reaps orphans.

    node.py DIR NUMBER      (run by slurm.py in new namespaces)
"""
import os
import subprocess
import sys

import daemons
import kernel
import root
from options import Options, cgroup_of
from places import read, write

CGROUPS = "/sys/fs/cgroup"


def join_cgroups(instance: str, number: str) -> None:
    """Moves this process below a cgroup of the instance, in every hierarchy."""
    for controller in os.scandir(CGROUPS):
        if controller.is_symlink() or not os.path.exists(f"{controller.path}/cgroup.procs"):
            continue
        parent = f"{controller.path}/{instance}"
        group = f"{parent}/node{number}"
        os.makedirs(group, exist_ok=True)
        # A new cpuset is empty and takes no process until it has been told what it may use.
        for name in ("cpuset.cpus", "cpuset.mems"):
            if os.path.exists(f"{group}/{name}"):
                for directory in (parent, group):
                    write(f"{directory}/{name}", read(f"{controller.path}/{name}"))
        write(f"{group}/cgroup.procs", str(os.getpid()))


def mount_cgroups() -> None:
    """In a new cgroup namespace: the hierarchies again, so that what was joined is their root."""
    kernel.detach(CGROUPS)
    kernel.mount("tmpfs", CGROUPS, "mode=755")
    for line in read("/proc/self/cgroup").splitlines():
        controllers = line.split(":")[1]
        target = f"{CGROUPS}/{controllers.removeprefix('name=') or 'unified'}"
        os.mkdir(target)
        if not controllers:
            kernel.mount("cgroup2", target)
        else:
            kernel.mount("cgroup", target, f"none,{controllers}" if controllers.startswith("name=") else controllers)


def start_munge() -> None:
    """A credential is decoded once by each munged. Where several nodes have one munged, slurmd gets all that other nodes have seen as replayed;
    before Slurm 23.11 its threads have one place for the text of that error, and two at a time may free it twice."""
    subprocess.run(["chown", "munge:munge", "/run/munge"], check=True)
    places = {"socket": "munge.socket.2", "pid-file": "munged.pid", "log-file": "munged.log", "seed-file": "munged.seed"}
    words = [f"--{option}=/run/munge/{name}" for option, name in places.items()]
    subprocess.Popen([*daemons.as_user("munge"), "munged", "--foreground", *words], stdin=subprocess.DEVNULL)  # pylint: disable=consider-using-with
    daemons.wait_until("munge", lambda: daemons.succeeds("munge", "-n"))


def own_machine(directory: str, number: str, options: Options) -> None:
    kernel.make_private("/")
    kernel.set_host_name(f"node{number}")
    root.mount_own()
    for made, where in ((options.nvidia, "/shared/nvidia"), (options.drm, "/shared/drm")):
        if made:
            subprocess.run(["cp", "-a", f"{where}/dev/.", "/dev/"], check=True)
    for path, mode in (("/var/lib/situla", 0o755), ("/var/lib/situla-incoming", 0o755), ("/var/spool/slurmd", 0o755), ("/var/tmp", 0o1777)):
        kernel.tmpfs(path, mode)
    root.find_repository()
    if options.proctrack == "cgroup":
        join_cgroups(cgroup_of(directory), number)
        kernel.unshare(kernel.CLONE_NEWCGROUP)
        mount_cgroups()
    os.mkdir("/run/munge")
    if number == "1":
        kernel.bind("/var/spool/munge.run", "/run/munge")  # the controller's
    else:
        start_munge()
    if options.disk:
        for place, mode in (("situla", 0o755), ("situla-incoming", 0o755)):
            os.makedirs(f"{directory}/disk/node{number}/{place}", mode, exist_ok=True)
            kernel.bind(f"{directory}/disk/node{number}/{place}", f"/var/lib/{place}")
    subprocess.run(["chown", "situla:situla", "/var/lib/situla"], check=True)
    os.chmod("/var/lib/situla", 0o700)


def main() -> None:
    directory, number = sys.argv[1:]
    own_machine(directory, number, Options.load(directory))
    subprocess.Popen(["slurmd", "-D", "-N", f"node{number}"], stdin=subprocess.DEVNULL)  # pylint: disable=consider-using-with
    daemons.reap_for_ever()


main()
