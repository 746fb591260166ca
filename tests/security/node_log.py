"""node_log.py VERSION LEVEL PROGRAM SECONDS: takes the line to the broker of the next PROGRAM of this user, and speaks on it. LEVEL `copied`:
asks for the mount of a named container's copy instead, and says how many answers there were."""
import contextlib, ctypes, os, signal, socket, struct, sys, time

version, level, program, seconds = int(sys.argv[1], 16), sys.argv[2], sys.argv[3], float(sys.argv[4])
NOTE, COPIED_IMAGE_WANTED, IMAGE_MOUNTED, NOT_MOUNTED = 2, 26, 27, 28
BROKER, PIDFD_GETFD = 3, 438
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
    sent, deadline = 0, time.time() + seconds
    try:
        with socket.socket(fileno=line) as broker:
            while time.time() < deadline:
                broker.send(note)
                sent += len(note)
    except OSError:
        pass
    end(pid)
    return sent


def end(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def ask(question):
    """Answers of the broker, until it hangs up."""
    pid, line = find()
    answers, deadline = 0, time.time() + seconds
    try:
        with socket.socket(fileno=line) as broker:
            broker.settimeout(seconds)
            while time.time() < deadline:
                broker.send(question)
                if not (heard := broker.recv(65536)):
                    break
                # Another one is to what the process itself had asked before it was stopped.
                answers += heard[4] in (IMAGE_MOUNTED, NOT_MOUNTED)
    except OSError:
        pass
    end(pid)
    return answers


if level == "copied":
    identity = b"0" * 32
    question = struct.pack("<IBI", version, COPIED_IMAGE_WANTED, len(identity)) + identity + struct.pack("<?QQQ", False, 1, 1, 1)
    # One that is caught after it has asked for itself gets no second answer.
    while (heard := ask(question)) == 0:
        pass
    print(heard)
    sys.exit()

text = b"x" * 8000
note = struct.pack("<IBBI", version, NOTE, int(level), len(text)) + text + b"\0"
while (sent := speak(note)) < 1000000:
    print(f"{sent} bytes, and once more", file=sys.stderr)
print(sent)
