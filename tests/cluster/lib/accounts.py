"""Who is there in an instance, and by which names are its machines and registries found?"""
import os
import re
import subprocess

from places import GROUPS, HOSTS, REGISTRY_PASSWORD, REGISTRY_USER, USERS, read, write

PEOPLE = ("alice", "bob")


def write_names(nodes: int) -> None:
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in HOSTS.items()), *(f"127.0.1.{n} node{n}" for n in range(1, nodes + 1))]
    write("/etc/hosts", "\n".join(lines) + "\n")
    switch = re.sub(r"^hosts:.*", "hosts: files", read("/etc/nsswitch.conf"), flags=re.M)
    write("/etc/nsswitch.conf", re.sub(r"^(passwd|group|shadow|gshadow):.*", r"\1: files", switch, flags=re.M))
    if os.path.lexists("/etc/resolv.conf"):
        os.unlink("/etc/resolv.conf")
    write("/etc/resolv.conf", "# the lab has no name server\n")


def write_accounts() -> None:
    say = {"situla": "Situla image store:/var/lib/situla:/usr/sbin/nologin", "situla-import": "Situla image importer:/nonexistent:/usr/sbin/nologin",
           "alice": "Alice:/home/alice:/bin/bash", "bob": "Bob:/home/bob:/bin/bash"}
    shared = [f"{name}:x:{number}:{members}" for name, (number, members) in GROUPS.items()]
    replace_entries("/etc/group", [*(f"{name}:x:{number}:" for name, number in USERS.items()), *shared])
    replace_entries("/etc/passwd", [f"{name}:x:{number}:{number}:{say[name]}" for name, number in USERS.items()])
    replace_entries("/etc/shadow", [f"{name}:!:19000::::::" for name in USERS])
    # What this machine gives to its own users of these names: podman would ask for newuidmap.
    for database in filter(os.path.exists, ("/etc/subuid", "/etc/subgid")):
        replace_entries(database, [], names=set(USERS))
    for name in PEOPLE:
        make_home(name)
    # alice has credentials, bob has none.
    own("alice", "/home/alice/.config", 0o755)
    own("alice", "/home/alice/.config/enroot", 0o755)
    credentials = "/home/alice/.config/enroot/.credentials"
    write(credentials, "".join(f"machine {host} login {REGISTRY_USER} password {REGISTRY_PASSWORD}\n" for host in ("auth.test", "auth-token.test")))
    os.chown(credentials, USERS["alice"], USERS["alice"])
    os.chmod(credentials, 0o600)


def replace_entries(database: str, entries: list[str], names: set[str] | None = None) -> None:
    """This machine may have accounts of the same names."""
    names = names or {entry.split(":")[0] for entry in entries}
    others = [line for line in read(database).splitlines() if line.split(":")[0] not in names]
    write(database, "\n".join([*others, *entries]) + "\n")


def own(name: str, directory: str, mode: int) -> None:
    os.mkdir(directory)
    os.chown(directory, USERS[name], USERS[name])
    os.chmod(directory, mode)


def make_home(name: str) -> None:
    home = f"/home/{name}"
    subprocess.run(["cp", "-a", "/etc/skel", home], check=True)
    subprocess.run(["chown", "-R", f"{name}:{name}", home], check=True)
    os.chmod(home, 0o700)
    own(name, f"/scratch/{name}", 0o700)
