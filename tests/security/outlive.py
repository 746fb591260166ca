#!/usr/bin/python3
"""Traces the first process of the caller's whose command line begins with the words, takes away the signal that would end it with its parent
(PR_SET_PDEATHSIG), and leaves it stopped. Says its number. For x86_64.

  outlive.py SECONDS WORD...
"""
import ctypes
import os
import signal
import struct
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long
PEEKTEXT, POKETEXT, SINGLESTEP, GETREGS, SETREGS, ATTACH, DETACH = 1, 4, 9, 12, 13, 16, 17
RAX, RSI, RDI, ORIG_RAX, RIP = 10, 13, 14, 15, 16  # of struct user_regs_struct
PRCTL, SET_PDEATHSIG, SYSCALL = 157, 1, 0x050F
WALL = 0x40000000


def ptrace(request, pid, address=None, data=None):
    ctypes.set_errno(0)
    value = LIBC.ptrace(request, pid, address, data)
    if value == -1 and ctypes.get_errno() != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return value


def find(words, until):
    last = None
    start = b"\0".join(word.encode() for word in words)
    while time.monotonic() < until:
        for name in os.listdir("/proc"):
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if name.isdigit() and int(name) != os.getpid() and file.read().startswith(start):
                        ptrace(ATTACH, int(name))
                        return int(name)
            except FileNotFoundError:
                pass
            except OSError as error:
                last = error
    sys.exit(f"there is no such process, or none that can be traced: {last}")


def main():
    pid = find(sys.argv[2:], time.monotonic() + float(sys.argv[1]))
    os.waitpid(pid, WALL)
    buffer = ctypes.create_string_buffer(27 * 8)
    ptrace(GETREGS, pid, None, ctypes.addressof(buffer))
    before = buffer.raw
    registers = list(struct.unpack("27Q", before))
    place = registers[RIP]
    word = ptrace(PEEKTEXT, pid, place)
    ptrace(POKETEXT, pid, place, (word & ~0xFFFF | SYSCALL) & 0xFFFFFFFFFFFFFFFF)
    registers[RAX], registers[RDI], registers[RSI], registers[ORIG_RAX] = PRCTL, SET_PDEATHSIG, 0, 0xFFFFFFFFFFFFFFFF
    buffer.raw = struct.pack("27Q", *registers)
    ptrace(SETREGS, pid, None, ctypes.addressof(buffer))
    ptrace(SINGLESTEP, pid)
    os.waitpid(pid, WALL)
    ptrace(GETREGS, pid, None, ctypes.addressof(buffer))
    if struct.unpack("27Q", buffer.raw)[RAX] != 0:
        sys.exit("prctl was refused")
    ptrace(POKETEXT, pid, place, word & 0xFFFFFFFFFFFFFFFF)
    buffer.raw = before
    ptrace(SETREGS, pid, None, ctypes.addressof(buffer))
    ptrace(DETACH, pid, None, signal.SIGSTOP)
    print(pid, flush=True)


main()
