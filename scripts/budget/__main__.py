"""Prints what the gfx11 code costs and ends with 1 where that is over the budget: `make budget`.

    python -m scripts.budget [--architecture gfx1151] [--no-compile-time]

Every kernel of one architecture in a table, the others in a line each. The compile time is of one
more compilation, in processor time.
"""

import argparse
import resource
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scripts import errors, op
from scripts.budget import assembly, chain
from scripts.budget.limits import Measured, max_vgprs, over
from scripts.errors import Fault
from scripts.pin import load_pin

_STEM = "rdna35_rope_cache"
_KINDS = ("valu", "salu", "load", "store", "branch", "wait")
_HEAD = (
    "kernel",
    "VGPRs",
    "of",
    "SGPRs",
    "spills",
    "scratch",
    "LDS",
    "round trips",
    *_KINDS,
    "bytes",
)


def measure(build: Path, architecture: str, compile_seconds: float | None = None) -> Measured:
    """Reads the code of an architecture from a build of the op library."""
    folder = build / architecture
    kernels = assembly.read(folder / f"{_STEM}.s")
    return Measured(
        architecture,
        kernels,
        [chain.round_trips(kernel) for kernel in kernels],
        (folder / f"{_STEM}.hsaco").stat().st_size,
        compile_seconds,
    )


def compile_seconds(build: Path, architecture: str) -> float:
    """Processor time of compiling an architecture's code again, elsewhere, as the build does."""
    target = f"{architecture}/{_STEM}.hsaco"
    ninja = [op.tool("ninja"), "-C", str(build), "-t", "commands", "-s", target]
    listed = subprocess.run(ninja, capture_output=True, text=True)
    if listed.returncode != 0 or str(build) not in listed.stdout:
        raise Fault(f"{build} cannot say how {target} is made: {listed.stderr.strip()}")
    command = listed.stdout.splitlines()[-1]
    with tempfile.TemporaryDirectory() as elsewhere:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            command.replace(str(build), elsewhere), shell=True, capture_output=True, text=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        made = Path(elsewhere) / target
        if done.returncode != 0 or made.read_bytes() != (build / target).read_bytes():
            raise Fault(f"compiling {target} again does not give the same: {done.stderr.strip()}")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def table(measured: Measured) -> str:
    """One line a kernel."""
    rows = []
    for kernel, trips in zip(measured.kernels, measured.round_trips, strict=True):
        counts = kernel.counts()
        numbers = (
            kernel.vgprs,
            max_vgprs(kernel.head_dim),
            kernel.sgprs,
            kernel.vgpr_spills + kernel.sgpr_spills,
            kernel.scratch_bytes,
            kernel.lds_bytes,
            trips,
            *(counts[kind] for kind in _KINDS),
            kernel.code_bytes,
        )
        rows.append((kernel.name.removeprefix(f"{_STEM}_"), *map(str, numbers)))
    widths = [max(len(row[i]) for row in (_HEAD, *rows)) for i in range(len(_HEAD))]
    return "\n".join(_aligned(row, widths) for row in (_HEAD, *rows))


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    first = row[0].ljust(widths[0])
    return "  ".join(
        [first, *(field.rjust(n) for field, n in zip(row[1:], widths[1:], strict=True))]
    )


def summary(measured: Measured) -> str:
    """The whole code object in one line."""
    vgprs = max(kernel.vgprs for kernel in measured.kernels)
    seconds = measured.compile_seconds
    return (
        f"{measured.architecture}: {len(measured.kernels)} kernels, {measured.object_bytes} bytes, "
        f"at most {vgprs} VGPRs and {max(measured.round_trips)} round trips"
        + ("" if seconds is None else f", compiled in {seconds:.1f} s")
    )


def main() -> None:
    """Builds what is not built, measures, prints, judges."""
    architectures = load_pin().architectures
    parser = argparse.ArgumentParser(prog="budget", description="What the gfx11 code costs.")
    parser.add_argument("--architecture", default="gfx1151", choices=architectures)
    parser.add_argument("--no-compile-time", action="store_true", help="compile nothing again")
    arguments = parser.parse_args()
    build = op.build().parent
    too_much: list[str] = []
    for architecture in architectures:
        in_full = architecture == arguments.architecture
        seconds = None
        if in_full and not arguments.no_compile_time:
            seconds = compile_seconds(build, architecture)
        measured = measure(build, architecture, seconds)
        if in_full:
            print(table(measured))
        print(summary(measured))
        too_much += over(measured)
    for line in too_much:
        print(f"over: {line}")
    if too_much:
        raise Fault(f"{len(too_much)} over the budget, see above")


if __name__ == "__main__":
    errors.run("budget", main)
