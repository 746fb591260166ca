"""How does a command get into an instance, and what does it find there?"""
import os

from places import PREFIX, STATE, LabError, read

# Of the caller's, and something else inside: proxies, certificates, jobs, directories for temporary files.
FOREIGN = {"CURL_CA_BUNDLE", "TMPDIR", "BASH_ENV", "ENV", "http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
           "ALL_PROXY"}
# In the directory of the caller, where it exists.
SAME_PLACE = 'cd "$1" 2>/dev/null || cd; shift; exec "$@"'


def environment(directory: str, user: str, node: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in FOREIGN and not name.startswith(("SLURM_", "XDG_", "SSL_"))}
    return kept | {
        "HOME": "/root" if user == "root" else f"/home/{user}", "USER": user, "LOGNAME": user, "SHELL": "/bin/bash",
        "PATH": f"{PREFIX}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "SITULA_LAB": directory, "SITULA_LAB_IMAGES": f"{STATE}/images", "SITULA_LAB_PREFIX": PREFIX, "SITULA_LAB_NODE": str(node),
    }


def command(directory: str, user: str, node: int, words: list[str]) -> list[str]:
    """Runs the words in the namespaces of the node; of none, where slurmctld and the registries run, for node 0."""
    if node and not os.path.exists(f"{directory}/node{node}.pid"):
        raise LabError(f"the instance has no node {node}")
    try:
        first = read(f"{directory}/pid").strip()
    except OSError:
        first = ""
    if not first or not os.path.isdir(f"/proc/{first}"):
        raise LabError("the instance is not running")
    inner = []
    if node:
        # Its number is one of the instance's: seen from inside.
        inner = ["nsenter", "--target", read(f"{directory}/node{node}.pid").strip(), "--mount", "--uts", "--ipc", "--pid", "--cgroup"]
    become = [] if user == "root" else ["setpriv", "--reuid", user, "--regid", user, "--init-groups"]
    outer = ["nsenter", "--target", first, "--mount", "--net", "--uts", "--ipc", "--pid"]
    return [*outer, *inner, *become, "/bin/sh", "-c", SAME_PLACE, "sh", os.getcwd(), *words]
