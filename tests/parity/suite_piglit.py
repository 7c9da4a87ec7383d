"""Piglit's `cl` profile: about 710 small programs, each a process of its own.

piglit keeps the tests' names in cl.xml.gz and writes one JSON file per finished test, which it joins into
results.json at the end. Its tests run on every platform that the loader shows, hence one .icd file per side.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import threading
from pathlib import Path
from xml.etree import ElementTree

from model import Progress, Result, Suite, tail
from prepare import debian, debian_version

PROFILE = Path("/usr/lib/x86_64-linux-gnu/piglit/tests/cl.xml.gz")
CI_STEP = 10


class Piglit(Suite):
    name = "piglit"
    ci_rule = f"every test of the API and of building, and each {CI_STEP}th of `program@execute` in the profile's order"

    def __init__(self, timeout: int) -> None:
        self.timeout = timeout

    def prepare(self) -> None:
        debian("piglit", "piglit")

    def version(self) -> str:
        return f"piglit {debian_version('piglit')}"

    def tests(self, side, subset: str | None) -> list[str]:
        with gzip.open(PROFILE) as file:
            names = [test.get("name") for test in ElementTree.parse(file).getroot().iter("Test")]
        if subset == "ci":
            executed = [name for name in names if name.startswith("program@execute@")]
            dropped = set(executed) - set(executed[::CI_STEP])
            names = [name for name in names if name not in dropped]
        return names

    def run(self, side, tests: list[str], jobs: int, progress: Progress) -> dict[str, Result]:
        selection = side.place / "piglit-tests.txt"
        selection.write_text("".join(f"{name}\n" for name in tests))
        output = side.place / "piglit"
        # The profile calls none of its tests concurrent; without --all-concurrent --jobs does nothing.
        command = ["piglit", "run", "--overwrite", "--log-level", "quiet", "--all-concurrent", "--jobs", str(jobs)]
        command += ["--timeout", str(self.timeout), "--test-list", selection, "cl", output]
        environment = side.environment | {"PIGLIT_COMPRESSION": "none"}
        with open(side.place / "piglit.log", "w") as log:
            child = subprocess.Popen(command, env=environment, cwd=side.place, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        finished = threading.Event()
        watcher = threading.Thread(target=watch, args=(output / "tests", progress, finished))
        watcher.start()
        try:
            status = child.wait()
        except BaseException:
            child.terminate()
            child.wait()
            raise
        finally:
            finished.set()
            watcher.join()
        if status != 0:
            raise SystemExit(f"error: piglit ended with status {status}. See {side.place}/piglit.log")
        results = {name: result(entry) for name, entry in json.loads((output / "results.json").read_text())["tests"].items()}
        progress.results = results
        return results


def watch(directory: Path, progress: Progress, finished: threading.Event) -> None:
    """Shows the tests that have a finished file."""
    seen: set[str] = set()
    while not finished.wait(1.0):
        for file in directory.glob("*.json"):
            if file.name in seen:
                continue
            try:
                for name, entry in json.loads(file.read_text()).items():
                    if entry["result"] != "incomplete":
                        progress.results[name] = result(entry)
                        seen.add(file.name)
            except (OSError, ValueError):
                continue  # being written, or already joined
        progress.show()


def result(entry: dict) -> Result:
    """One test of piglit's JSON."""
    time = entry["time"]
    parts = {name: status for name, status in entry["subtests"].items() if name != "__type__"}
    detail = "" if entry["result"] in ("pass", "skip") else tail(f"{entry['out']}\n{entry['err']}")
    return Result(entry["result"], time["end"] - time["start"], detail, parts)
