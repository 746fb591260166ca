"""broken: images that must not import, served by the real registry: broken:digest (a layer's bytes are others than its digest says),
broken:truncated (a layer ends early), broken:garbage (the layer is no archive), broken:missing (the layer is not there)."""

import os
import shutil

import tiny
from layers import OCI, digest_of


def build(store):
    for tag in ("digest", "truncated", "garbage", "missing"):
        layer = store.layer()
        layer.file("etc/broken", os.urandom(300000).hex() + tag)
        base, tar = tiny.base(store), layer.close()
        layers = [store.layer_blob("broken", base, "gzip", OCI)]
        if tag == "garbage":
            with open(tar, "wb") as out:
                out.write(b"this is no archive\n" * 10000)
        layers.append(store.layer_blob("broken", tar, "tar" if tag == "garbage" else "gzip", OCI))
        store.image("broken", tag, layers, [digest_of(base), digest_of(tar)], tiny.CONFIG)
        os.unlink(base)
        os.unlink(tar)
        damage(store, tag, layers[1])


def damage(store, how, descriptor):
    digest = descriptor["digest"].split(":")[1]
    path = os.path.join(store.registry, "docker/registry/v2/blobs/sha256", digest[:2], digest, "data")
    if how == "missing":
        os.unlink(path)
    elif how in ("digest", "truncated"):
        copy = path + ".new"  # the OCI layout shares the file: damage a copy
        shutil.copyfile(path, copy)
        with open(copy, "r+b") as blob:
            if how == "truncated":
                blob.truncate(descriptor["size"] // 2)
            else:
                blob.seek(descriptor["size"] // 2)
                blob.write(b"\0\0\0\0damaged\0\0\0\0")
        os.replace(copy, path)
