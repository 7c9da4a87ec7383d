"""Compares the two sides of a suite, runs again what got worse, and keeps direct results for the next time."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable
from dataclasses import asdict

from model import CACHE, Progress, Result, Suite, Verdict

ABSENT = Result("absent", detail="did not run")
DIRECT_RETRIES = 3


def compare(suite: Suite, direct: dict[str, Result], telecl: dict[str, Result], listed: list[dict], vendor: str) -> list[Verdict]:
    """One verdict per test, in the order of the direct side; what only telecl shows comes last."""
    return [
        judge(suite, test, direct.get(test, ABSENT), telecl.get(test, ABSENT), listed, vendor)
        for test in dict.fromkeys([*direct, *telecl])
    ]


def judge(suite: Suite, test: str, direct: Result, telecl: Result, listed: list[dict], vendor: str) -> Verdict:
    worse = suite.difference(test, direct, telecl)
    if worse is None:
        gained = telecl.passed and not direct.passed and direct.status != "skip"
        return Verdict(test, direct, telecl, "gained" if gained else "same")
    text, reason = worse
    reason = reason or reason_for(listed, suite.name, test, vendor, telecl.status)
    return Verdict(test, direct, telecl, "listed" if reason else "regression", reason or text)


def reason_for(listed: list[dict], suite: str, test: str, vendor: str, status: str) -> str:
    """The reason in exceptions.toml for this test not passing, or nothing."""
    for entry in listed:
        if (
            entry["suite"] == suite
            and fnmatch.fnmatchcase(test, entry["test"])
            and fnmatch.fnmatchcase(vendor, entry.get("vendor", "*"))
            and entry.get("status", status) == status
        ):
            return entry["reason"]
    return ""


def retry(suite: Suite, verdicts: list[Verdict], limit: int, telecl: Callable, direct: Callable) -> list[Verdict]:
    """Runs regressions again, alone: once through telecl and, where that fails too, three times directly.

    A test that passes the second time is unsteady through telecl, which is shown but does not fail the run. A test
    that fails directly now is the driver's. Past `limit` regressions nothing is run again: something is plainly broken.
    """
    worse = [verdict for verdict in verdicts if verdict.kind == "regression"]
    if not worse or len(worse) > limit or suite.name == "clinfo":
        return verdicts
    again = alone(suite, telecl, [verdict.test for verdict in worse], f"{suite.name} telecl, again")
    for verdict in worse:
        now = again.get(verdict.test, ABSENT)
        if suite.difference(verdict.test, verdict.direct, now) is None:
            verdict.kind, verdict.telecl = "flaky-telecl", now
    for turn in range(DIRECT_RETRIES):
        left = [verdict for verdict in worse if verdict.kind == "regression"]
        if not left:
            break
        now = alone(suite, direct, [verdict.test for verdict in left], f"{suite.name} direct, again {turn + 1}")
        for verdict in left:
            result = now.get(verdict.test, ABSENT)
            if suite.difference(verdict.test, verdict.direct, result) is not None:
                verdict.kind, verdict.note = "flaky-direct", f"fails directly at times: {result.detail}"
    return verdicts


def alone(suite: Suite, side: Callable, tests: list[str], title: str) -> dict[str, Result]:
    """Runs tests one at a time on a new side."""
    with side() as place:
        progress = Progress(title, len(tests))
        results = suite.run(place, tests, 1, progress)
        progress.show(last=True)
    return results


class DirectCache:
    """Direct results, kept by the driver (library, version, device) and the suite's version."""

    def __init__(self, suite: Suite, vendor: str, driver: str) -> None:
        self.path = CACHE / "direct" / f"{suite.name}-{vendor}.json"
        self.key = {"driver": driver, "suite": suite.version(), "format": 1}
        self.results: dict[str, Result] = {}
        if self.path.exists():
            stored = json.loads(self.path.read_text())
            if stored["key"] == self.key:
                self.results = {test: Result(**entry) for test, entry in stored["results"].items()}

    def add(self, results: dict[str, Result]) -> None:
        self.results |= results
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"key": self.key, "results": {test: asdict(result) for test, result in self.results.items()}}, indent=1)
        partial = self.path.with_suffix(".partial")
        partial.write_text(text)
        partial.replace(self.path)


