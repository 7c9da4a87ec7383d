"""clinfo, in its readable and its raw form: each label is a test, and its value must be the driver's own.

Lines that may differ are in exceptions.toml, each with a rule that the difference must obey and a reason.
"""

from __future__ import annotations

import re
import subprocess
import time

from model import Progress, Result, Suite, tail
from prepare import debian, debian_version

FORMS = {"clinfo": ["clinfo"], "raw": ["clinfo", "--raw"]}
CONTINUED = 40  # a line indented this far carries on the value above it


class Clinfo(Suite):
    name = "clinfo"
    ci_rule = "all of it"

    def __init__(self, rules: list[dict], timeout: int) -> None:
        self.rules, self.timeout = rules, timeout

    def prepare(self) -> None:
        debian("clinfo", "clinfo")

    def version(self) -> str:
        return f"clinfo {debian_version('clinfo')}"

    def tests(self, side, subset: str | None) -> list[str]:
        return sorted(self.read(side))

    def run(self, side, tests: list[str], jobs: int, progress: Progress) -> dict[str, Result]:
        begun = time.monotonic()
        first = self.read(side)
        seconds = (time.monotonic() - begun) / max(1, len(first))
        # What the driver itself answers differently from one moment to the next cannot be compared.
        second = self.read(side) if side.name == "direct" else first
        for label, value in first.items():
            steady = second.get(label) == value
            progress.results[label] = Result("pass" if steady else "skip", seconds, value)
        return dict(progress.results)

    def read(self, side) -> dict[str, str]:
        lines: dict[str, str] = {}
        for form, command in FORMS.items():
            try:
                done = subprocess.run(command, env=side.environment, capture_output=True, text=True, errors="replace", timeout=self.timeout)
            except subprocess.TimeoutExpired:
                print(f"[clinfo {side.name}] no end after {self.timeout} s", flush=True)
                continue
            if done.returncode != 0:
                print(f"[clinfo {side.name}] status {done.returncode}: {tail(done.stderr)}", flush=True)
            lines |= {f"{form}: {label}": value for label, value in parse(done.stdout).items()}
        return lines

    def difference(self, test: str, direct: Result, telecl: Result) -> tuple[str, str] | None:
        if direct.status == "skip" or (direct.status == telecl.status and direct.detail == telecl.detail):
            return None
        before = direct.detail if direct.status != "absent" else None
        after = telecl.detail if telecl.status != "absent" else None
        for rule in self.rules:
            if re.search(rule["line"], test) and obeys(rule, before, after):
                return f"{show(before)} -> {show(after)}", rule["reason"]
        return f"{show(before)} -> {show(after)}", ""


def show(value: str | None) -> str:
    """A value for a table: a long one loses its middle."""
    if value is None:
        return "(no line)"
    text = value.replace("\n", " / ") or "(empty)"
    return text if len(text) <= 160 else f"{text[:80]} … {text[-70:]}"


def obeys(rule: dict, before: str | None, after: str | None) -> bool:
    """Whether a difference is the one that the rule allows."""
    match rule["rule"]:
        case "begins":  # the driver's value, and more after it
            return before is not None and after is not None and after.startswith(before)
        case "words":  # nothing gone but `removed`, nothing new but `added`; both hold patterns
            gone, new = words(before) - words(after), words(after) - words(before)
            return all(among(word, rule.get("removed", [])) for word in gone) and all(among(word, rule.get("added", [])) for word in new)
        case "value":  # telecl's value is known
            return after is not None and re.fullmatch(rule["value"], after) is not None
        case "absent":  # telecl has no such line
            return after is None
    raise SystemExit(f"error: exceptions.toml has the unknown rule {rule['rule']}")


def words(value: str | None) -> set[str]:
    """The names in a value. A version belongs to the name before it, in either form:
    `cl_khr_icd:0x400000`, or `cl_khr_icd   0x400000 (1.0.0)`."""
    value = re.sub(r"(\S+)[ ]+(0x[0-9a-f]+) \([0-9.]+\)", r"\1:\2", value or "")
    return {word for word in re.split(r"[\s|,;]+", value) if word}


def among(word: str, patterns: list[str]) -> bool:
    name = word.partition(":0x")[0]
    return any(re.fullmatch(pattern, name) for pattern in patterns)


def parse(output: str) -> dict[str, str]:
    """clinfo's lines as label and value; the label has the labels above it in front, values over several
    lines are joined, and what occurs more than once is numbered."""
    values: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    current = ""
    for line in output.splitlines():
        # Raw lines begin with the platform's suffix and the device's number: [POCL/0].
        line = re.sub(r"^\[[^\]]*/(\*|\d+)\]", r"", line).rstrip()
        text = line.lstrip()
        indent = len(line) - len(text)
        if not text:
            above = []
        elif indent >= CONTINUED and current:
            values[current] += f"\n{text}"
        else:
            label, _, value = re.sub(r"\s{2,}", "\0", text, count=1).partition("\0")
            above = [entry for entry in above if entry[0] < indent] + [(indent, label)]
            current = unused(" > ".join(name for _, name in above), values)
            values[current] = value
    return values


def unused(label: str, values: dict[str, str]) -> str:
    number, candidate = 1, label
    while candidate in values:
        number += 1
        candidate = f"{label} #{number}"
    return candidate
