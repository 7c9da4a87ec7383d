#!/usr/bin/env python3
"""Apptainer for Debian 12, which has none: that of Debian unstable, made to do with an older C library.

    apptainer.py DIRECTORY      unpacks it there; DIRECTORY/usr/bin/apptainer runs

Of the newer C library it uses two functions, new names for what is otherwise strtol and strtoul. So the names are changed in the
programs, and with them the version that they are looked up by.
"""

import os
import pathlib
import struct
import sys

from debian import unpack

RENAMED = {b"__isoc23_strtol": b"strtol", b"__isoc23_strtoul": b"strtoul"}
NEW, OLD = b"GLIBC_2.38", b"GLIBC_2.2.5"


def elf_hash(name):
    """The hash of symbol versions, of the System V ABI."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        value ^= (value & 0xF0000000) >> 24
        value &= 0x0FFFFFFF
    return value


def make_older(path):
    """Has a 64-bit program ask for the old names."""
    data = bytearray(path.read_bytes())
    start, size, count = struct.unpack_from("<Q", data, 0x28)[0], *struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + number * size) for number in range(count)]
    needs = next(section for section in sections if section[1] == 0x6FFFFFFE)
    names = sections[needs[6]][4]

    def name_at(offset):
        return bytes(data[names + offset : data.index(0, names + offset)])

    # Every version that is asked for of every library: where its entry is, and what it is called.
    entries = []
    library = needs[4]
    while True:
        _, inner, _, first, after = struct.unpack_from("<HHIII", data, library)
        entry = library + first
        for _ in range(inner):
            _, _, _, name, following = struct.unpack_from("<IHHII", data, entry)
            entries.append((entry, library, name))
            entry += following
        if not after:
            break
        library += after
    new = [(entry, library) for entry, library, name in entries if name_at(name) == NEW]
    old = {library: name for _, library, name in entries if name_at(name) == OLD}
    for entry, library in new:
        struct.pack_into("<I", data, entry, elf_hash(OLD))
        struct.pack_into("<I", data, entry + 8, old[library])
    symbols = next(section for section in sections if section[1] == 11)
    texts = sections[symbols[6]][4]
    for at in range(symbols[4], symbols[4] + symbols[5], 24):
        where = texts + struct.unpack_from("<I", data, at)[0]
        name = bytes(data[where : data.index(0, where)])
        if name in RENAMED:
            older = RENAMED[name]
            data[where : where + len(name)] = older.ljust(len(name), b"\0")
    path.write_bytes(data)


def main():
    place = pathlib.Path(sys.argv[1]).absolute()
    program = place / "usr/bin/apptainer"
    if program.exists():
        return
    unpack(place, "sid", "apptainer")
    for path in [program, place / "usr/lib/x86_64-linux-gnu/apptainer/bin/starter"]:
        make_older(path)
    # It looks for these beside itself, in a place that depends on where its starter is.
    for link in ["usr/etc", "usr/lib/etc"]:
        os.symlink("/".join([".."] * link.count("/")) + "/etc", place / link)
    (place / "var/apptainer/mnt/session").mkdir(parents=True)
    for link in ["usr/var", "usr/lib/var"]:
        os.symlink("/".join([".."] * link.count("/")) + "/var", place / link)


if __name__ == "__main__":
    main()
