"""The comparison as a table: on the terminal, as JSON, and in docs/parity.md.

docs/parity.md holds every driver and suite that was ever run; a run replaces its own rows and sections only.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from model import Verdict

COLUMNS = ["driver", "suite", "tests", "pass direct", "pass telecl", "regressions", "listed", "unsteady", "time direct", "time telecl", "date"]
SLOWER, SLOW = 5.0, 3.0  # a test is shown when telecl takes this many times as long, and at least this many seconds longer
SHOWN = 60

INTRODUCTION = """# Parity with the real driver

Each suite runs directly on the vendor's driver and then through telecl on the same machine. Every test that passes directly must pass
through telecl, unless it is listed with a reason. Written by `tests/parity/parity.py --report docs/parity.md`; a run replaces its own rows.

Times are sums over the tests of a suite, in seconds; several tests run at a time. *Listed* are differences with a reason in
`tests/parity/exceptions.toml`, *unsteady* are tests that passed when they were run again alone, or that fail directly at times.
"""


@dataclass
class Comparison:
    """One suite on one driver."""

    vendor: str
    driver: str  # name and version, as the driver says them
    suite: str
    version: str
    subset: str
    verdicts: list[Verdict]
    notes: list[str]
    seconds_direct: float = 0.0  # wall time of the run; 0 when the results were kept from before
    seconds_telecl: float = 0.0
    direct_only: bool = False  # telecl was not run; the verdicts compare nothing

    def kind(self, *kinds: str) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if verdict.kind in kinds]

    def passed(self) -> list[Verdict]:
        """The tests that pass on both sides, if only the second time. Tests that fail or are skipped directly are not
        among them, and neither are listed differences."""
        return [verdict for verdict in self.kind("same", "flaky-telecl") if verdict.direct.passed and verdict.telecl.passed]

    def row(self) -> list[str]:
        direct = sum(verdict.direct.seconds for verdict in self.verdicts)
        telecl = sum(verdict.telecl.seconds for verdict in self.verdicts)
        if self.direct_only:
            return self.row_start() + ["-"] * 4 + [f"{direct:.0f}", "-", datetime.date.today().isoformat()]
        passed = [verdict for verdict in self.verdicts if verdict.telecl.passed and verdict.kind != "regression"]
        counts = [passed, self.kind("regression"), self.kind("listed"), self.kind("flaky-telecl", "flaky-direct")]
        return self.row_start() + [str(len(found)) for found in counts] + [f"{direct:.0f}", f"{telecl:.0f}", datetime.date.today().isoformat()]

    def row_start(self) -> list[str]:
        suite = f"{self.suite} ({self.subset})" if self.subset else self.suite
        return [self.vendor, suite, str(len(self.verdicts)), str(sum(verdict.direct.passed for verdict in self.verdicts))]

    def slower(self) -> list[Verdict]:
        """The tests that both sides pass and that telecl takes much longer for, worst first."""
        found = [
            verdict for verdict in self.verdicts
            if verdict.direct.passed and verdict.telecl.passed
            and verdict.telecl.seconds > SLOWER * verdict.direct.seconds
            and verdict.telecl.seconds > SLOW + verdict.direct.seconds
        ]
        return sorted(found, key=lambda verdict: verdict.direct.seconds - verdict.telecl.seconds)

    def as_json(self) -> dict:
        return asdict(self)


def print_table(comparisons: list[Comparison]) -> None:
    rows = [COLUMNS] + [comparison.row() for comparison in comparisons]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    print()
    for row in rows:
        cells = [cell.ljust(width) if column < 2 else cell.rjust(width) for column, (cell, width) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())
    for comparison in comparisons:
        for title, verdicts in sections(comparison):
            print(f"\n{comparison.vendor} {comparison.suite}: {title}")
            for verdict in verdicts[:SHOWN]:
                print(f"  {verdict.test}: {describe(verdict)}")
            if len(verdicts) > SHOWN:
                print(f"  … and {len(verdicts) - SHOWN} more")
        for note in comparison.notes:
            print(f"\n{comparison.vendor} {comparison.suite}: {note}")


def sections(comparison: Comparison) -> list[tuple[str, list[Verdict]]]:
    found = [
        ("regressions", comparison.kind("regression")),
        ("unsteady through telecl", comparison.kind("flaky-telecl")),
        ("unsteady directly", comparison.kind("flaky-direct")),
        ("listed with a reason", comparison.kind("listed")),
        ("pass through telecl only", comparison.kind("gained")),
        ("much slower through telecl", comparison.slower()),
    ]
    return [(title, verdicts) for title, verdicts in found if verdicts]


def describe(verdict: Verdict) -> str:
    return verdict.note or f"{verdict.direct.status} {verdict.direct.seconds:.1f} s, telecl {verdict.telecl.status} {verdict.telecl.seconds:.1f} s"


def write_report(path: Path, comparisons: list[Comparison]) -> None:
    old = path.read_text() if path.exists() else ""
    rows = {(cells[0], cells[1]): cells for cells in table_rows(old)}
    blocks = {match[1]: match[2] for match in re.finditer(r"<!-- (\S+) -->\n(.*?)<!-- end -->\n", old, re.DOTALL)}
    for comparison in comparisons:
        row = comparison.row()
        rows[row[0], row[1]] = row
        blocks[f"{comparison.vendor}/{comparison.suite}{'-' + comparison.subset if comparison.subset else ''}"] = block(comparison)
    lines = [INTRODUCTION, table_line(COLUMNS), table_line(["---"] * 2 + ["---:"] * (len(COLUMNS) - 2))]
    lines += [table_line(rows[key]) for key in sorted(rows)]
    lines += [""] + [f"<!-- {name} -->\n{blocks[name]}<!-- end -->\n" for name in sorted(blocks)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def table_line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def table_rows(text: str) -> list[list[str]]:
    """The rows of an earlier report's table."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == len(COLUMNS) and cells[2].isdigit():
            found.append(cells)
    return found


def block(comparison: Comparison) -> str:
    """One section of the report: the driver, then what differs."""
    subset = f", subset {comparison.subset}" if comparison.subset else ""
    lines = [f"## {comparison.suite} on {comparison.vendor}{subset}", "", f"{comparison.driver}. {comparison.version}.", ""]
    direct = f"{comparison.seconds_direct:.0f} s" if comparison.seconds_direct else "kept from an earlier run"
    lines += [f"Wall time: direct {direct}, telecl {comparison.seconds_telecl:.0f} s.", ""]
    failing: dict[str, int] = {}
    for verdict in comparison.verdicts:
        if not verdict.direct.passed:
            failing[verdict.direct.status] = failing.get(verdict.direct.status, 0) + 1
    if failing:
        lines += ["Not passing directly: " + ", ".join(f"{count} {status}" for status, count in sorted(failing.items())) + ".", ""]
    for title, verdicts in sections(comparison):
        lines += [f"{title.capitalize()}:", ""]
        lines += [f"- {line}" for line in grouped(verdicts)]
        lines += [""]
    lines += [f"Note: {note}.\n" for note in comparison.notes]
    return "\n".join(lines)


def grouped(verdicts: list[Verdict]) -> list[str]:
    """Tests with the same note share a line."""
    tests: dict[str, list[str]] = {}
    for verdict in verdicts:
        tests.setdefault(describe(verdict), []).append(f"`{verdict.test}`")
    return [", ".join(names[:SHOWN]) + (" and more" if len(names) > SHOWN else "") + f": {note}" for note, names in tests.items()]
