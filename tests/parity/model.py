"""What every part of the harness talks about: results, verdicts, suites and the progress line."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

# A test counts as passed with these; piglit says "warn" when a test passed and printed a warning.
PASSED = ("pass", "warn")


@dataclass
class Result:
    """How one test ended on one side."""

    status: str  # pass, warn, fail, crash, skip, timeout or absent
    seconds: float = 0.0
    detail: str = ""  # the last lines of a failure; for clinfo the value of the line
    parts: dict[str, str] = field(default_factory=dict)  # status of each subtest

    @property
    def passed(self) -> bool:
        return self.status in PASSED

    def lost_parts(self, other: Result) -> list[str]:
        """The subtests that pass here and do not pass in `other`."""
        return [name for name, status in self.parts.items() if status in PASSED and other.parts.get(name) not in PASSED]


@dataclass
class Verdict:
    """How one test compares between the two sides."""

    test: str
    direct: Result
    telecl: Result
    kind: str  # same, gained, regression, listed, flaky-direct or flaky-telecl
    note: str = ""


class Suite:
    """One body of tests that runs the same way on either side."""

    name = ""
    note = ""  # what a reader of the report must know about the comparison
    ci_rule = ""  # which tests `--subset ci` takes, in words for the report

    def prepare(self) -> None:
        """Installs what the suite needs."""
        raise NotImplementedError

    def loader(self) -> list:
        """A command that prints the platforms its loader finds; `clinfo --list` is the system's loader."""
        return ["clinfo", "--list"]

    def version(self) -> str:
        """Names the tests; cached direct results belong to it."""
        raise NotImplementedError

    def tests(self, side, subset: str | None) -> list[str]:
        """The tests to run, in a fixed order."""
        raise NotImplementedError

    def run(self, side, tests: list[str], jobs: int, progress: Progress) -> dict[str, Result]:
        """Runs `tests` on `side`."""
        raise NotImplementedError

    def difference(self, test: str, direct: Result, telecl: Result) -> tuple[str, str] | None:
        """None when telecl does as well as the driver, otherwise what is worse and, for a difference that
        the suite itself expects, the reason (empty for a regression)."""
        if direct.passed and not telecl.passed:
            return f"{telecl.status}: {telecl.detail}".rstrip(": "), ""
        lost = direct.lost_parts(telecl)
        if lost:
            return f"{len(lost)} subtests lost: {', '.join(lost[:3])}", ""
        return None


class Progress:
    """One line that says how far a run is: rewritten on a terminal, repeated every 20 s elsewhere."""

    PAUSE = 20.0

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total, self.begun = title, total, time.monotonic()
        self.printed = 0.0
        self.results: dict[str, Result] = {}

    def add(self, test: str, result: Result) -> None:
        self.results[test] = result
        self.show()

    def show(self, last: bool = False) -> None:
        now = time.monotonic()
        pause = 0.2 if sys.stdout.isatty() else self.PAUSE
        if not last and now - self.printed < pause:
            return
        self.printed = now
        counts: dict[str, int] = {}
        for result in self.results.values():
            counts[result.status] = counts.get(result.status, 0) + 1
        text = ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "starting"
        line = f"[{self.title}] {len(self.results)}/{self.total}, {now - self.begun:.0f} s: {text}"
        if sys.stdout.isatty():
            print(f"\r\x1b[K{line}", end="\n" if last else "", flush=True)
        else:
            print(line, flush=True)


def tail(text: str, lines: int = 3, width: int = 300) -> str:
    """The end of a program's output, as one short line."""
    kept = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(kept[-lines:])[-width:]


HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
CACHE = REPOSITORY / "tests" / ".cache"
