"""Runs the pinned linters of build/lint/venv, and reads what they print."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from scripts import paths
from scripts.errors import Fault


def tool(name: str) -> str:
    """Path of a linter."""
    return str(paths.LINT_VENV / "bin" / name)


def run(command: Sequence[str], folder: Path = paths.ROOT) -> list[str]:
    """Lines that a linter prints; none where it found nothing. Fault where it did not run."""
    env = os.environ | {
        "PATH": f"{paths.LINT_VENV / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "MYPY_CACHE_DIR": str(paths.LINT / "mypy"),
        "RUFF_NO_CACHE": "true",
        "NO_COLOR": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    except FileNotFoundError:
        raise Fault(f"{command[0]} is not there; run `make lint`") from None
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if done.returncode != 0 and not lines:
        raise Fault(f"{' '.join(command[:3])} ended with status {done.returncode}, saying nothing")
    return lines if done.returncode != 0 else []


def layout_faults(diff: list[str]) -> list[str]:
    """The first line of each place that ruff would lay out otherwise, from its diff."""
    found, path = [], ""
    for line in diff:
        if line.startswith("--- "):
            path = line[4:].split("\t")[0]
        elif match := re.match(r"@@ -(\d+)", line):
            found.append(f"{path}:{match[1]}: `ruff format` lays this place out otherwise")
    return found


def type_faults(lines: list[str]) -> list[str]:
    """mypy's lines without its commands and sums."""
    return [line for line in lines if re.match(r"\S+:\d+: error: ", line)]
