"""Builds the op for the GPU that torch finds and runs the tests on it: `make test-gpu`.

    python -m scripts.gpu_tests [pytest's arguments]

The kernel tests run as on the CPU, on the GPU's tensors; tests/gpu has what a GPU alone can show.
Leaves build/test-gpu/report.json and report.md; the last line is pytest's.
"""

import datetime
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts import gpu_report, op, paths
from scripts.errors import Fault, run
from scripts.pin import load_pin

# What of tests/kernel is about the op; the rest is about its library's file and its builds.
OF_THE_OP = "errors families fuzz memory native reference schema special_values"
TESTS = (*(f"tests/kernel/test_{name}.py" for name in OF_THE_OP.split()), "tests/gpu")
# Fewer than on the CPU, where an example costs less.
FUZZ_EXAMPLES = "1000"


def architecture() -> str:
    """Of the current GPU, as code objects are named: gfx1151, sm_90.

    Fault where torch finds no GPU, or one for which the op has no code.
    """
    import torch

    if not torch.cuda.is_available():
        raise Fault(
            f"torch {torch.__version__} finds no GPU; name an interpreter whose torch does: "
            "`make test-gpu PYTHON=<interpreter>`"
        )
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    if torch.version.hip:
        found = properties.gcnArchName.split(":")[0]
    else:
        found = f"sm_{properties.major}{properties.minor}"
    built = (*load_pin().architectures, "sm_90")
    if found not in built:
        raise Fault(f"the GPU is a {found}; the op is built for {', '.join(built)}")
    return found


def device_name() -> str:
    """Of the current GPU, in its maker's words."""
    import torch

    return torch.cuda.get_device_name()


def run_pytest(library: Path, junit: Path, arguments: Sequence[str]) -> tuple[int, str]:
    """Runs the tests, showing what they print but for the last line; status and that line."""
    env = {"RDNA35_FUZZ_EXAMPLES": FUZZ_EXAMPLES} | os.environ
    env |= {"RDNA35_TEST_DEVICE": "cuda", "RDNA35_TEST_LIBRARY": str(library)}
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={junit}", *arguments]
    last = ""
    with subprocess.Popen(
        [*command, *TESTS], cwd=paths.ROOT, env=env, stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout is not None
        for line in tests.stdout:
            print(last, end="", flush=True)
            last = line
    return tests.returncode, last


def main() -> None:
    """Builds, tests, reports, and fails as pytest does."""
    found = architecture()
    library = op.build() if found in load_pin().architectures else op.build((found,))
    print(f"test-gpu: {found}, {library.relative_to(paths.ROOT)}", flush=True)
    gpu_report.FOLDER.mkdir(parents=True, exist_ok=True)
    junit = gpu_report.FOLDER / "junit.xml"
    junit.unlink(missing_ok=True)
    started = datetime.datetime.now(datetime.UTC)
    status, last_line = run_pytest(library, junit, sys.argv[1:])
    if junit.exists():
        report = {
            "device": device_name(),
            "architecture": found,
            "date": started.strftime("%Y-%m-%d %H:%M UTC"),
            "seconds": (datetime.datetime.now(datetime.UTC) - started).total_seconds(),
            "versions": gpu_report.versions(),
            **gpu_report.read_junit(junit),
        }
        print(f"test-gpu: {gpu_report.write(report).relative_to(paths.ROOT)}", flush=True)
    print(last_line, end="", flush=True)
    sys.exit(status)


if __name__ == "__main__":
    run("test-gpu", main)
