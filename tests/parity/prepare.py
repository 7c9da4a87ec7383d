"""Installs what the suites need: Debian packages, private Python environments, the vendors' drivers.

Packages are named by name and version only; where they come from is the machine's configuration.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from model import CACHE

PYOPENCL = "2026.1.4"
# intel-opencl-rt does not name intel-cmplr-lib-rt, but its library needs libsvml.so and libimf.so from there.
INTEL = ["intel-opencl-rt==2026.2.0", "intel-cmplr-lib-rt==2026.2.0"]
PYTHON_TESTS = [f"pyopencl=={PYOPENCL}", "numpy==2.4.6", "mako==1.4.3", "scipy==1.17.1", "pytest==9.2.0"]


def debian(program: str, package: str) -> None:
    """Makes sure that `program` is on the path, from Debian's `package`."""
    if shutil.which(program):
        return
    if os.geteuid() != 0:
        raise SystemExit(f"error: {program} is missing. Try: apt-get install {package}")
    print(f"installing {package}", flush=True)
    command = ["apt-get", "install", "--yes", "--no-install-recommends", package]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def debian_version(package: str) -> str:
    query = ["dpkg-query", "--show", "--showformat=${Version}", package]
    return subprocess.run(query, capture_output=True, text=True).stdout.strip() or "unknown"


def virtual_environment(name: str, packages: list[str]) -> Path:
    """A Python environment under tests/.cache that holds `packages`; made again when the list changes."""
    place = CACHE / name
    stamp = place / "packages.txt"
    wanted = "\n".join(packages) + "\n"
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {', '.join(packages)} into {place}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        subprocess.run([place / "bin" / "pip", "install", "--quiet", *packages], check=True)
        stamp.write_text(wanted)
    return place


def pyopencl() -> tuple[Path, Path]:
    """The interpreter that has pyopencl, and the directory with pyopencl's own tests."""
    python = virtual_environment("pyopencl-env", PYTHON_TESTS) / "bin" / "python"
    place = CACHE / f"pyopencl-{PYOPENCL}"
    tests = place / "test"
    if not tests.is_dir():
        # The tests are in the source package only. They are kept away from the package's sources, which
        # would otherwise be imported instead of the installed wheel.
        downloads = CACHE / "downloads"
        command = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "pyopencl"]
        subprocess.run([*command, "--dest", downloads, f"pyopencl=={PYOPENCL}"], check=True)
        archive = downloads / f"pyopencl-{PYOPENCL}.tar.gz"
        subprocess.run(["tar", "-xzf", archive, "-C", CACHE, f"pyopencl-{PYOPENCL}/test"], check=True)
    return python, tests


@dataclass
class Vendor:
    """A driver to compare with: the directory with its .icd file alone, and its library."""

    name: str
    directory: Path
    library: Path
    fingerprint: str
    # In words, asked of the driver by `identify`.
    driver: str = ""


def vendor(name: str) -> Vendor:
    """Finds the driver called `name`: pocl, intel, or the path of an .icd file."""
    if name == "pocl":
        source = Path("/etc/OpenCL/vendors/pocl.icd")
        if not source.exists():
            debian("poclcc", "pocl-opencl-icd")
        entry = source.read_text()
    elif name == "intel":
        # The package's own .icd file names a directory of the machine that built it.
        entry = str(virtual_environment("intel-env", INTEL) / "lib" / "libintelocl.so")
    else:
        source = Path(name)
        if not source.is_file():
            raise SystemExit(f"error: no file {name}. A vendor is pocl, intel or the path of an .icd file")
        name, entry = source.stem, source.read_text()
    debian("clinfo", "clinfo")
    library = find_library(entry.strip())
    directory = CACHE / "vendors" / name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.icd").write_text(f"{entry.strip()}\n")
    with open(library, "rb") as file:
        fingerprint = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    return Vendor(name, directory, library, fingerprint)


def find_library(entry: str) -> Path:
    """The file that the dynamic linker would open for an .icd file's line."""
    if "/" in entry:
        return Path(entry).resolve(strict=True)
    listing = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    # The listing holds sonames; an .icd file may name the file behind one, so we look in the same directories.
    directories = {Path(line.partition(" => ")[2]).parent for line in listing.splitlines() if " => " in line}
    for directory in sorted(directories):
        if (directory / entry).exists():
            return (directory / entry).resolve()
    raise SystemExit(f"error: the library {entry} is not installed")


def check_loader(command: list) -> None:
    """Makes sure that a loader obeys OCL_ICD_VENDORS. One that does not would show the system's drivers on both
    sides, and the comparison would be of the driver with itself."""
    empty = CACHE / "vendors" / "none"
    empty.mkdir(parents=True, exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(empty), "OCL_ICD_VENDORS": str(empty)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    if done.stdout.strip():
        raise SystemExit(f"error: {command[0]} finds drivers outside OCL_ICD_VENDORS: {done.stdout.strip()}")
