"""A pytest plugin: runs the chosen tests and writes one JSON line when a test begins and one when it ends.

Lines are flushed, so that after a crash the harness knows which test it was.

telecl adds the node's address to the platform's name. pyopencl and its tests compare that name with `==` to know
which driver they have, and leave out what crashes it. To run the same tests on both sides, the names of tests lose
the platform's name, and `Platform.name` is the driver's own again (`get_info` is not touched).
"""

from __future__ import annotations

import json
import os
import re


import pyopencl


def own_name(platform: pyopencl.Platform) -> str:
    name, driver = platform.get_info(pyopencl.platform_info.NAME), os.environ.get("PARITY_PLATFORM", "")
    return driver if driver and name.startswith(driver) else name


pyopencl.Platform.name = property(own_name)


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
