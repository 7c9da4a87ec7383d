#!/usr/bin/env python3
"""Runs test suites directly on a vendor's OpenCL driver and then through telecl, and compares.

Every test that passes directly must pass through telecl. Ends with `N passed, M failed` over the compared tests; the
exit status is 0 only when nothing regressed. README.md says what the suites are and how long they take.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import compare
import prepare
import report
from model import CACHE, HERE, Progress, Result, Suite
from sides import Direct, Telecl
from suite_clinfo import Clinfo
from suite_hashcat import Hashcat
from suite_piglit import Piglit
from suite_pyopencl import PyOpenCL


def main() -> int:
    options = arguments()
    exceptions = tomllib.loads((HERE / "exceptions.toml").read_text())
    known: dict[str, Suite] = {
        "clinfo": Clinfo(exceptions.get("clinfo", []), options.timeout),
        "hashcat": Hashcat(options.timeout),
        "pyopencl": PyOpenCL(options.timeout),
        "piglit": Piglit(options.timeout),
    }
    chosen = options.suites.split(",") if options.suites else list(known)
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise SystemExit(f"error: no suite {unknown[0]}. The suites are {', '.join(known)}")
    lock = alone()  # held until the process ends
    vendor = prepare.vendor(options.vendor)
    identify(vendor)
    print(f"driver: {vendor.driver}", flush=True)
    if not options.direct_only:
        for path in (options.telecl, options.driver):
            if not path.is_file():
                raise SystemExit(f"error: no file {path}. Build it first, or ask for --direct-only")

    comparisons = []
    for name in chosen:
        suite = known[name]
        suite.prepare()
        prepare.check_loader(suite.loader())
        print(f"{name}: {suite.version()}" + (f", subset ci: {suite.ci_rule}" if options.subset else ""), flush=True)
        comparisons.append(run_suite(suite, vendor, exceptions.get("test", []), options))
        if options.json:
            options.json.write_text(json.dumps([comparison.as_json() for comparison in comparisons], indent=1))
    report.print_table(comparisons)
    if options.direct_only:
        print("\nonly the direct side was run, nothing was compared")
        return 0
    if options.report:
        report.write_report(options.report, comparisons)
    passed = sum(len(comparison.passed()) for comparison in comparisons)
    failed = sum(len(comparison.kind("regression")) for comparison in comparisons)
    print(f"\n{passed} passed, {failed} failed")
    return 1 if failed else 0


def alone():
    """Waits for any other run in this checkout: both would use the same directories, and disturb each other's times."""
    CACHE.mkdir(exist_ok=True)
    lock = open(CACHE / "lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("another run is under way; waiting for it to end", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def run_suite(suite: Suite, vendor: prepare.Vendor, listed: list[dict], options: argparse.Namespace) -> report.Comparison:
    """Runs one suite on both sides and compares."""
    work = CACHE / "work" / f"{vendor.name}-{suite.name}"

    def direct_side(name: str = "direct"):
        return Direct(vendor, work / name)

    def telecl_side(name: str = "telecl"):
        return Telecl(vendor, work / name, options.telecl.resolve(), options.driver.resolve())

    # clinfo takes a second and shows the machine of this moment, so it is always asked anew.
    fresh = options.fresh or suite.name == "clinfo"
    cache = compare.DirectCache(suite, vendor.name, f"{vendor.fingerprint} {vendor.driver}")
    result = report.Comparison(vendor.name, vendor.driver, suite.name, suite.version(), options.subset or "", [], [suite.note] if suite.note else [])
    with direct_side() as side:
        tests = suite.tests(side, options.subset)
        missing = [test for test in tests if fresh or test not in cache.results]
        if missing:
            results, result.seconds_direct = timed_run(suite, side, missing, options.jobs)
            cache.add(results)
    direct = {test: cache.results.get(test, compare.ABSENT) for test in tests}
    if options.direct_only:
        result.verdicts, result.direct_only = compare.compare(suite, direct, direct, [], vendor.name), True
        return result

    with telecl_side() as side:
        telecl, result.seconds_telecl = timed_run(suite, side, tests, options.jobs)
        if trouble := side.trouble():
            result.notes.append(trouble)
    verdicts = compare.compare(suite, direct, telecl, listed, vendor.name)
    result.verdicts = compare.retry(
        suite, verdicts, options.retry_limit, lambda: telecl_side("telecl-again"), lambda: direct_side("direct-again")
    )
    return result


def timed_run(suite: Suite, side, tests: list[str], jobs: int) -> tuple[dict[str, Result], float]:
    begun = time.monotonic()
    progress = Progress(f"{suite.name} {side.name}", len(tests))
    results = suite.run(side, tests, jobs, progress)
    progress.show(last=True)
    return results, time.monotonic() - begun


def identify(vendor: prepare.Vendor) -> None:
    """Asks the driver for its platform, version and device."""
    with Direct(vendor, CACHE / "work" / f"{vendor.name}-name") as side:
        output = subprocess.run(["clinfo", "--raw"], env=side.environment, capture_output=True, text=True, timeout=120).stdout
    facts: dict[str, str] = {}
    for line in output.splitlines():
        words = line.split("]")[-1].split(maxsplit=1)
        if len(words) == 2:
            facts.setdefault(words[0], words[1].strip())
    if "CL_DEVICE_NAME" not in facts:
        raise SystemExit(f"error: the driver {vendor.library} shows no device. Try: OCL_ICD_VENDORS={vendor.directory} clinfo")
    vendor.driver = f"{facts['CL_PLATFORM_NAME']}, {facts['CL_PLATFORM_VERSION']}, driver {facts['CL_DRIVER_VERSION']}, on {facts['CL_DEVICE_NAME']}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", metavar="A,B", help="clinfo, hashcat, pyopencl, piglit (default: all)")
    parser.add_argument("--vendor", default="pocl", help="pocl, intel or the path of an .icd file (default: pocl)")
    parser.add_argument("--subset", choices=["ci"], help="a part of each suite, for minutes instead of an hour")
    parser.add_argument("--telecl", type=Path, default=Path("target/release/telecl"), metavar="FILE")
    parser.add_argument("--driver", type=Path, default=Path("target/release/libtelecl.so"), metavar="FILE")
    parser.add_argument("--report", type=Path, metavar="FILE", help="update this page, usually docs/parity.md")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every result of both sides")
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time (default: 2)")
    parser.add_argument("--timeout", type=int, default=120, help="seconds for one test (default: 120)")
    parser.add_argument("--retry-limit", type=int, default=40, help="more regressions than this are not run again")
    parser.add_argument("--fresh", action="store_true", help="run the direct side even if its results are known")
    parser.add_argument("--direct-only", action="store_true", help="establish the direct results and stop")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
