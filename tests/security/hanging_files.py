#!/usr/bin/python3
"""A file system that never answers the close of a file, and who sends such files around.

  hanging_files.py serve DIRECTORY FILE USER   root mounts it for USER, as fusermount does; "file" in it is a copy of FILE
  hanging_files.py to-address HEX FILE         connects to the abstract address and sends garbage with FILE, open
  hanging_files.py to-processes NAME FILE      the same over every unix socket of each process NAME of the caller's; says how many
"""
import array
import ctypes
import os
import pwd
import socket
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
PIDFD_GETFD = 438
ENOSYS = 38
(LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT, OPENDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET) = (
    1, 2, 3, 14, 15, 17, 18, 25, 26, 27, 29, 36, 42)


def attributes(node, size):
    mode = 0o040755 if node == 1 else 0o100644
    return struct.pack("<QQQQQQIIIIIIIIII", node, size, (size + 511) // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode, node, body, content):
    """The reply to one request; None: there is none."""
    if opcode == INIT:
        return struct.pack("<IIIIHHIIHHI7I", 7, 31, 65536, 0, 12, 9, 65536, 1, 32, 0, 0, *([0] * 7))
    if opcode == LOOKUP:
        return struct.pack("<QQQQII", 2, 0, 100, 100, 0, 0) + attributes(2, len(content)) if body == b"file\0" else 2
    if opcode == GETATTR:
        return struct.pack("<QII", 100, 0, 0) + attributes(node, len(content))
    if opcode in (OPEN, OPENDIR):
        return struct.pack("<QII", 1, 0, 0)
    if opcode == READ:
        _, offset, size = struct.unpack_from("<QQI", body)
        return content[offset:offset + size]
    if opcode == STATFS:
        return struct.pack("<QQQQQIIII6I", 1, 1, 1, 1, 1, 4096, 255, 4096, 0, *([0] * 6))
    if opcode in (RELEASE, RELEASEDIR):
        return b""
    return None if opcode in (FLUSH, FORGET, INTERRUPT, BATCH_FORGET) else ENOSYS


def serve(directory, file, user):
    account = pwd.getpwnam(user)
    with open(file, "rb") as source:
        content = source.read()
    line = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={line},rootmode=40000,user_id={account.pw_uid},group_id={account.pw_gid}"
    if LIBC.mount(b"hanging", directory.encode(), b"fuse", 6, options.encode()) != 0:
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    os.setgroups([])
    os.setresgid(*[account.pw_gid] * 3)
    os.setresuid(*[account.pw_uid] * 3)
    while True:
        try:
            request = os.read(line, 1 << 20)
        except OSError:
            return
        _, opcode, unique, node, uid, _, pid, _ = struct.unpack_from("<IIQQIIII", request)
        if opcode == FLUSH:
            print(f"flush of uid {uid}, process {pid}", flush=True)
        reply = answer(opcode, node, request[40:], content)
        if reply is None:
            continue
        error, data = (-reply, b"") if isinstance(reply, int) else (0, reply)
        try:
            os.write(line, struct.pack("<IiQ", 16 + len(data), error, unique) + data)
        except OSError:
            pass


def send(line, file):
    held = os.open(file, os.O_RDONLY)
    sent = 0
    for count in (1, 3):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [held] * count))]
        try:
            line.sendmsg([b"garbage"], rights, socket.MSG_DONTWAIT)
            sent += 1
        except OSError:
            pass
    return sent


def processes_of_caller(name):
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.stat(f"/proc/{entry}").st_uid == os.getuid():
                with open(f"/proc/{entry}/comm") as comm:
                    if comm.read().strip() == name:
                        yield int(entry)
        except OSError:
            pass


def to_processes(name, file):
    sent = 0
    for pid in processes_of_caller(name):
        held = os.pidfd_open(pid)
        for number in range(3, 32):
            copy = LIBC.syscall(PIDFD_GETFD, held, number, 0)
            if copy < 0:
                continue
            try:
                with socket.socket(fileno=copy) as line:
                    sent += send(line, file)
            except OSError:
                pass
    print(sent, flush=True)
    os._exit(0)  # which would wait


def to_address(name, file):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.connect("\0" + name)
        print(send(line, file), flush=True)
    os._exit(0)


if __name__ == "__main__":
    {"serve": serve, "to-address": to_address, "to-processes": to_processes}[sys.argv[1]](*sys.argv[2:])
