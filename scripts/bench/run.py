"""Measures cells on the GPU found and adds them to its file."""

import datetime
import hashlib
import platform
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from scripts import op, paths
from scripts.bench import aiter, gpu, results, sources, unfused, variants
from scripts.bench.cell import measure
from scripts.bench.results import Cell
from scripts.bench.shapes import Shape

VARIANTS = ("ours", "unfused", "aiter")

Wanted = tuple[Shape, int, int]  # shape, context, T


def run(
    cells: Sequence[Wanted], names: Sequence[str], folder: Path, seconds: float, *, again: bool
) -> Path:
    """Measures the cells that are not done yet, with the variants named and the floors; begins none
    after so many seconds. Returns the device's file in `folder`, written after each cell."""
    begun = time.monotonic()
    device, arch = gpu.name(), gpu.architecture()
    library = op.build((arch,))
    versions = {
        "torch": torch.__version__,
        "Python": platform.python_version(),
        "driver": gpu.driver_version(),
        "op": hashlib.sha256(library.read_bytes()).hexdigest()[:12],
    }
    path = results.file_of(folder, device)
    known = {cell.key: cell for cell in results.read(path)}

    def is_done(wanted: Wanted) -> bool:
        shape, context, tokens = wanted
        cell = known.get((device, shape.name, tokens, context))
        needed = [name for name in names if name != "aiter" or aiter.serves(shape)]
        return (
            cell is not None
            and cell.versions == versions
            and all(name in cell.timings["warm"] for name in needed)
        )

    left = [wanted for wanted in cells if again or not is_done(wanted)]
    print(f"bench: {device}, {len(left)} of {len(cells)} cells to measure", flush=True)
    if not left:
        return path
    made, floors = _make(names, library), variants.floors()
    for number, (shape, context, tokens) in enumerate(left):
        if time.monotonic() - begun > seconds:
            print(f"bench: time is up, {len(left) - number} cells left; run it again to go on")
            break
        timings = measure(shape, tokens, context, made, floors)
        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        cell = Cell(shape.name, tokens, context, device, date, versions, timings)
        known[cell.key] = cell
        results.write(path, known.values())
        print(_line(cell), flush=True)
    return path


def _make(names: Sequence[str], library: Path) -> list[variants.Variant]:
    """The variants named, without those that cannot be had here, which are said."""
    made = [variants.ours(library)] if "ours" in names else []
    for name, collect, make in (
        ("unfused", sources.vllm_folder, unfused.unfused),
        ("aiter", sources.aiter_folder, aiter.aiter),
    ):
        if name not in names:
            continue
        folder = collect()
        if folder is not None:
            made.append(make(folder))
            continue
        print(
            f"bench: {name} is left out; run `python -m scripts.bench.sources` where there is a "
            f"network, and bring {sources.FOLDER.relative_to(paths.ROOT)} along"
        )
    return made


def _line(cell: Cell) -> str:
    """A cell in one line: warm/cold us of each variant."""
    fields = [f"{cell.shape:16} ctx={cell.context:<5} T={cell.tokens:<5}"]
    for name in (*VARIANTS, "empty", "load", "move"):
        warm, cold = cell.time("warm", name), cell.time("cold", name)
        if warm is not None and cold is not None:
            fields.append(f"{name} {warm:.2f}/{cold:.2f}")
    return "  ".join(fields)
