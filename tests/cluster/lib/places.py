"""Where is what of the lab, and who lives in it?"""
import os
import sys

REPOSITORY = os.path.realpath(os.path.join(os.path.dirname(__file__), "../../.."))
SOURCE = f"{REPOSITORY}/tests/cluster"
MOCK_NVML = f"{REPOSITORY}/build/release/tests/gpu/libmock_nvml.so"  # of the suites, so not there before tests/run
STATE = f"{REPOSITORY}/build/lab"
INSTALLED = f"{STATE}/prefix"
PREFIX = "/opt/situla-lab"  # where an instance has its copy: below no directory that a job may have of its own, as /tmp
# A Python program of this folder; compiled modules are kept out of the source tree.
PROGRAM = ["/usr/bin/python3", "-E", "-X", f"pycache_prefix={STATE}/pycache"]

# Names and addresses inside; each instance has its own network namespace, so that 443 is free on all of them.
HOSTS = {
    "registry.test": "127.0.0.2",
    "auth.test": "127.0.0.3",
    "token.test": "127.0.0.4",
    "auth-token.test": "127.0.0.5",
    "fault.test": "127.0.0.6",
    "badcert.test": "127.0.0.7",
    "refused.test": "127.0.0.8",
    "content.test": "127.0.0.9",
    "proxy.test": "127.0.0.10",
    "plain.test": "127.0.0.11",
    "distant.test": "127.0.0.13",
    "ctl": "127.0.1.0",
}
# Also in the hosts' certificate, for a test that has them in /etc/hosts: registries by the names that guides print.
REAL_NAMES = ["nvcr.io", "authn.nvidia.com", "registry-1.docker.io", "mirror.example.org"]
REGISTRY_USER, REGISTRY_PASSWORD = "alice", "secret"
USERS = {"situla": 60790, "situla-import": 60791, "alice": 60801, "bob": 60802}
GROUPS = {"crew": (60810, "alice"), "harvest": (60811, "alice,bob"), "press": (60812, "alice")}  # beside the users' own


class LabError(Exception):
    """What went wrong, and perhaps what helps."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def show(self, command: str) -> None:
        print(f"{command}: {self}", file=sys.stderr)
        if self.hint:
            print(f"hint: {self.hint}", file=sys.stderr)


def need_root() -> None:
    if os.geteuid() != 0:
        raise LabError("must run as root: it makes namespaces and mounts", f"sudo {sys.argv[0]} ...")


def read(path: str) -> str:
    with open(path, encoding="utf-8") as stream:
        return stream.read()


def write(path: str, text: str, mode: str = "w") -> None:
    with open(path, mode, encoding="utf-8") as stream:
        stream.write(text)


def log_of(directory: str, name: str):
    """The log of that name in an instance, to append to."""
    return open(f"{directory}/logs/{name}.log", "ab")
