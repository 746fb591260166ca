"""First process of an instance: lays out a root of its own, starts the daemons and the nodes, then waits. Its death ends everything.

    instance.py DIR READY      (run by keeper.py in new namespaces; READY is the descriptor that is told "ready" or "failed")
"""
import os
import subprocess
import sys
import traceback

import accounts
import daemons
import kernel
import registries
import root
import slurm
from options import Options
from places import write


def clean_environment() -> None:
    for name in list(os.environ):
        if name.startswith(("SSL_", "SLURM_")) or name in ("CURL_CA_BUNDLE", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            del os.environ[name]
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    os.umask(0o022)


def make_network() -> None:
    # getaddrinfo() with AI_ADDRCONFIG, which Slurm uses for its own sockets, does not count a machine that has only 127.0.0.1.
    # Open MPI does not use the loopback interface. Which kinds of interface there are is the kernel's choice; nothing passes through lab0.
    if not daemons.succeeds("ip", "link", "add", "lab0", "type", "dummy"):
        subprocess.run(["ip", "link", "add", "lab0", "type", "veth", "peer", "name", "lab1"], check=True)
    orders = "link set lo up\naddress add 127.0.1.0/8 dev lo\naddress add 10.77.0.1/24 dev lab0\nlink set lab0 up\n"
    subprocess.run(["ip", "-batch", "-"], input=orders, text=True, check=True)


def bring_up(directory: str, options: Options) -> None:
    root.enter(directory, options)
    kernel.set_host_name("ctl")
    make_network()
    accounts.write_names(options.nodes)
    accounts.write_accounts()
    slurm.write_configuration(directory, options)
    slurm.start_munge(directory)
    registries.start(directory)
    slurm.start(directory, options)
    daemons.wait_until("the registries to listen", registries.answer)


def main() -> None:
    directory, ready = sys.argv[1], int(sys.argv[2])
    os.set_inheritable(ready, False)
    clean_environment()
    try:
        bring_up(directory, Options.load(directory))
    except BaseException:
        traceback.print_exc()
        write(f"{directory}/failed", "")
        os.write(ready, b"failed\n")
        raise SystemExit(1) from None
    os.write(ready, b"ready\n")
    os.close(ready)
    daemons.reap_for_ever()


main()
