"""blocks: tiny, and 12 MiB that no compressor makes smaller, in three layers. Tags 1 to 6, which share tiny's layers only: what imports and evictions move."""

import hashlib
import random

import tiny
from layers import OCI

TAGS = range(1, 7)


def layer(store, tag, number):
    made, numbers = store.layer(), random.Random(f"blocks {tag} {number}")
    made.directory("data")
    made.directory(f"data/{number}")
    sums = []
    for name, size in [*((f"big{n}", 1 << 20) for n in range(3)), *((f"small{n:03}", 8192) for n in range(128))]:
        content = numbers.randbytes(size)
        made.file(f"data/{number}/{name}", content)
        sums.append(f"{hashlib.sha256(content).hexdigest()}  {name}\n")
    # For `sha256sum -c` in a container: whether what it sees is what was made.
    made.file(f"data/{number}/sums", "".join(sums))
    return made.close()


def build(store):
    for tag in TAGS:
        tars = [layer(store, tag, number) for number in range(3)]
        store.variants("blocks", tars, tiny.CONFIG, {str(tag): ("gzip", OCI)}, base={"gzip": ("tiny", "latest")})
