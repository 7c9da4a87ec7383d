"""hashcat cracks salted SHA-256 hashes of generated words: every hash must be found.

It is the largest ordinary program among the suites. It includes its kernel sources through a macro
(`-D INCLUDE_PATH=…`), tunes itself by the device's name and type, and keeps program binaries. The second
attack is the first again and so loads those binaries.
"""

from __future__ import annotations

import hashlib
import random
import subprocess
import time

from model import Progress, Result, Suite, tail
from prepare import debian, debian_version

WORDS, HASHES = 20000, 100
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
# --force: hashcat warns of old drivers and stops; -D: CPU devices are not used unless named.
FLAGS = ["--force", "--potfile-disable", "--logfile-disable", "--restore-disable", "--quiet", "-D", "1,2,3", "--backend-ignore-cuda", "--backend-ignore-hip"]
FIRST, SECOND = "words", "words, kernels from the cache"
ATTACKS = {
    FIRST: ["-m", "1410", "-a", "0", "{hashes}", "{words}"],
    SECOND: ["-m", "1410", "-a", "0", "{hashes}", "{words}"],
    "words, optimised kernel": ["-O", "-m", "1410", "-a", "0", "{hashes}", "{words}"],
    "mask": ["-m", "1410", "-a", "3", "{short}", "?l?d?l?d"],
}
CI = [FIRST, SECOND]


class Hashcat(Suite):
    name = "hashcat"
    ci_rule = "the first two attacks"

    def __init__(self, timeout: int) -> None:
        self.timeout = 5 * timeout

    def prepare(self) -> None:
        debian("hashcat", "hashcat")

    def version(self) -> str:
        return f"hashcat {debian_version('hashcat')}, {HASHES} hashes, {WORDS} words"

    def tests(self, side, subset: str | None) -> list[str]:
        return CI if subset == "ci" else list(ATTACKS)

    def run(self, side, tests: list[str], jobs: int, progress: Progress) -> dict[str, Result]:
        files, answers = self.generate(side)
        for test in tests:
            if test == SECOND and FIRST not in tests:
                self.attack(side, [argument.format(**files) for argument in ATTACKS[FIRST]], side.place / "first.txt", set())
            found = side.place / "found.txt"
            found.unlink(missing_ok=True)
            attack = [argument.format(**files) for argument in ATTACKS[test]]
            wanted = answers["short" if test == "mask" else "hashes"]
            progress.add(test, self.attack(side, attack, found, wanted))
        return dict(progress.results)

    def attack(self, side, attack: list[str], found, wanted: set[str]) -> Result:
        begun = time.monotonic()
        command = ["hashcat", *FLAGS, "--outfile", str(found), *attack]
        try:
            done = subprocess.run(command, env=side.environment, cwd=side.place, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=self.timeout)
        except subprocess.TimeoutExpired:
            return Result("timeout", self.timeout, f"no end after {self.timeout} s")
        seconds = time.monotonic() - begun
        cracked = set(found.read_text().splitlines()) if found.exists() else set()
        if cracked == wanted:
            return Result("pass", seconds, f"{len(cracked)} of {len(wanted)} found")
        detail = f"{len(cracked & wanted)} of {len(wanted)} found, status {done.returncode}: {tail(done.stdout + done.stderr)}"
        return Result("crash" if done.returncode < 0 else "fail", seconds, detail)

    def generate(self, side) -> tuple[dict[str, str], dict[str, set[str]]]:
        """Writes the word list and two lists of hashes; returns their paths and the lines that hashcat must find."""
        chance = random.Random(7)
        words = ["".join(chance.choices(ALPHABET, k=chance.randint(6, 10))) for _ in range(WORDS)]
        short = ["a1b2", "z9z9", "q0w4"]
        lists = {"hashes": chance.sample(words, HASHES), "short": short}
        answers: dict[str, set[str]] = {}
        for name, chosen in lists.items():
            answers[name] = set()
            for word in chosen:
                salt = f"{chance.randrange(65536):04x}"
                digest = hashlib.sha256((word + salt).encode()).hexdigest()
                answers[name].add(f"{digest}:{salt}:{word}")
            hashes = "".join(f"{answer.rpartition(':')[0]}\n" for answer in sorted(answers[name]))
            (side.place / f"{name}.txt").write_text(hashes)
        (side.place / "words.txt").write_text("".join(f"{word}\n" for word in words))
        return {name: str(side.place / f"{name}.txt") for name in ("hashes", "short", "words")}, answers
