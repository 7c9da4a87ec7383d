"""pyopencl's own tests, from its source package, run with pytest on the wheel of the same version.

The wheel carries its own loader, ocl-icd 2.3.1, which obeys OCL_ICD_VENDORS as Debian's does. Each job is one
pytest process with a share of the tests. One that crashes or hangs loses the test it was in and is started
again for the rest of its share.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from pathlib import Path

from model import HERE, Progress, Result, Suite, tail
from prepare import PYTHON_TESTS, pyopencl

CI_STEP = 8


class PyOpenCL(Suite):
    name = "pyopencl"
    note = "pyopencl and its tests compare the platform's name with `==`, so they run with `TELECL_PLAIN_NAMES=1`"
    ci_rule = f"all of test_wrapper.py and each {CI_STEP}th test of the other files, in pytest's order"

    def __init__(self, timeout: int) -> None:
        self.timeout = timeout
        self.children: list[subprocess.Popen] = []

    def prepare(self) -> None:
        self.python, self.directory = pyopencl()

    def loader(self) -> list:
        return [self.python, "-c", "import pyopencl; print(pyopencl.get_platforms())"]

    def version(self) -> str:
        return ", ".join(PYTHON_TESTS).replace("==", " ")

    def tests(self, side, subset: str | None) -> list[str]:
        log = side.place / "collected.jsonl"
        command = self.command() + ["--collect-only"]
        done = subprocess.run(command, env=self.environment(side, log), cwd=self.copied(side), capture_output=True, text=True)
        names = [line["test"] for line in read_lines(log)]
        if not names:
            raise SystemExit(f"error: pytest found no tests: {tail(done.stdout + done.stderr)}")
        if subset == "ci":
            others = [name for name in names if not name.startswith("test_wrapper.py")]
            dropped = set(others) - set(others[::CI_STEP])
            names = [name for name in names if name not in dropped]
        return names

    def copied(self, side) -> Path:
        """The tests, copied to where they may leave files."""
        place = side.place / "test"
        if not place.exists():
            shutil.copytree(self.directory, place)
        return place

    def command(self) -> list:
        return [self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_report", "-W", "ignore"]

    def environment(self, side, log: Path) -> dict[str, str]:
        log.unlink(missing_ok=True)
        return side.environment | {"PARITY_LOG": str(log), "TELECL_PLAIN_NAMES": "1", "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, side, tests: list[str], jobs: int, progress: Progress) -> dict[str, Result]:
        self.copied(side)
        threads = []
        for number in range(jobs):
            share = tests[number::jobs]
            threads.append(threading.Thread(target=self.run_share, args=(side, number, share, progress), daemon=True))
            threads[-1].start()
        try:
            while any(thread.is_alive() for thread in threads):
                progress.show()
                time.sleep(0.5)
        finally:
            for child in self.children:
                child.kill()  # does nothing to one that has ended
        return {test: progress.results[test] for test in tests if test in progress.results}

    def run_share(self, side, number: int, share: list[str], progress: Progress) -> None:
        attempt = 0
        while left := [test for test in share if test not in progress.results]:
            before = len(left)
            self.run_once(side, f"{number}-{attempt}", left, progress)
            attempt += 1
            if before == len([test for test in share if test not in progress.results]):
                break  # pytest does not even begin a test; what is left stays absent

    def run_once(self, side, label: str, tests: list[str], progress: Progress) -> None:
        log = side.place / f"pytest-{label}.jsonl"
        environment = self.environment(side, log)
        selection = side.place / f"pytest-{label}.txt"
        selection.write_text("".join(f"{test}\n" for test in tests))
        environment["PARITY_TESTS"] = str(selection)
        output = side.place / f"pytest-{label}.log"
        with open(output, "w") as file:
            child = subprocess.Popen(self.command(), env=environment, cwd=self.copied(side), stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        self.children.append(child)
        current, since, status, position = "", time.monotonic(), None, 0
        while True:
            status = child.poll()  # before reading, so that the last lines are not missed
            lines = read_lines(log)
            for line in lines[position:]:
                if line["event"] == "begin":
                    current, since = line["test"], time.monotonic()
                elif line["event"] == "end" and line["test"] in tests:
                    current = ""
                    detail = "" if line["status"] == "pass" else tail(line["detail"])
                    progress.results[line["test"]] = Result(line["status"], line["seconds"], detail)
            position = len(lines)
            if status is not None:
                break
            if time.monotonic() - since > self.timeout:
                child.kill()
                child.wait()
                if current:
                    progress.results[current] = Result("timeout", float(self.timeout), f"no end after {self.timeout} s")
                return
            time.sleep(0.2)
        if current and current not in progress.results:
            seconds = time.monotonic() - since
            progress.results[current] = Result("crash", seconds, f"pytest ended with status {status}: {tail(output.read_text(errors='replace'))}")


def read_lines(log: Path) -> list[dict]:
    """The complete lines of a plugin's log."""
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
