"""The op under NVIDIA's compute-sanitizer.

A tool is believed only after it has found a fault planted for it: machines may
refuse it, and then the result is "not run" with the machine's message.
"""

import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from scripts import paths
from tests.kernel import op

pytestmark = pytest.mark.skipif(op.device().type != "cuda", reason="needs a GPU")

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
FOUND = 86  # our exit status for "the tool has found something"
CLEAN = ("ERROR SUMMARY: 0 errors", "RACECHECK SUMMARY: 0 hazards displayed")
Record = Callable[[str, object], None]


def program(name: str) -> str | None:
    """A program of the CUDA toolkit."""
    return shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")


def watched(tool: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command under a tool, each tensor in an allocation of its own."""
    sanitizer = program("compute-sanitizer")
    assert sanitizer is not None
    environment = os.environ | {
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
        "RDNA35_TEST_GUARD": "0",
        "RDNA35_TEST_DEVICE": "cuda",
        "RDNA35_TEST_LIBRARY": str(op.library()),
    }
    try:
        return subprocess.run(
            [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), *command],
            cwd=paths.ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
        )
    except subprocess.TimeoutExpired as expired:
        pytest.fail(f"compute-sanitizer {tool} took more than {expired.timeout:.0f} s")


@pytest.fixture(scope="module")
def planted_faults(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The program with a fault for each tool."""
    nvcc = program("nvcc")
    if nvcc is None or program("compute-sanitizer") is None:
        pytest.skip("not run: there is no nvcc or no compute-sanitizer here")
    output = tmp_path_factory.mktemp("faults") / "planted_faults"
    source = paths.ROOT / "tests" / "gpu" / "planted_faults.cu"
    subprocess.run([nvcc, "-arch=native", str(source), "-o", str(output)], check=True)
    return output


@pytest.mark.parametrize("tool", TOOLS)
def test_tool_finds_nothing(
    tool: str, planted_faults: pathlib.Path, record_property: Record
) -> None:
    probe = watched(tool, str(planted_faults), tool)
    if probe.returncode != FOUND:
        words = " / ".join(probe.stdout.strip().splitlines()[-6:])
        pytest.skip(f"not run: {tool} does not find a planted fault here: {words}")
    run = watched(tool, sys.executable, "-m", "tests.gpu.sanitizer_driver")
    assert "launches: " in run.stdout, run.stdout[-4000:]
    assert any(line in run.stdout for line in CLEAN), run.stdout[-4000:]
    assert run.returncode == 0, run.stdout[-4000:]
    record_property("compute-sanitizer", f"{tool}: clean")
