"""multiarch: an OCI index over tiny for amd64 and arm64 (/etc/arch says which), and an attestation as image builders add it."""

import os

import tiny
from layers import OCI, canonical, digest_of


def build(store):
    for tag, compression in (("latest", "gzip"), ("zstd", "zstd")):
        entries = []
        for arch, variant in (("amd64", None), ("arm64", "v8")):
            tar = tiny.base(store, arch)
            layer = store.layer_blob("multiarch", tar, compression, OCI)
            entry = store.image("multiarch", None, [layer], [digest_of(tar)], tiny.CONFIG, platform=(arch, variant))
            os.unlink(tar)
            entry["platform"] = {"architecture": arch, "os": "linux"}
            if variant:
                entry["platform"]["variant"] = variant
            entries.append(entry)
        # The entry that must be skipped: it is a manifest, but not of an image.
        statement, _ = store.blob("multiarch", b'{"_type":"https://in-toto.io/Statement/v0.1"}')
        layer = {"mediaType": "application/vnd.in-toto+json", "digest": statement, "size": 45}
        note = store.image("multiarch", None, [layer], [statement], {}, platform=("unknown", None))
        note["platform"] = {"architecture": "unknown", "os": "unknown"}
        note["annotations"] = {"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": entries[0]["digest"]}
        index = canonical({"schemaVersion": 2, "mediaType": OCI["index"], "manifests": entries + [note]})
        digest, size = store.manifest("multiarch", index)
        store.tag("multiarch", tag, digest)
        store.layout_tag("multiarch", tag, {"mediaType": OCI["index"], "digest": digest, "size": size})
