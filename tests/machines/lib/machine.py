"""How is a machine booted without help of the processor, heard, and ended? qemu that translates (TCG). A network card leads to one other such
machine, by a socket of this host."""
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
COMMAND_LINE = "root=/dev/vda rw console=ttyS0 quiet panic=1 no_timer_check systemd.show_status=0 net.ifnames=0"


class Machine:
    """One that runs. lines() gives what it says on its second serial line; the first is its console, a file."""

    def __init__(self, disk: Disk, console: str, words: str, cache: str = "unsafe", node: int = 1, link: str = "") -> None:
        """link: the socket between two machines. Neither changes the disk then: it is that of both."""
        options = f"format=raw,if=virtio,cache={cache}{',snapshot=on' if link else ''}"
        drives = [word for path in (disk.root, disk.data) if path for word in ("-drive", f"file={path},{options}")]
        card = ["-netdev", f"stream,id=link,server={'on' if node == 1 else 'off'},addr.type=unix,addr.path={link}",
                "-device", f"virtio-net-pci,netdev=link,mac=52:54:00:00:00:0{node}"] if link else ["-nic", "none"]
        words = f"{COMMAND_LINE} machine.owner={disk.owner} machine.node={node}{' machine.card' if link else ''} {words}"
        # It ends with this process, however that ends; without, a killed run would leave it.
        command = ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(PROCESSORS),
                   "-m", str(MEMORY), "-display", "none", "-monitor", "none", "-nodefaults", "-no-reboot", *card,
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
