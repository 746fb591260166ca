"""What can a lab be told? The options of `run`, and how an instance remembers them."""
import json
from dataclasses import asdict, dataclass, field


@dataclass
class Options:
    """Of one instance; its file `config`."""

    nodes: int = 1
    plugin: bool = True
    plugin_args: list[str] = field(default_factory=list)
    enroot_conf: str = ""
    enroot_hooks: str = ""
    situla_conf: str = ""
    slurm_conf: list[str] = field(default_factory=list)
    slurm_files: list[str] = field(default_factory=list)
    proctrack: str = "linuxproc"
    gpus: int = 0
    nvidia: list[str] = field(default_factory=list)
    drm: list[str] = field(default_factory=list)
    disk: bool = False

    def save(self, directory: str) -> None:
        with open(f"{directory}/config", "w", encoding="utf-8") as out:
            json.dump(asdict(self), out, indent=2)

    @staticmethod
    def load(directory: str) -> "Options":
        with open(f"{directory}/config", encoding="utf-8") as stream:
            return Options(**json.load(stream))


def cgroup_of(directory: str) -> str:
    """Name of the cgroups of an instance, in every hierarchy."""
    return "situla-lab-" + directory.rsplit("/", 1)[1]
