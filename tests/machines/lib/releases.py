"""Which Debians can a machine be? A row for each."""
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Release:
    """A Debian, and what is to be seen on it."""

    name: str  # debootstrap's
    title: str
    owner: dict[str, str]  # how the files of an image become a user's, by the file system of the store (image_owner in situla.toml(5))
    renamed: dict[str, str] = field(default_factory=dict)  # packages with another name than on the tests' own host: debootstrap knows no Provides


RELEASES = {release.name: release for release in (
    # Linux 6.1, Slurm 22.05
    Release("bookworm", "Debian 12", {"ext4": "dm", "xfs": "reflink", "nfs": "dm"}),
    # Linux 6.12, Slurm 24.11
    Release("trixie", "Debian 13", {"ext4": "idmap", "xfs": "idmap", "nfs": "idmap"}, {"libcurl4": "libcurl4t64", "libssl3": "libssl3t64"}),
)}
DEFAULT = "bookworm"  # what the tests' own host is (packaging/install-deps)
