"""Measures cells on the GPU found and adds them to its file."""

import datetime
import hashlib
import platform
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from scripts import op, paths
from scripts.bench import (
    aiter,
    defaults,
    gpu,
    results,
    sources,
    unfused,
    variants,
    vllm_modules,
)
from scripts.bench.cell import measure
from scripts.bench.results import Cell
from scripts.bench.shapes import Shape

VARIANTS = ("ours", "unfused", "aiter", "defaults")

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
        needed = set(names)
        if not aiter.serves(shape):
            needed -= {"aiter"}
        if not defaults.serves(shape, tokens):
            needed -= {defaults.NAME}
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
    if "unfused" in names or defaults.NAME in names:
        if folder := sources.vllm_folder():
            modules = vllm_modules.load(folder)
            made += [unfused.unfused(modules)] if "unfused" in names else []
            made += [defaults.defaults(folder, modules)] if defaults.NAME in names else []
        else:
            _left_out("unfused and defaults")
    if "aiter" in names:
        if folder := sources.aiter_folder():
            made.append(aiter.aiter(folder))
        else:
            _left_out("aiter")
    return made


def _left_out(what: str) -> None:
    print(
        f"bench: left out: {what}; run `python -m scripts.bench.sources` where there is a network, "
        f"and bring {sources.FOLDER.relative_to(paths.ROOT)} along"
    )


def _line(cell: Cell) -> str:
    """A cell in one line: warm/cold us of each variant."""
    fields = [f"{cell.shape:19} ctx={cell.context:<5} T={cell.tokens:<5}"]
    for name in (*VARIANTS, "empty", "load", "move"):
        warm, cold = cell.time("warm", name), cell.time("cold", name)
        if warm is not None and cold is not None:
            fields.append(f"{name} {warm:.2f}/{cold:.2f}")
    return "  ".join(fields)
