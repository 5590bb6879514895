"""The host build under AddressSanitizer and UndefinedBehaviorSanitizer.

The library is built once more, instrumented; tests of this folder then run in a
process that has the sanitizers' runtimes loaded first. torch's CPU allocator is
malloc, so each tensor's allocation has red zones at its very ends.
"""

import os
import pathlib
import subprocess
import sys

import pytest

from scripts import op as op_build
from scripts import paths
from tests.kernel import op

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(op.device().type != "cpu", reason="the host build is the CPU's"),
]

# Broad, and without what makes its reach by size alone.
TESTS = ("test_memory.py", "test_special_values.py", "test_errors.py", "test_fuzz.py")
LEFT_OUT = "not 16_bits and not 32_bits and not largest_slots"
FUZZ_EXAMPLES = 300

# q's memory ends 64 bytes before q does.
OVERRUN = """
import ctypes, torch
from tests.kernel import op
from tests.kernel.op import Arguments

shape = (3, 2, 64)
size = 2 * 3 * 2 * 64
held = ctypes.create_string_buffer(size - 64 if {overrun} else size)
lying = (ctypes.c_char * size).from_address(ctypes.addressof(held))
q = torch.frombuffer(lying, dtype=torch.bfloat16).view(shape)
op.run(Arguments(positions=torch.zeros(3, dtype=torch.int64), q=q))
print("finished")
"""


@pytest.fixture(scope="module")
def library() -> pathlib.Path:
    """The instrumented library; one architecture's code is enough to embed."""
    return op_build.build(["gfx1151"], sanitize=True)


def runtime(name: str) -> str:
    """Path of a sanitizer's runtime, of the compiler that builds the library."""
    compiler = os.environ.get("CXX", "c++")
    found = subprocess.run(
        [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert pathlib.Path(found).is_absolute(), f"{compiler} has no {name}"
    return found


def run_instrumented(library: pathlib.Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with the instrumented library and nothing allocated but by malloc."""
    environment = os.environ | {
        "LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libubsan.so')}",
        # CPython and torch keep memory for ever: leaks are not what is looked for.
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONMALLOC": "malloc",
        "RDNA35_TEST_LIBRARY": str(library),
        "RDNA35_TEST_GUARD": "0",
        "RDNA35_FUZZ_EXAMPLES": str(FUZZ_EXAMPLES),
    }
    return subprocess.run(
        [sys.executable, *command],
        cwd=paths.ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )


def test_library_is_instrumented(library: pathlib.Path) -> None:
    symbols = library.read_bytes()
    assert b"__asan_report_store" in symbols
    assert b"__ubsan_handle_" in symbols


def test_an_overrun_is_found(library: pathlib.Path) -> None:
    """The control: the run below could fail."""
    sound = run_instrumented(library, "-c", OVERRUN.format(overrun=False))
    assert sound.returncode == 0, sound.stderr
    assert "finished" in sound.stdout
    overrun = run_instrumented(library, "-c", OVERRUN.format(overrun=True))
    assert overrun.returncode != 0
    assert "finished" not in overrun.stdout
    assert "AddressSanitizer: heap-buffer-overflow" in overrun.stderr
    assert "rdna35::RopeCache<" in overrun.stderr


def test_nothing_is_found_in_the_op(library: pathlib.Path) -> None:
    tests = [f"tests/kernel/{name}" for name in TESTS]
    run = run_instrumented(library, "-m", "pytest", "-q", "-k", LEFT_OUT, *tests)
    report = run.stdout[-4000:] + run.stderr[-8000:]
    assert run.returncode == 0, report
    assert "Sanitizer" not in run.stderr, report
    assert "runtime error" not in run.stderr, report
