"""The two ways to an OpenCL driver: loaded directly, or through telecl and a service of our own."""

from __future__ import annotations

import os
import queue
import re
import shutil
import subprocess
import threading
from pathlib import Path

from prepare import Vendor

# What a developer's shell may hold and what would change a run.
FOREIGN = re.compile(r"^(OCL_ICD_|OPENCL_|TELECL_|POCL_|PYOPENCL_|CL_CONFIG_|PIGLIT_|XDG_|LD_LIBRARY_PATH$|LD_PRELOAD$)")


def private_environment(home: Path) -> dict[str, str]:
    """The caller's environment without OpenCL settings, and with caches of its own: nothing that one
    side compiled may help or hurt the other."""
    home.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
    environment |= {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_DATA_HOME": str(home / "data"),
        "POCL_CACHE_DIR": str(home / "pocl"),
    }
    return environment


class Direct:
    """Programs load the vendor's driver."""

    name = "direct"

    def __init__(self, vendor: Vendor, place: Path) -> None:
        self.place = fresh(place)
        self.environment = private_environment(self.place / "home")
        self.environment["OCL_ICD_VENDORS"] = str(vendor.directory)

    def __enter__(self) -> Direct:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def trouble(self) -> str:
        return ""


class Telecl:
    """Programs load libtelecl.so; a service started for this side loads the vendor's driver."""

    name = "telecl"
    READY = 20.0  # seconds until the service must say where it listens

    def __init__(self, vendor: Vendor, place: Path, telecl: Path, driver: Path) -> None:
        self.place = fresh(place)
        self.telecl = telecl
        self.service_environment = private_environment(self.place / "service-home")
        self.service_environment["OCL_ICD_VENDORS"] = str(vendor.directory)
        # Also where root runs this, whose programs are otherwise kept for the whole system.
        self.service_environment["TELECL_CACHE_DIR"] = str(self.place / "service-home" / "cache" / "telecl")
        vendors = self.place / "vendors"
        vendors.mkdir()
        (vendors / "telecl.icd").write_text(f"{driver}\n")
        self.environment = private_environment(self.place / "home")
        self.environment["OCL_ICD_VENDORS"] = str(vendors)
        self.service: subprocess.Popen[str] | None = None

    def __enter__(self) -> Telecl:
        with open(self.place / "service.log", "w") as log:
            self.service = subprocess.Popen(
                [self.telecl, "serve", "--listen", "127.0.0.1:0"],
                env=self.service_environment, cwd=self.place,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
            )
        # The thread goes on reading after the address, so that the service never blocks on a full pipe.
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=drain, args=(self.service.stdout, lines), daemon=True).start()
        try:
            line = lines.get(timeout=self.READY)
        except queue.Empty:
            line = ""
        found = re.search(r"listening on (\S+)", line)
        if not found:
            self.__exit__()
            raise SystemExit(f"error: `telecl serve` did not say where it listens (said {line!r}). See {self.place}/service.log")
        self.environment["TELECL_SERVICES"] = found.group(1)
        return self

    def __exit__(self, *_: object) -> None:
        self.service.terminate()
        try:
            self.service.wait(10)
        except subprocess.TimeoutExpired:
            self.service.kill()
            self.service.wait()

    def trouble(self) -> str:
        """Says so when the service has ended by itself."""
        status = self.service.poll()
        return "" if status is None else f"the service ended with status {status}, see {self.place}/service.log"


def drain(stream, lines: queue.Queue[str]) -> None:
    for line in stream:
        lines.put(line)
    lines.put("")


def fresh(place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return place
