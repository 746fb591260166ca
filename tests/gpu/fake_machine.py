"""What do /proc, /sys and /dev show of a machine's GPUs? Written into a directory (GPU.md 2), with what the mock NVML says."""
import hashlib
import os
import stat
from pathlib import Path

# DGX A100's: the order by PCI address is not the order of minors.
BUSES = [0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD]
MINORS = [2, 3, 0, 1, 6, 7, 4, 5]
MODEL = "NVIDIA H100 80GB HBM3"
MIG_INSTANCES = [(1, 0), (5, 0), (13, 0), (13, 1)]  # GPU instance, compute instance; the last two share one
MAJORS = {"nvidia": 195, "drm": 226, "infiniband_verbs": 231, "nvidia-caps": 505, "nvidia-uvm": 506, "nvidia-caps-imex-channels": 507,
          "nvidia-nvswitch": 508, "gdrdrv": 509, "nvidia-fs": 510}


class Gpu:
    def __init__(self, index, count, mig):
        order = [1, 0] if count == 2 else [minor for minor in MINORS if minor < count]
        domain, place = divmod(index, len(BUSES))
        self.index, self.minor, self.mig = index, order[place] + domain * 8 if count <= 8 else index, mig
        self.bus = f"{domain:04x}:{BUSES[place]:02x}:00.0"
        self.uuid = "GPU-" + name_of(f"gpu {index}")


def name_of(seed):
    """A UUID that is the same every time."""
    digits = hashlib.md5(seed.encode()).hexdigest()
    return "-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]])


def cap_minor(gpu_minor, instance, compute=None):
    """NVIDIA's numbers: 3 + 135 for each GPU, 9 for each of its 15 instances: the instance itself and 8 compute instances."""
    return 3 + 135 * gpu_minor + 9 * instance + (0 if compute is None else 1 + compute)


