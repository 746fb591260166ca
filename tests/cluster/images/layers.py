"""How is a layer or an image of the lab written? Tar entries, whiteouts, xattrs, OCI layouts and the registry's own storage.

Everything is written by hand instead of by an image builder, because the tests need layers that builders do not make: device nodes,
binary xattrs, whiteouts in odd orders, entries that appear twice.
"""

import concurrent.futures
import hashlib
import json
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile

EPOCH = 1700000000  # the modification time of everything that has none of its own
CREATED = "2023-11-14T22:13:20Z"  # EPOCH, as image configurations write it

OCI = {
    "manifest": "application/vnd.oci.image.manifest.v1+json",
    "index": "application/vnd.oci.image.index.v1+json",
    "config": "application/vnd.oci.image.config.v1+json",
    "tar": "application/vnd.oci.image.layer.v1.tar",
    "gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
    "zstd": "application/vnd.oci.image.layer.v1.tar+zstd",
}
DOCKER = {
    "manifest": "application/vnd.docker.distribution.manifest.v2+json",
    "config": "application/vnd.docker.container.image.v1+json",
    "gzip": "application/vnd.docker.image.rootfs.diff.tar.gzip",
}


def canonical(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


class Layer:
    """One layer's tar stream; entries are written in the order of the calls."""

    def __init__(self, directory):
        handle, self.path = tempfile.mkstemp(prefix="layer.", suffix=".tar", dir=directory)
        self.out = os.fdopen(handle, "wb")

    def _entry(self, name, kind, mode=0o644, size=0, link="", uid=0, gid=0, mtime=EPOCH, major=0, minor=0, xattrs=None):
        records = {}
        info = tarfile.TarInfo()
        raw_name, raw_link = os.fsencode(name), os.fsencode(link)
        # A name or target that does not fit the 100 bytes of the old header travels in a pax record, as do bytes beyond ASCII.
        info.name = "long" if len(raw_name) > 100 or not raw_name.isascii() else name
        if info.name != name:
            records["path"] = raw_name
        info.linkname = "long" if len(raw_link) > 100 or not raw_link.isascii() else link
        if info.linkname != link:
            records["linkpath"] = raw_link
        for key, value in sorted((xattrs or {}).items()):
            records["SCHILY.xattr." + key] = value
        info.type, info.mode, info.size, info.uid, info.gid = kind, mode, size, uid, gid
        info.mtime, info.devmajor, info.devminor = int(mtime), major, minor
        if records:
            self.out.write(self._pax(records))
        self.out.write(info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape"))

    @staticmethod
    def _pax(records):
        # Written here because tarfile cannot put arbitrary bytes into a record, and security.capability is binary.
        body = b""
        for key, value in records.items():
            rest = b" " + key.encode() + b"=" + value + b"\n"
            length = len(rest) + len(str(len(rest)))
            if len(str(length)) != len(str(len(rest))):
                length = len(rest) + len(str(length))
            body += str(length).encode() + rest
        info = tarfile.TarInfo("PaxHeaders/entry")
        info.type, info.size, info.mtime = tarfile.XHDTYPE, len(body), EPOCH
        return info.tobuf(tarfile.USTAR_FORMAT) + body + b"\0" * (-len(body) % 512)

    def directory(self, name, mode=0o755, **more):
        self._entry(name.rstrip("/") + "/", tarfile.DIRTYPE, mode, **more)

    def file(self, name, content=b"", mode=0o644, **more):
        if isinstance(content, str):
            content = content.encode()
        self._entry(name, tarfile.REGTYPE, mode, size=len(content), **more)
        self.out.write(content + b"\0" * (-len(content) % 512))

    def file_from(self, name, source, size, mode, **more):
        self._entry(name, tarfile.REGTYPE, mode, size=size, **more)
        with open(source, "rb") as stream:
            shutil.copyfileobj(stream, self.out, 1 << 20)
        self.out.write(b"\0" * (-size % 512))

    def symlink(self, name, target, **more):
        self._entry(name, tarfile.SYMTYPE, 0o777, link=target, **more)

    def hardlink(self, name, target, mode=0o644, **more):
        self._entry(name, tarfile.LNKTYPE, mode, link=target, **more)

    def fifo(self, name, mode=0o644, **more):
        self._entry(name, tarfile.FIFOTYPE, mode, **more)

    def char_device(self, name, major, minor, mode=0o666):
        self._entry(name, tarfile.CHRTYPE, mode, major=major, minor=minor)

    def block_device(self, name, major, minor, mode=0o660):
        self._entry(name, tarfile.BLKTYPE, mode, major=major, minor=minor)

    def whiteout(self, name):
        head, tail = os.path.split(name)
        self.file(os.path.join(head, ".wh." + tail), b"", 0o000)

    def opaque(self, name):
        self.file(os.path.join(name, ".wh..wh..opq"), b"", 0o000)

    def tree(self, root, skip=()):
        """Adds a directory of this machine. Overlay upper directories are understood: their whiteouts become tar whiteouts."""
        seen = {}
        for base, directories, files in os.walk(root):
            directories.sort()
            relative = os.path.relpath(base, root)
            for name in sorted(directories + files):
                path = os.path.normpath(os.path.join(relative, name))
                if path in skip:
                    if name in directories:
                        directories.remove(name)
                    continue
                self._from_disk(os.path.join(base, name), path, seen)

    def _from_disk(self, source, name, seen):
        st = os.lstat(source)
        xattrs = {key: os.getxattr(source, key, follow_symlinks=False) for key in os.listxattr(source, follow_symlinks=False)}
        opaque = xattrs.get("trusted.overlay.opaque") == b"y"
        kept = {key: value for key, value in xattrs.items() if key == "security.capability" or key.startswith("user.")}
        meta = {"uid": st.st_uid, "gid": st.st_gid, "mtime": st.st_mtime, "xattrs": kept}
        mode = stat.S_IMODE(st.st_mode)
        if stat.S_ISDIR(st.st_mode):
            self.directory(name, mode, **meta)
            if opaque:
                self.opaque(name)
        elif stat.S_ISCHR(st.st_mode) and st.st_rdev == 0:
            self.whiteout(name)
        elif st.st_nlink > 1 and (st.st_dev, st.st_ino) in seen:
            self.hardlink(name, seen[st.st_dev, st.st_ino], mode, **meta)
        else:
            if st.st_nlink > 1:
                seen[st.st_dev, st.st_ino] = name
            if stat.S_ISLNK(st.st_mode):
                self.symlink(name, os.readlink(source), **meta)
            elif stat.S_ISREG(st.st_mode):
                self.file_from(name, source, st.st_size, mode, **meta)
            elif stat.S_ISFIFO(st.st_mode):
                self.fifo(name, mode, **meta)
            elif stat.S_ISCHR(st.st_mode):
                self.char_device(name, os.major(st.st_rdev), os.minor(st.st_rdev), mode)
            elif stat.S_ISBLK(st.st_mode):
                self.block_device(name, os.major(st.st_rdev), os.minor(st.st_rdev), mode)

    def close(self):
        self.out.write(b"\0" * 1024)
        self.out.close()
        return self.path


COMPRESSORS = {"gzip": ["gzip", "-n", "-6", "-c"], "zstd": ["zstd", "-q", "-3", "-c"], "tar": ["cat"]}


def digest_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return "sha256:" + digest.hexdigest()


class Store:
    """Where blobs and manifests go: one OCI layout per image (for umoci and skopeo) and the storage folder of the lab's registry."""

    def __init__(self, images, registry, scratch):
        self.images, self.registry, self.scratch = images, registry, scratch
        os.makedirs(scratch, exist_ok=True)

    def layer(self):
        return Layer(self.scratch)

    # The registry's folder, as docker-registry's "filesystem" storage driver lays it out. Written directly: what a push would do.
    def _registry_file(self, path, content):
        path = os.path.join(self.registry, "docker/registry/v2", path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(content)

    def _registry_blob(self, repository, digest, source):
        hexdigest = digest.split(":")[1]
        path = os.path.join(self.registry, "docker/registry/v2/blobs/sha256", hexdigest[:2], hexdigest, "data")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not os.path.exists(path):
            os.link(source, path)
        self._registry_file(f"repositories/{repository}/_layers/sha256/{hexdigest}/link", digest.encode())

    def tag(self, repository, tag, digest):
        """Makes REPOSITORY:TAG of the registry mean the manifest with this digest."""
        base = f"repositories/{repository}/_manifests"
        hexdigest = digest.split(":")[1]
        self._registry_file(f"{base}/tags/{tag}/current/link", digest.encode())
        self._registry_file(f"{base}/tags/{tag}/index/sha256/{hexdigest}/link", digest.encode())

    def manifest(self, repository, content):
        """Stores a manifest's bytes; returns its descriptor's digest and size."""
        digest, path = self.blob(repository, content)
        hexdigest = digest.split(":")[1]
        self._registry_file(f"repositories/{repository}/_manifests/revisions/sha256/{hexdigest}/link", digest.encode())
        self._registry_blob(repository, digest, path)
        return digest, len(content)

    def blob(self, repository, content):
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        path = self._layout_blob(repository, digest)
        with open(path, "wb") as out:
            out.write(content)
        self._registry_blob(repository, digest, path)
        return digest, path

    def _layout_blob(self, repository, digest):
        layout = os.path.join(self.images, repository)
        os.makedirs(os.path.join(layout, "blobs/sha256"), exist_ok=True)
        with open(os.path.join(layout, "oci-layout"), "w", encoding="ascii") as out:
            out.write('{"imageLayoutVersion":"1.0.0"}')
        return os.path.join(layout, "blobs/sha256", digest.split(":")[1])

    def layer_blob(self, repository, tar, compression, types):
        """Compresses a layer's tar into the store; returns its descriptor."""
        handle, packed = tempfile.mkstemp(prefix="blob.", dir=self.scratch)
        with os.fdopen(handle, "wb") as out:
            subprocess.run(COMPRESSORS[compression] + [tar], stdout=out, check=True)
        digest = digest_of(packed)
        path = self._layout_blob(repository, digest)
        os.chmod(packed, 0o644)
        os.replace(packed, path)
        self._registry_blob(repository, digest, path)
        return {"mediaType": types[compression], "digest": digest, "size": os.path.getsize(path)}

    def borrow(self, repository, other, descriptor):
        """Lets REPOSITORY share a layer of OTHER without packing it again."""
        path = self._layout_blob(repository, descriptor["digest"])
        if not os.path.exists(path):
            os.link(self._layout_blob(other, descriptor["digest"]), path)
        self._registry_blob(repository, descriptor["digest"], path)
        return descriptor

    def image(self, repository, tag, descriptors, diff_ids, config, types=None, platform=("amd64", None)):
        """Writes configuration and manifest. Returns the manifest's descriptor; TAG may be None for an image only an index names."""
        types = types or OCI
        document = {"created": CREATED, "architecture": platform[0], "os": "linux", "config": config,
                    "rootfs": {"type": "layers", "diff_ids": diff_ids},
                    "history": [{"created": CREATED, "created_by": "tests/cluster/images"} for _ in diff_ids]}
        if platform[1]:
            document["variant"] = platform[1]
        content = canonical(document)
        digest, _ = self.blob(repository, content)
        manifest = {"schemaVersion": 2, "mediaType": types["manifest"],
                    "config": {"mediaType": types["config"], "digest": digest, "size": len(content)}, "layers": descriptors}
        digest, size = self.manifest(repository, canonical(manifest))
        if tag:
            self.tag(repository, tag, digest)
            if types is OCI:
                self.layout_tag(repository, tag, {"mediaType": types["manifest"], "digest": digest, "size": size})
        return {"mediaType": types["manifest"], "digest": digest, "size": size}

    def layout_tag(self, repository, tag, descriptor):
        """Names a manifest in the OCI layout, for `umoci unpack --image LAYOUT:TAG` and `skopeo copy oci:LAYOUT:TAG`."""
        path = os.path.join(self.images, repository, "index.json")
        entries = []
        if os.path.exists(path):
            with open(path, encoding="utf-8") as stream:
                entries = json.load(stream)["manifests"]
        entries = [e for e in entries if e["annotations"]["org.opencontainers.image.ref.name"] != tag]
        entries.append(dict(descriptor, annotations={"org.opencontainers.image.ref.name": tag}))
        with open(path, "wb") as out:
            out.write(canonical({"schemaVersion": 2, "mediaType": OCI["index"], "manifests": entries}))

    def layers_of(self, repository, tag):
        """The layer descriptors and diff ids of an image made before."""
        def content(descriptor):
            with open(self._layout_blob(repository, descriptor["digest"]), "rb") as stream:
                return json.load(stream)

        with open(os.path.join(self.images, repository, "index.json"), encoding="utf-8") as stream:
            entries = json.load(stream)["manifests"]
        manifest = content(next(e for e in entries if e["annotations"]["org.opencontainers.image.ref.name"] == tag))
        return manifest["layers"], content(manifest["config"])["rootfs"]["diff_ids"]

    def variants(self, repository, tars, config, tags, base=None):
        """Writes the same layers once per entry of TAGS, {tag: (compression, types)}, and removes the tar files.

        BASE, {compression: (repository, tag)}, names an image whose layers come below. Returns {tag: (descriptor, layers, diff ids)}.
        """
        diff_ids = [digest_of(tar) for tar in tars]
        made, packed = {}, {}
        wanted = {compression for compression, _ in tags.values()}
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for compression in wanted:
                packed[compression] = [pool.submit(self.layer_blob, repository, tar, compression, OCI) for tar in tars]
        for tag, (compression, types) in tags.items():
            below, below_ids = [], []
            if base:
                below, below_ids = self.layers_of(*base[compression])
                for layer in below:
                    self.borrow(repository, base[compression][0], layer)
            layers = [dict(layer, mediaType=types[compression]) for layer in below + [job.result() for job in packed[compression]]]
            made[tag] = (self.image(repository, tag, layers, below_ids + diff_ids, config, types), layers, below_ids + diff_ids)
        for tar in tars:
            os.unlink(tar)
        return made
