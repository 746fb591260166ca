"""node_log.py VERSION LEVEL PROGRAM SECONDS: takes the line to the broker of the next PROGRAM of this user, and speaks on it."""
import ctypes, os, signal, socket, struct, sys, time

version, level, program, seconds = int(sys.argv[1], 16), int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
NOTE, BROKER, PIDFD_GETFD = 2, 3, 438


def processes():
    """Of that program, stopped as soon as they are seen."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                if file.read().startswith(program.encode()):
                    os.kill(int(name), signal.SIGSTOP)
                    yield int(name)
        except OSError:
            pass


def find():
    """A process, and its line. One that has not got it, or has it no more, goes on."""
    until = time.time() + 120
    while time.time() < until:
        for pid in processes():
            try:
                line = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, os.pidfd_open(pid), BROKER, 0)
                if line >= 0:
                    return pid, line
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
    sys.exit(f"no {program} with a line to the broker")


pid, line = find()
text = b"x" * 8000
note = struct.pack("<IBBI", version, NOTE, level, len(text)) + text
broker, sent, end = socket.socket(fileno=line), 0, time.time() + seconds
try:
    while time.time() < end:
        broker.send(note)
        sent += len(text)
except OSError:
    pass
print(sent)
os.kill(pid, signal.SIGKILL)