class Machine:
    def __init__(self, root, options):
        self.root, self.options = Path(root), options
        self.gpus = [Gpu(i, options.gpus, i in options.mig) for i in range(options.gpus)]

    def write(self, name, text, mode=0o444):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # a GPU instance comes once for each of its compute instances
        path.write_text(text)
        path.chmod(mode)

    def make(self):
        self.driver_proc()
        self.mig_proc()
        self.pci()
        self.nodes()
        self.write("etc/mock-nvml.conf", self.nvml(), 0o644)

    def driver_proc(self):
        version, kind = self.options.version, "Open Kernel Module for x86_64" if self.options.open else "x86_64 Kernel Module"
        self.write("proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX {kind}  {version}  Sat Nov  7 01:02:03 UTC 2026\n"
                                                 "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n")
        self.write("proc/driver/nvidia/params", "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\n"
                                                "DeviceFileGID: 0\nDeviceFileMode: 438\nRegistryDwords: \"\"\n")
        self.write("proc/driver/nvidia/registry", "Binary: \"\"\n")
        for gpu in self.gpus:
            self.write(f"proc/driver/nvidia/gpus/{gpu.bus}/information",
                       f"Model: \t\t {MODEL}\nIRQ:   \t\t {250 + gpu.index}\nGPU UUID: \t {gpu.uuid}\nVideo BIOS: \t 96.00.74.00.01\n"
                       f"Bus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t {gpu.bus}\n"
                       f"Device Minor: \t {gpu.minor}\nGPU Firmware: \t {version}\nGPU Excluded:\t No\n")
        self.write("sys/module/nvidia/version", version + "\n")
        devices = "".join(f"{major:3d} {name}\n" for name, major in sorted(MAJORS.items(), key=lambda item: item[1]))
        self.write("proc/devices", f"Character devices:\n  1 mem\n  5 /dev/tty\n{devices}\nBlock devices:\n  7 loop\n195 none-of-ours\n")
        self.write("proc/sys/kernel/random/boot_id", name_of("boot") + "\n")

    def mig_proc(self):
        base, number = "proc/driver/nvidia/capabilities", "DeviceFileMinor: {}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
        self.write(f"{base}/mig/config", number.format(1))
        self.write(f"{base}/mig/monitor", number.format(2))
        for gpu in self.gpus:
            (self.root / base / f"gpu{gpu.minor}" / "mig").mkdir(parents=True)
            for instance, compute in MIG_INSTANCES if gpu.mig else []:
                place = f"{base}/gpu{gpu.minor}/mig/gi{instance}"
                self.write(f"{place}/access", number.format(cap_minor(gpu.minor, instance)))
                self.write(f"{place}/ci{compute}/access", number.format(cap_minor(gpu.minor, instance, compute)))
        lines = ["config 1", "monitor 2"]
        for gpu in range(32):  # all that could ever be, as the driver lists them
            for instance in range(15):
                lines.append(f"gpu{gpu}/gi{instance}/access {cap_minor(gpu, instance)}")
                lines += [f"gpu{gpu}/gi{instance}/ci{compute}/access {cap_minor(gpu, instance, compute)}" for compute in range(8)]
        self.write("proc/driver/nvidia-caps/mig-minors", "\n".join(lines) + "\n")

    def pci(self):
        links = self.root / "sys/bus/pci/devices"
        links.mkdir(parents=True)
        for gpu in self.gpus:
            place = f"devices/pci{gpu.bus[:7]}/{gpu.bus}"
            for name in (f"card{gpu.index + 1}", f"renderD{128 + gpu.index}"):  # card0 is the one that shows the console
                (self.root / "sys" / place / "drm" / name).mkdir(parents=True)
            self.write(f"sys/{place}/vendor", "0x10de\n")
            (links / gpu.bus).symlink_to(f"../../../{place}")

    def nodes(self):
        caps, extra = MAJORS["nvidia-caps"], self.options.extra_nodes
        found = {"nvidiactl": (195, 255), "nvidia-modeset": (195, 254), "nvidia-uvm": (MAJORS["nvidia-uvm"], 0),
                 "nvidia-uvm-tools": (MAJORS["nvidia-uvm"], 1), "nvidia-caps/nvidia-cap1": (caps, 1), "nvidia-caps/nvidia-cap2": (caps, 2),
                 "dri/card0": (226, 0), "null": (1, 3)}
        for gpu in self.gpus:
            found |= {f"nvidia{gpu.minor}": (195, gpu.minor), f"dri/card{gpu.index + 1}": (226, gpu.index + 1),
                      f"dri/renderD{128 + gpu.index}": (226, 128 + gpu.index)}
            for instance, compute in MIG_INSTANCES if gpu.mig else []:
                for minor in (cap_minor(gpu.minor, instance), cap_minor(gpu.minor, instance, compute)):
                    found[f"nvidia-caps/nvidia-cap{minor}"] = (caps, minor)
        for channel in range(self.options.imex):
            found[f"nvidia-caps-imex-channels/channel{channel}"] = (MAJORS["nvidia-caps-imex-channels"], channel)
        if extra:
            found |= {"gdrdrv": (MAJORS["gdrdrv"], 0), "nvidia-nvswitchctl": (MAJORS["nvidia-nvswitch"], 255),
                      "nvidia-nvswitch0": (MAJORS["nvidia-nvswitch"], 0), "infiniband/rdma_cm": (10, 58), "infiniband/uverbs0": (231, 192)}
            found |= {f"nvidia-fs{i}": (MAJORS["nvidia-fs"], i) for i in range(2)}
        for name, number in found.items():
            self.node(name, number)
        for gpu in self.gpus:
            for kind, target in (("card", f"card{gpu.index + 1}"), ("render", f"renderD{128 + gpu.index}")):
                path = self.root / f"dev/dri/by-path/pci-{gpu.bus}-{kind}"
                path.parent.mkdir(exist_ok=True)
                path.symlink_to(f"../{target}")

    def node(self, name, number):
        path, kind = self.root / "dev" / name, self.options.devices
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "files":
            path.touch(0o666)
        else:
            os.mknod(path, stat.S_IFCHR, os.makedev(*(number if kind == "real" else (1, 3))))
        path.chmod(0o666)

    def nvml(self):
        """See mock_nvml.c."""
        lines = [f"driver {self.options.version}", "cuda 13000"]
        for gpu in self.gpus:
            lines.append(f"gpu {gpu.index} bus={gpu.bus} minor={gpu.minor} uuid={gpu.uuid} brand=14 arch=9.0 mig={int(gpu.mig)} "
                         f"pending={int(gpu.mig)} name={MODEL}")
            for instance, compute in MIG_INSTANCES if gpu.mig else []:
                uuid = "MIG-" + name_of(f"mig {gpu.index} {instance} {compute}")
                lines.append(f"mig {gpu.index} gi={instance} ci={compute} uuid={uuid} name={MODEL} MIG 1g.10gb")
        return "\n".join(lines) + "\n"
