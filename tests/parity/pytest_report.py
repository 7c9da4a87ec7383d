"""A pytest plugin: runs the chosen tests and writes one JSON line when a test begins and one when it ends.

Lines are flushed, so that after a crash the harness knows which test it was.

The names of tests lose the platform's name, so that they are the same on both sides.
"""

from __future__ import annotations

import json
import os
import re


def common_name(nodeid: str) -> str:
    name = re.sub(r"<context factory for <pyopencl\.Device '([^']*)' on '[^']*'>>", r"\1", nodeid)
    return re.sub(r"<pyopencl\.Platform '[^']*'>", "platform", name)


def write(**line) -> None:
    with open(os.environ["PARITY_LOG"], "a") as log:
        log.write(json.dumps(line) + "\n")


def pytest_collection_modifyitems(config, items) -> None:
    selection = os.environ.get("PARITY_TESTS")
    if selection is None:
        for item in items:
            write(test=common_name(item.nodeid), event="found")
        return
    with open(selection) as file:
        wanted = set(file.read().splitlines())
    config.hook.pytest_deselected(items=[item for item in items if common_name(item.nodeid) not in wanted])
    items[:] = [item for item in items if common_name(item.nodeid) in wanted]


def pytest_runtest_logstart(nodeid, location) -> None:
    write(test=common_name(nodeid), event="begin")


def pytest_runtest_logreport(report) -> None:
    # A test has three phases; the first that does not pass decides, and "call" says that it passed.
    if report.when == "call" or not report.passed:
        status = {"passed": "pass", "failed": "fail", "skipped": "skip"}[report.outcome]
        text = report.longreprtext if report.failed else str(report.longrepr or "")
        write(test=common_name(report.nodeid), event="end", status=status, seconds=report.duration, detail=text[-2000:])
