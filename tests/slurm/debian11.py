#!/usr/bin/env python3
"""The root of a container with the oldest C library that Debian's servers still have, Debian 11's (glibc 2.31), and its clinfo.

    debian11.py DIRECTORY      unpacks it there
"""

import pathlib
import sys

from debian import unpack

# Where containers have something mounted; the last one says that all is there.
DIRECTORIES = ["proc", "sys", "dev", "tmp", "etc", "home", "bin", "mnt"]


def main():
    place = pathlib.Path(sys.argv[1]).absolute()
    if (place / DIRECTORIES[-1]).exists():
        return
    unpack(place, "bullseye", "libc6", "ocl-icd-libopencl1", "clinfo")
    for directory in DIRECTORIES:
        (place / directory).mkdir(exist_ok=True)


if __name__ == "__main__":
    main()
