"""How is Slurm configured and started in an instance?"""
import os
import subprocess
from functools import partial

import daemons
import kernel
from options import Options
from places import HOSTS, MOCK_NVML, PREFIX, PROGRAM, REPOSITORY, SOURCE, write

CONFIGURATION = """\
ClusterName=lab
SlurmctldHost=ctl(127.0.1.0)
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/{task}
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
ReturnToService=2
MailProg=/bin/true
MpiDefault=none
SlurmdParameters=config_overrides
StateSaveLocation=/var/spool/slurmctld
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldDebug=info
SlurmdDebug=info
SlurmdLogFile={directory}/logs/slurmd.%n.log
KillWait=5
UnkillableStepTimeout=30
UnkillableStepProgram={repository}/tests/cluster/slurm/unkillable
PlugStackConfig=/etc/slurm/plugstack.conf
"""
CGROUPS = """\
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=no
ConstrainCores=no
ConstrainRAMSpace=no
ConstrainDevices=no
"""


def copy(source: str, target: str) -> None:
    subprocess.run(["cp", "-r", source, target], check=True)


def slurm_conf(directory: str, options: Options) -> str:
    task = "cgroup" if options.proctrack == "cgroup" else "none"
    lines = CONFIGURATION.format(directory=directory, proctrack=options.proctrack, task=task, repository=REPOSITORY).splitlines()
    for line in options.slurm_conf:
        key = line.split("=")[0]
        if key not in ("NodeName", "PartitionName"):
            lines = [other for other in lines if other.split("=")[0].lower() != key.lower()]
        lines.append(line)
    if options.gpus:
        lines += ["GresTypes=gpu", f"NodeName=DEFAULT Gres=gpu:{options.gpus}"]
    # One machine plays all nodes: each has its own name, address and port, and more cores than there are, so that many tasks fit.
    for n in range(1, options.nodes + 1):
        lines.append(f"NodeName=node{n} NodeHostname=node{n} NodeAddr=127.0.1.{n} Port={7000 + n} CPUs=32 RealMemory=4096 State=UNKNOWN")
    lines.append("PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=FORCE:64 State=UP")
    return "\n".join(lines) + "\n"


def write_configuration(directory: str, options: Options) -> None:
    """/etc/slurm, /etc/enroot and /etc/situla."""
    write("/etc/slurm/slurm.conf", slurm_conf(directory, options))
    write("/etc/slurm/cgroup.conf", CGROUPS)
    write("/etc/slurm/job_container.conf", "AutoBasePath=true\nBasePath=/var/spool/slurmd/job_container\n")
    subprocess.run(["rm", "-rf", "/etc/slurm/plugstack.conf.d"], check=True)
    plugin = f"required {PREFIX}/lib/slurm/spank_situla.so {' '.join(options.plugin_args)}\n"
    write("/etc/slurm/plugstack.conf", plugin if options.plugin else "")
    write_gpus(options)
    copy(f"{directory}/slurm.d/.", "/etc/slurm/")
    # What the project ships for /etc/enroot, as an administrator would copy it.
    for folder in ("hooks.d", "mounts.d", "environ.d"):
        if os.path.isdir(f"{REPOSITORY}/conf/{folder}"):
            copy(f"{REPOSITORY}/conf/{folder}", "/etc/enroot/")
    # The lab's registry with a token server has it under another name, as a site with a GitLab has.
    os.makedirs("/etc/enroot/enroot.conf.d", exist_ok=True)
    write("/etc/enroot/enroot.conf.d/token_servers.conf", "ENROOT_TOKEN_SERVERS token.test=auth-token.test\n")
    for given, target in ((options.enroot_conf, "/etc/enroot/enroot.conf"), (options.enroot_hooks, "/etc/enroot/hooks.d"),
                          (options.situla_conf, "/etc/situla/situla.toml")):
        if given:
            copy(f"{directory}/{os.path.basename(target)}", target)
    subprocess.run(["chmod", "-R", "a+rX", "/etc/slurm", "/etc/enroot", "/etc/situla"], check=True)


def write_gpus(options: Options) -> None:
    files, first = "/dev/loop", 0  # Slurm wants to see files, and hands out their numbers
    if options.nvidia:
        files = "/shared/nvidia/dev/nvidia"
        subprocess.run([f"{REPOSITORY}/tests/gpu/make-driver-root", "--nvml", MOCK_NVML, *options.nvidia, "/shared/nvidia"], check=True)
    if options.drm:
        files, first = "/shared/drm/dev/dri/renderD", 128
        subprocess.run([f"{REPOSITORY}/tests/gpu/make-drm-root", "/shared/drm", *options.drm], check=True)
    if options.gpus:
        write("/etc/slurm/gres.conf", f"Name=gpu File={files}[{first}-{first + options.gpus - 1}]\n")


def start_munge(directory: str) -> None:
    # Nodes have their own /run: the socket's directory is kept where it can be bound into each.
    for path in ("/run/munge", "/var/spool/munge.run", "/etc/munge", "/var/log/munge", "/var/lib/munge"):
        os.makedirs(path, exist_ok=True)
    owned = ["/var/spool/munge.run", "/etc/munge", "/var/log/munge", "/var/lib/munge"]
    kernel.bind("/var/spool/munge.run", "/run/munge")
    with open("/etc/munge/munge.key", "wb") as key:
        key.write(os.urandom(128))
    os.chmod("/etc/munge/munge.key", 0o400)
    subprocess.run(["chown", "munge:munge", *owned, "/etc/munge/munge.key"], check=True)
    daemons.start(directory, "munged", *daemons.as_user("munge"), "munged", "--foreground")


def nodes_idle(count: int) -> bool:
    shown = subprocess.run(["sinfo", "-h", "-N", "-o", "%T"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return shown.stdout.split().count("idle") == count


def start(directory: str, options: Options) -> None:
    """slurmctld, and a machine with a slurmd for each node."""
    os.makedirs("/var/log/slurm", exist_ok=True)
    subprocess.run(["chown", "slurm:slurm", "/var/spool/slurmctld", "/var/log/slurm"], check=True)
    daemons.wait_until("munge", lambda: daemons.succeeds("munge", "-n"))
    controller = daemons.start(directory, "slurmctld", *daemons.as_user("slurm"), "slurmctld", "-D")
    # A slurmd that comes too early tries again after a second.
    daemons.wait_until("slurmctld to listen (logs/slurmctld.log)", lambda: daemons.listens(HOSTS["ctl"], 6817), controller)
    for n in range(1, options.nodes + 1):
        # slurmd would make it for root alone; suites run as alice.
        write(f"{directory}/logs/slurmd.node{n}.log", "")
        os.chmod(f"{directory}/logs/slurmd.node{n}.log", 0o644)
        outer = daemons.start(directory, f"node{n}", "unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child",
                              *PROGRAM, f"{SOURCE}/lib/node.py", directory, str(n))
        daemons.wait_until(f"the first process of node{n}", partial(kernel.first_child, outer.pid))
        write(f"{directory}/node{n}.pid", f"{kernel.first_child(outer.pid)}\n")
    daemons.wait_until("the nodes to be idle (logs/slurmctld.log, logs/node*.log)", lambda: nodes_idle(options.nodes))
