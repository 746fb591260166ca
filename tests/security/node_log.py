"""node_log.py VERSION LEVEL PROGRAM SECONDS: takes the line to the broker of the next PROGRAM of this user, and speaks on it."""
import ctypes, os, signal, socket, struct, sys, time

version, level, program, seconds = int(sys.argv[1], 16), int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
NOTE, BROKER, PIDFD_GETFD = 2, 3, 438
until = time.time() + 120


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


def speak(note):
    """Bytes sent to the broker by one process's line. A child of the program may have something else there, and one that is caught at the end
    of its step is heard no more."""
    pid, line = find()
    sent, end = 0, time.time() + seconds
    try:
        with socket.socket(fileno=line) as broker:
            while time.time() < end:
                broker.send(note)
                sent += len(note)
    except OSError:
        pass
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return sent


text = b"x" * 8000
note = struct.pack("<IBBI", version, NOTE, level, len(text)) + text + b"\0"
while (sent := speak(note)) < 1000000:
    print(f"{sent} bytes, and once more", file=sys.stderr)
print(sent)
