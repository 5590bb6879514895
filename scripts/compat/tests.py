"""Runs the tests that can run where not every patch of the series fits."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.gpu_report import read_junit
from scripts.series import message_of
from scripts.transplant import Fit, State

# What runs vLLM itself; the other layers test what does not depend on its version.
FOLDERS = ("tests/integration", "tests/models")
_TEST = re.compile(r"^Test: ([^\s:]+)", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What became of the tests: counts, and counts of the reasons.

    `obstacle` says why none could be run, where that is so.
    """

    passed: int
    failed: dict[str, int]
    not_run: dict[str, int]
    obstacle: str = ""


def chosen(fits: Sequence[Fit], root: Path) -> tuple[list[str], dict[str, str]]:
    """The test files that can run, and for the others the patch that they need.

    A file that patches name in their `Test:` lines needs those; one that none names needs all.
    """
    missing = [fit.patch for fit in fits if fit.state is State.CONFLICT]
    needs: dict[str, list[str]] = {}
    for fit in fits:
        for file in _TEST.findall(message_of(fit.patch.mail.decode(errors="replace"))):
            needs.setdefault(file, []).append(fit.patch.name)
    left_out = {patch.name for patch in missing}
    run, left = [], {}
    for file in _test_files(root):
        lacks = [name for name in needs.get(file, sorted(left_out)) if name in left_out]
        if lacks:
            left[file] = lacks[0]
        else:
            run.append(file)
    return run, left


def _test_files(root: Path) -> list[str]:
    found = (file for folder in FOLDERS for file in (root / folder).rglob("test_*.py"))
    return sorted(file.relative_to(root).as_posix() for file in found)


def run(files: Sequence[str], root: Path, op_library: Path) -> Outcome:
    """Runs test files of a copy of the repository; what they print goes to its tests.log."""
    junit = root / "junit.xml"
    env = _environment() | {"RDNA35_TEST_LIBRARY": str(op_library)}
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={junit}", *files]
    with (root / "tests.log").open("w") as log:
        status = subprocess.run(command, cwd=root, env=env, stdout=log, stderr=log).returncode
    if not junit.exists():
        tail = (root / "tests.log").read_text(errors="replace").strip().splitlines()[-1:]
        return Outcome(0, {f"pytest ended with status {status}: {' '.join(tail)}": len(files)}, {})
    report = read_junit(junit)
    return Outcome(report["passed"], _failures(junit, root), report["not_run"])


def find_obstacle(root: Path, op_library: Path) -> str:
    """Why the copy's vLLM cannot be run on a simulated machine at all, or nothing where it can."""
    tree = root / "build" / "vllm"
    command = [sys.executable, "-m", "tests.upstream.imports", str(tree), str(op_library)]
    done = subprocess.run(
        [*command, "vllm.platforms.rocm"],
        cwd=root, env=_environment(), capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode == 0:
        return ""
    said = (done.stdout + done.stderr).strip().splitlines()
    return (said[-1] if said else f"status {done.returncode}").replace(f"{root}/", "")


def _environment() -> dict[str, str]:
    dropped = ("VLLM_", "PYTEST_")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)}


def _failures(junit: Path, root: Path) -> dict[str, int]:
    """The last line of what each failure says -> how many say so."""
    found: dict[str, int] = {}
    for case in ET.parse(junit).getroot().iter("testcase"):
        for fault in (*case.iter("failure"), *case.iter("error")):
            reason = _reason(fault.get("message") or "", fault.text or "").replace(f"{root}/", "")
            found[reason] = found.get(reason, 0) + 1
    return found


def _reason(message: str, text: str) -> str:
    """The exception that ends a traceback, a simulated machine's before that of its caller."""
    raised = re.findall(r"^(?:E +)?(\w[\w.]*(?:Error|Exception|Fault)\b.*)$", text, re.MULTILINE)
    return (raised[-1] if raised else message.strip().split("\n")[0])[:200]
