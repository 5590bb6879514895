"""pytest plugin: the outcome of each test, as a line of JSON in the file that OUTCOMES names.

A line is written as a test ends, so a process that dies leaves those before it:

    {"test": "tests/test_envs.py::test_x[0]", "outcome": "skipped", "reason": "...", "seconds": 0.1}

outcome: passed, failed, skipped, xfailed, or xpassed. A file that cannot be collected is a test of
the file's name; so is one that skips as a whole.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

_file = Path(os.environ["OUTCOMES"])
_worst: dict[str, dict[str, Any]] = {}
_RANK = ("passed", "xfailed", "xpassed", "skipped", "failed")


def _outcome(report: pytest.CollectReport | pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.outcome == "skipped" else "xpassed"
    return report.outcome


def _reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    """Why it did not pass, in one line."""
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail)
    found: Any = report.longrepr
    if isinstance(found, tuple):  # of a skip: file, line, text
        return str(found[2]).removeprefix("Skipped: ")
    if crash := getattr(found, "reprcrash", None):
        return (str(crash.message).splitlines() or [""])[0]
    # Of an import: the last line is the error.
    return (str(found or "").strip().splitlines() or [""])[-1].removeprefix("E ").strip()


def _write(line: dict[str, Any]) -> None:
    with _file.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Notes files that skip or fail as a whole."""
    if report.outcome != "passed":
        line = {"test": report.nodeid, "outcome": _outcome(report), "reason": _reason(report)}
        _write({**line, "seconds": 0.0})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes the worst of set-up, call and tear-down."""
    found = {"test": report.nodeid, "outcome": _outcome(report), "reason": _reason(report)}
    worst = _worst.setdefault(report.nodeid, {**found, "seconds": 0.0})
    worst["seconds"] = round(worst["seconds"] + report.duration, 2)
    if _RANK.index(found["outcome"]) > _RANK.index(worst["outcome"]):
        worst |= found
    if report.when == "teardown":
        _write(_worst.pop(report.nodeid))
