"""How is a machine booted without help of the processor, heard, and ended? qemu that translates (TCG); no network card."""
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator

from disk import Disk

# Slow machines count time as everybody does.
PROCESSORS, MEMORY = 2, 3072
# no_timer_check: on a busy host the kernel finds too few interrupts of the timer when it tests it, and gives up.
COMMAND_LINE = "root=/dev/vda rw console=ttyS0 quiet panic=1 no_timer_check systemd.show_status=0"


class Machine:
    """One that runs. lines() gives what it says on its second serial line; the first is its console, a file."""

    def __init__(self, disk: Disk, console: str, words: str, cache: str = "unsafe") -> None:
        drives = [word for path in (disk.root, disk.data) if path for word in ("-drive", f"file={path},format=raw,if=virtio,cache={cache}")]
        words = f"{COMMAND_LINE} machine.owner={disk.owner} {words}"
        # It ends with this process, however that ends; without, a killed run would leave it.
        command = ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(PROCESSORS),
                   "-m", str(MEMORY), "-display", "none", "-monitor", "none", "-nodefaults", "-no-reboot", "-nic", "none",
                   "-chardev", f"file,id=console,path={console},append=on", "-serial", "chardev:console", "-serial", "stdio",
                   "-device", "virtio-rng-pci", *drives, "-kernel", disk.kernel, "-initrd", disk.initrd, "-append", words]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)

    def lines(self, seconds: float) -> Iterator[str]:
        """Until it ends or the time is over; `late` says which."""
        assert self.process.stdout
        self.late, rest, deadline = False, b"", time.monotonic() + seconds
        output = self.process.stdout.fileno()
        while True:
            if not select.select([output], [], [], max(0, deadline - time.monotonic()))[0]:
                self.late = True
                return
            if not (some := os.read(output, 65536)):
                return
            *whole, rest = (rest + some).split(b"\n")
            yield from (line.decode(errors="replace").rstrip("\r") for line in whole)

    def say(self, text: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def cut_power(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> "Machine":
        return self

    def __exit__(self, *_) -> None:
        self.cut_power()
