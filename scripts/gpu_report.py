"""The report of a run of the GPU tests: build/test-gpu/report.json and report.md.

It says on what device, with what versions and when, what passed, what failed, and what was not
run and why; and what tests recorded (pytest's record_property), under its name.
"""

import json
import platform
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts import paths

FOLDER = paths.BUILD / "test-gpu"
# name, command, the version in its output
PROGRAMS = (
    ("driver", ("nvidia-smi",), r"Driver Version:\s*([\d.]+)"),
    ("nvcc", ("nvcc", "--version"), r"release ([\d.]+)"),
    ("commit", ("git", "rev-parse", "HEAD"), r"([0-9a-f]{12})"),
)


def versions() -> dict[str, str]:
    """Of all that the results depend on; programs that are missing are left out."""
    import torch

    hip = torch.version.hip
    found = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "runtime": f"HIP {hip}" if hip else f"CUDA {torch.version.cuda}",
    }
    for name, (program, *arguments), pattern in PROGRAMS:
        path = shutil.which(program) or shutil.which(program, path="/usr/local/cuda/bin")
        if path is None:
            continue
        done = subprocess.run([path, *arguments], capture_output=True, text=True, cwd=paths.ROOT)
        if done.returncode == 0 and (match := re.search(pattern, done.stdout)):
            found[name] = match.group(1)
    return found


def read_junit(junit: Path) -> dict[str, Any]:
    """passed: a count; failed: names; not_run: reason -> count; recorded: name -> texts."""
    passed = 0
    failed: list[str] = []
    not_run: dict[str, int] = {}
    recorded: dict[str, list[str]] = {}
    for case in ET.parse(junit).getroot().iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif skipped is not None:
            reason = skipped.get("message") or "no reason given"
            not_run[reason] = not_run.get(reason, 0) + 1
        else:
            passed += 1
        for item in case.iter("property"):
            recorded.setdefault(item.get("name", ""), []).append(item.get("value", ""))
    return {"passed": passed, "failed": failed, "not_run": not_run, "recorded": recorded}


def as_markdown(report: Mapping[str, Any]) -> str:
    """The report for people."""
    not_run = report["not_run"]
    lines = [
        f"# GPU tests: {report['device']} ({report['architecture']})",
        "",
        f"{report['date']}, `make test-gpu`, {report['seconds']:.0f} s: {report['passed']} passed, "
        f"{len(report['failed'])} failed, {sum(not_run.values())} not run.",
        "",
        ", ".join(f"{name} {version}" for name, version in report["versions"].items()),
    ]
    sections = {
        "Failed": report["failed"],
        "Not run": [f"{count}: {reason}" for reason, count in not_run.items()],
        **{name.capitalize(): texts for name, texts in report["recorded"].items()},
    }
    for title, items in sections.items():
        if items:
            lines += ["", f"## {title}", "", *(f"- {item}" for item in items)]
    return "\n".join(lines) + "\n"


def write(report: Mapping[str, Any]) -> Path:
    """Writes both files, each whole or not at all; returns the one for people."""
    readable = FOLDER / "report.md"
    for path, text in (
        (FOLDER / "report.json", json.dumps(report, indent=2) + "\n"),
        (readable, as_markdown(report)),
    ):
        temporary = path.with_name(path.name + ".new")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    return readable
