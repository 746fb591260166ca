"""Which bytes are a shared library that the dynamic linker loads, or a program that prints one line? No compiler needed."""
import platform
import struct

ABI_NOTE = (2, 3, 99)  # NVIDIA marks its libnvidia-tls for kernels with TLS by this one

# Code of "return 0", "*argument = number; return 0" and "write(1, text, size); exit(0)". The last is told the address and
# the size of its text.
def x86_64_print(address, size):
    return (b"\xb8\x01\0\0\0\xbf\x01\0\0\0\xbe" + struct.pack("<I", address) + b"\xba" + struct.pack("<I", size) + b"\x0f\x05"
            b"\xb8\x3c\0\0\0\x31\xff\x0f\x05")


def aarch64_move(register, value):
    low, high = value & 0xFFFF, value >> 16
    return struct.pack("<II", 0x52800000 | low << 5 | register, 0x72A00000 | high << 5 | register)


def aarch64_print(address, size):
    call = struct.pack("<I", 0xD4000001)
    return (aarch64_move(0, 1) + aarch64_move(1, address) + aarch64_move(2, size) + aarch64_move(8, 64) + call
            + aarch64_move(0, 0) + aarch64_move(8, 93) + call)


class Machine:
    def __init__(self, number, wide, triplet, return_zero=b"", store=None, print_text=None):
        self.number, self.wide, self.triplet = number, wide, triplet
        self.return_zero, self.store, self.print_text = return_zero, store, print_text


X86_64 = Machine(62, True, "x86_64-linux-gnu", b"\x31\xc0\xc3", lambda n: b"\xc7\x07" + struct.pack("<I", n) + b"\x31\xc0\xc3",
                 x86_64_print)
AARCH64 = Machine(183, True, "aarch64-linux-gnu", struct.pack("<II", 0x52800000, 0xD65F03C0),
                  lambda n: aarch64_move(1, n) + struct.pack("<III", 0xB9000001, 0x52800000, 0xD65F03C0), aarch64_print)
I386 = Machine(3, False, "i386-linux-gnu")
HERE = {"x86_64": X86_64, "aarch64": AARCH64}.get(platform.machine())

PT_LOAD, PT_DYNAMIC, PT_NOTE, PT_GNU_STACK = 1, 2, 4, 0x6474E551
DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_SONAME = 1, 4, 5, 6, 10, 11, 14
PAGE = 0x10000  # the largest there is, so that every kernel maps it


def header(machine, kind, entry, segments):
    """ELF header and program headers; a segment is (type, flags, offset, size, alignment)."""
    size, each = (64, 56) if machine.wide else (52, 32)
    ident = b"\x7fELF" + bytes([2 if machine.wide else 1, 1, 1]) + bytes(9)
    out = ident + struct.pack("<HHI" + ("QQQ" if machine.wide else "III") + "IHHHHHH", kind, machine.number, 1, entry, size, 0, 0, size,
                              each, len(segments), 0, 0, 0)
    for kind_, flags, base, offset, length, alignment in segments:
        if machine.wide:
            out += struct.pack("<IIQQQQQQ", kind_, flags, offset, base + offset, base + offset, length, length, alignment)
        else:
            out += struct.pack("<IIIIIIII", kind_, offset, base + offset, base + offset, length, length, flags, alignment)
    return out


class Part:
    """Bytes at known offsets, one after the other."""

    def __init__(self, start):
        self.start, self.data = start, b""

    def add(self, data):
        self.data += bytes(-len(self.data) % 16)
        offset = self.start + len(self.data)
        self.data += data
        return offset

    @property
    def end(self):
        return self.start + len(self.data)


def library(soname, functions=None, needed=(), note=None, machine=None):
    """functions: name -> code. note: version of a GNU ABI note."""
    machine, functions = machine or HERE, functions or {}
    count = 4 + (note is not None)
    part = Part(len(header(machine, 3, 0, [(0, 0, 0, 0, 0, 0)] * count)))
    strings, place = b"\0", {}
    for text in [soname, *needed, *functions]:
        place[text] = len(strings)
        strings += text.encode() + b"\0"
    symbols = bytes(24 if machine.wide else 16)
    for name, code in functions.items():
        symbols += struct.pack("<IBBHQQ", place[name], 0x12, 0, 1, part.add(code), len(code))
    symbol_table, string_table = part.add(symbols), part.add(strings)
    chain = [0, *range(2, len(functions) + 1), 0] if functions else [0]
    hash_table = part.add(struct.pack(f"<{3 + len(chain)}I", 1, len(chain), 1 if functions else 0, *chain))
    notes = part.add(struct.pack("<III4sIIII", 4, 16, 1, b"GNU", 0, *note)) if note else 0
    read_only = part.end
    entries = [(DT_SONAME, place[soname]), *[(DT_NEEDED, place[name]) for name in needed], (DT_HASH, hash_table),
               (DT_STRTAB, string_table), (DT_SYMTAB, symbol_table), (DT_STRSZ, len(strings)), (DT_SYMENT, 24 if machine.wide else 16), (0, 0)]
    data = b"".join(struct.pack("<QQ" if machine.wide else "<II", *entry) for entry in entries)
    dynamic = part.add(data)
    # The dynamic linker writes into the dynamic section: a segment of its own, one page further.
    segments = [(PT_LOAD, 5, 0, 0, read_only, PAGE), (PT_LOAD, 6, PAGE, dynamic, len(data), PAGE), (PT_DYNAMIC, 6, PAGE, dynamic, len(data), 8),
                (PT_GNU_STACK, 6, 0, 0, 0, 16)]
    if note:
        segments.append((PT_NOTE, 4, 0, notes, 32, 4))
    return header(machine, 3, 0, segments) + part.data


def program(text, machine=None):
    """A static program that prints the text and ends with success."""
    machine, base = machine or HERE, 0x400000
    part = Part(len(header(machine, 2, 0, [(0, 0, 0, 0, 0, 0)] * 2)))
    words = part.add(text.encode())
    code = part.add(machine.print_text(base + words, len(text.encode())))
    return header(machine, 2, base + code, [(PT_LOAD, 5, base, 0, part.end, PAGE), (PT_GNU_STACK, 6, 0, 0, 0, 16)]) + part.data
