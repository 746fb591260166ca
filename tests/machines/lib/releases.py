"""Which systems can a machine be? A row for each."""
from dataclasses import dataclass

ID_MAPPED = dict.fromkeys(("ext4", "xfs", "nfs"), "idmap")


@dataclass(frozen=True)
class Release:
    """A distribution, and what is to be seen on it."""

    name: str
    title: str
    distribution: str  # debootstrap's name
    # How the files of an image become a user's, by the file system of the store: image_owner in situla.toml(5); "copy": images are extracted.
    owner: dict[str, str]
    kernel: tuple[str, ...] = ("linux-image-cloud-amd64",)
    kernel_of: str = ""  # the Debian whose kernel apt installs afterwards; empty: its own, with everything else
    pmix: str = "libpmix2t64"


RELEASES = {release.name: release for release in (
    # Slurm 22.05
    Release("bookworm", "Debian 12, Linux 6.1", "bookworm", {"ext4": "dm", "xfs": "reflink", "nfs": "dm"}, pmix="libpmix2"),
    # The oldest kernel that is to be had: no overlay in user namespaces, no mount_setattr(2), no Landlock.
    Release("bullseye-kernel", "Debian 12 with Debian 11's Linux 5.10", "bookworm", dict.fromkeys(("ext4", "xfs", "nfs"), "copy"), kernel_of="bullseye",
            pmix="libpmix2"),
    # Slurm 24.11
    Release("trixie", "Debian 13, Linux 6.12", "trixie", ID_MAPPED),
    # Slurm 23.11; AppArmor lets only programs with a profile make user namespaces.
    Release("noble", "Ubuntu 24.04, Linux 6.8", "noble", ID_MAPPED, ("linux-image-virtual", "initramfs-tools")),
    # Slurm 26.05. debootstrap would take dracut for the kernel, too, which initramfs-tools conflicts with.
    Release("sid", "Debian sid", "sid", ID_MAPPED, ("linux-image-cloud-amd64", "initramfs-tools"), kernel_of="sid"),
)}
DEFAULT = "bookworm"  # what the tests' own host is (packaging/install-deps)
