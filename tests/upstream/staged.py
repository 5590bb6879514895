"""Runs the tests that go upstream as they are, with vLLM's pytest on a simulated ROCm machine."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulation.host import Machine, environment

from scripts.gpu_report import read_junit

PLUGIN = Path(__file__).with_name("simulated_rocm.py")


@dataclass(frozen=True)
class Run:
    """pytest's status, what it printed, its counts, and its report as XML."""

    status: int
    output: str
    counts: dict[str, Any]
    junit: str


def run(files: Sequence[Path], tree: Path, op_library: Path, arch: str = "gfx1151") -> Run:
    """Runs test files on vLLM's `tree`; the machine's GPU is an `arch`, its device the CPU."""
    with tempfile.TemporaryDirectory(prefix="staged-") as name:
        home = Path(name)
        junit = home / "junit.xml"
        env = environment(Machine(arch), tree, home)
        env["PYTHONPATH"] += f":{PLUGIN.parent}"
        env |= {"STAGED_TREE": str(tree), "STAGED_OP": str(op_library)}
        # vLLM's conftest brings in what these tests do not need and this environment lacks.
        command = [sys.executable, "-m", "pytest", "-q", "--noconftest", "--import-mode=importlib"]
        command += ["-p", PLUGIN.stem, "-p", "no:cacheprovider", f"--junitxml={junit}"]
        command += [f"--rootdir={home}", "-c", "/dev/null", *map(str, files)]
        done = subprocess.run(
            command, cwd=home, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        text = junit.read_text() if junit.exists() else ""
        return Run(done.returncode, done.stdout, read_junit(junit) if text else {}, text)
