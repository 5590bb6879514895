"""Measures a part of the tables and merges it into what is there: `make bench`.

    python -m scripts.bench [--shapes 32/8/128,...] [--tokens 1,8,...] [--contexts 128]
                            [--variants ours,unfused,aiter] [--seconds 420] [--again]

Leaves build/bench/<device>.json, .md and .png. A cell that has been measured with the same library
and versions is not measured again. A run that reaches its time limit ends after the cell in hand,
says what is left, and the next run goes on there.
"""

import argparse
import datetime
import hashlib
import itertools
import platform
import time
from pathlib import Path

from scripts import errors, paths
from scripts.bench import results, shapes
from scripts.errors import Fault

FOLDER = paths.BUILD / "bench"
VARIANTS = ("ours", "unfused", "aiter")


def main() -> None:
    """Reads the arguments, measures, writes."""
    parser = argparse.ArgumentParser(prog="bench", description="The speed tables.")
    parser.add_argument("--shapes", default="", help="names, or heads alone: 32/8/128")
    parser.add_argument("--tokens", default="", help="values of T")
    parser.add_argument("--contexts", default="", help="tokens before a sequence's own")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="beside the floors")
    parser.add_argument("--seconds", type=float, default=420, help="after which no cell is begun")
    parser.add_argument("--again", action="store_true", help="measure what has been measured")
    parser.add_argument("--output", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    cells = list(
        itertools.product(
            shapes.choose_shapes(arguments.shapes),
            shapes.choose_numbers("CONTEXTS", arguments.contexts, shapes.CONTEXTS),
            shapes.choose_numbers("T", arguments.tokens, shapes.TOKENS),
        )
    )
    wanted = tuple(arguments.variants.split(","))
    if unknown := set(wanted) - set(VARIANTS):
        raise Fault(f"VARIANTS has {', '.join(sorted(unknown))}; there are {', '.join(VARIANTS)}")
    measure(cells, wanted, arguments.output, arguments.seconds, again=arguments.again)


def measure(
    cells: list[tuple[shapes.Shape, int, int]],
    wanted: tuple[str, ...],
    folder: Path,
    seconds: float,
    *,
    again: bool,
) -> None:
    """Measures the (shape, context, T) given, for at most about so many seconds."""
    try:
        import torch

        from scripts.bench import cell as one
        from scripts.bench import gpu, variants
    except ModuleNotFoundError as missing:
        raise Fault(f"this Python has no {missing.name}; name one that has with PYTHON=") from None
    from scripts import op

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
    done = {c.key: c for c in results.read(path)}
    left = [
        (shape, context, tokens)
        for shape, context, tokens in cells
        if again or not _is_done(done.get((device, shape.name, tokens, context)), versions, wanted)
    ]
    print(f"bench: {device}, {len(left)} of {len(cells)} cells to measure", flush=True)
    made = [variants.ours(library)] if "ours" in wanted else []
    floors = variants.floors()
    for number, (shape, context, tokens) in enumerate(left):
        if time.monotonic() - begun > seconds:
            print(f"bench: time is up, {len(left) - number} cells left; run it again to go on")
            break
        timings = one.measure(shape, tokens, context, made, floors)
        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        new = results.Cell(shape.name, tokens, context, device, date, versions, timings)
        done[new.key] = new
        results.write(path, done.values())
        print(_line(new), flush=True)


def _is_done(cell: results.Cell | None, versions: dict[str, str], wanted: tuple[str, ...]) -> bool:
    return (
        cell is not None
        and cell.versions == versions
        and all(name in cell.timings["warm"] for name in wanted)
    )


def _line(cell: results.Cell) -> str:
    """A cell in one line: warm / cold us of each variant."""
    fields = [f"{cell.shape:16} T={cell.tokens:<5} ctx={cell.context:<5}"]
    for name in (*VARIANTS, "empty", "load", "move"):
        warm, cold = cell.time("warm", name), cell.time("cold", name)
        if warm is not None and cold is not None:
            fields.append(f"{name} {warm:.2f}/{cold:.2f}")
    return "  ".join(fields)


if __name__ == "__main__":
    errors.run("bench", main)
