"""What is made once and reused by every instance? Situla installed, test images, certificates."""
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from places import HOSTS, INSTALLED, PREFIX, REAL_NAMES, REGISTRY_PASSWORD, REGISTRY_USER, REPOSITORY, SOURCE, STATE, LabError, read, write

SOURCES = ["CMakeLists.txt", "CMakePresets.json", "packaging", "common", "hooks", "plugin", "conf"]


@contextmanager
def locked(name: str) -> Iterator[None]:
    with open(f"{STATE}/{name}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def newer_than(stamp: str) -> bool:
    """A source is newer than the stamp, or there is none."""
    if not os.path.exists(stamp):
        return True
    find = ["find", *SOURCES, "-newer", stamp, "-print", "-quit"]
    found = subprocess.run(find, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return bool(found.stdout)


def logged(commands: list[list[str]], log: str, what: str, lines: int = 30) -> None:
    """Runs them one after the other, silently unless one fails."""
    with open(log, "w", encoding="utf-8") as out:
        for command in commands:
            if subprocess.run(command, cwd=REPOSITORY, stdout=out, stderr=out, stdin=subprocess.DEVNULL, check=False).returncode != 0:
                print("\n".join(read(log).splitlines()[-lines:]), file=sys.stderr)
                raise LabError(f"{what} failed; the whole log is {log}")


def with_tests() -> bool:
    """Was the tree configured for the suites? Where it never was, their packages (Catch2, FUSE's headers) may be missing, and the lab needs none of them."""
    tree = f"{REPOSITORY}/build/release"
    return os.path.exists(f"{tree}/build.ninja") and "\nBUILD_TESTING:BOOL=ON\n" in read(f"{tree}/CMakeCache.txt")


def situla() -> None:
    """Builds and installs when a source is newer than the last installation. Instances copy what is installed, so installing does not disturb them."""
    stamp = f"{STATE}/prefix.stamp"
    with locked("build"):
        # There may be an installation to another place.
        if not newer_than(stamp) and read(stamp) == PREFIX:
            return
        write(f"{stamp}.new", PREFIX)
        logged([["cmake", "--preset", "release", f"-DCMAKE_INSTALL_PREFIX={PREFIX}", f"-DSITULA_LIBEXEC_DIR={PREFIX}/libexec/situla",
                 f"-DBUILD_TESTING={'ON' if with_tests() else 'OFF'}"],
                ["cmake", "--build", "--preset", "release", "--parallel", str(os.cpu_count()), "--target", "common/all", "hooks/all", "plugin/all", "packaging/all"],
                ["rm", "-rf", f"{STATE}/stage"],
                ["env", f"DESTDIR={STATE}/stage", "cmake", "--install", "build/release"],
                ["rm", "-rf", INSTALLED],
                ["mv", f"{STATE}/stage{PREFIX}", INSTALLED],
                ["rm", "-rf", f"{STATE}/stage"]], f"{STATE}/build.log", "building Situla")
        os.rename(f"{stamp}.new", stamp)


def images(names: list[str]) -> None:
    if subprocess.run([f"{SOURCE}/images/build", *names], check=False).returncode != 0:
        raise LabError("making the test images failed")


def certificates() -> None:
    """A CA of the lab's own, one certificate for all its hosts, one certificate of another CA, a key that signs tokens."""
    names = ",".join(["IP:::1", *(f"DNS:{name}" for name in [*HOSTS, *REAL_NAMES])])
    tls = f"{STATE}/tls"
    with locked("tls"):
        if os.path.exists(f"{tls}/made") and read(f"{tls}/made").strip() == names:
            return
        write(f"{tls}/names", f"subjectAltName={names}\n")
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        itself = ["openssl", "req", "-x509", "-days", "3650"]
        commands = [
            [*itself, *curve, "-subj", "/CN=Situla lab CA", "-keyout", f"{tls}/ca.key", "-out", f"{tls}/ca.crt"],
            ["openssl", "req", *curve, "-subj", "/CN=registry.test", "-keyout", f"{tls}/server.key", "-out", f"{tls}/server.csr"],
            ["openssl", "x509", "-req", "-in", f"{tls}/server.csr", "-CA", f"{tls}/ca.crt", "-CAkey", f"{tls}/ca.key", "-CAcreateserial",
             "-days", "3650", "-out", f"{tls}/server.crt", "-extfile", f"{tls}/names"],
            [*itself, "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=badcert.test", "-addext", "subjectAltName=DNS:badcert.test",
             "-keyout", f"{tls}/stranger.key", "-out", f"{tls}/stranger.crt"],
            [*itself, "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=token signer", "-keyout", f"{tls}/token.key", "-out", f"{tls}/token.crt"],
            ["htpasswd", "-Bbc", f"{tls}/htpasswd", REGISTRY_USER, REGISTRY_PASSWORD],
        ]
        logged(commands, f"{tls}/openssl.log", "making the lab's certificates")
        write(f"{tls}/made", f"{names}\n")
