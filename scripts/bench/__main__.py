"""Measures a part of the tables and merges it into what is there: `make bench`.

    python -m scripts.bench [--shapes 32/8/128,...] [--tokens 1,8,...] [--contexts 128]
                            [--variants ours,unfused,aiter,defaults] [--seconds 420] [--again]
    python -m scripts.bench --merge FILE.json ...

Leaves build/bench/<device>.json, .md and .png. A cell that has been measured with the same library
and versions is not measured again. A run that reaches its time limit ends after the cell in hand,
says what is left, and the next run goes on there. --merge adds the cells of other files instead.
"""

import argparse
import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from scripts import errors, paths
from scripts.bench import plots, results, shapes, tables
from scripts.errors import Fault

FOLDER = paths.BUILD / "bench"
VARIANTS = "ours,unfused,aiter,defaults"


def main() -> None:
    """Reads the arguments, measures or merges, and writes the tables."""
    parser = argparse.ArgumentParser(prog="bench", description="The speed tables.")
    parser.add_argument("--shapes", default="", help="names, or heads alone: 32/8/128")
    parser.add_argument("--tokens", default="", help="values of T")
    parser.add_argument("--contexts", default="", help="tokens before a sequence's own")
    parser.add_argument("--variants", default=VARIANTS, help="beside the floors")
    parser.add_argument("--seconds", type=float, default=420, help="after which no cell is begun")
    parser.add_argument("--again", action="store_true", help="measure what has been measured")
    parser.add_argument("--output", type=Path, default=FOLDER, help="the folder to write")
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="files to add")
    arguments = parser.parse_args()
    merging = arguments.merge
    for path in merge(merging, arguments.output) if merging else [measured(arguments)]:
        report(path)


def measured(arguments: argparse.Namespace) -> Path:
    """Measures what the arguments say; the device's file."""
    cells = itertools.product(
        shapes.choose_shapes(arguments.shapes),
        shapes.choose_numbers("CONTEXTS", arguments.contexts, shapes.CONTEXTS),
        shapes.choose_numbers("T", arguments.tokens, shapes.TOKENS),
    )
    names = arguments.variants.split(",")
    if unknown := set(names) - set(VARIANTS.split(",")):
        raise Fault(f"VARIANTS has {', '.join(sorted(unknown))}; there are {VARIANTS}")
    try:
        from scripts.bench.run import run
    except ModuleNotFoundError as missing:
        raise Fault(f"this Python has no {missing.name}; name one that has with PYTHON=") from None
    return run(list(cells), names, arguments.output, arguments.seconds, again=arguments.again)


def merge(files: Sequence[Path], folder: Path) -> list[Path]:
    """Adds the cells of files to those of the folder, the newer of each kept; the files written."""
    by_device: dict[str, list[results.Cell]] = {}
    for file in files:
        if not file.is_file():
            raise Fault(f"there is no file {file}")
        for cell in results.read(file):
            by_device.setdefault(cell.device, []).append(cell)
    written = []
    for device, cells in by_device.items():
        path = results.file_of(folder, device)
        results.write(path, [*results.read(path), *cells])
        written.append(path)
    return written


def report(path: Path) -> None:
    """Writes the tables and the pictures of a device's file beside it."""
    cells = results.read(path)
    if not cells:
        return
    table = path.with_suffix(".md")
    new = table.with_suffix(f".{os.getpid()}.new")
    new.write_text(tables.markdown(cells), encoding="utf-8")
    new.replace(table)
    pictures = plots.draw(cells, path.with_suffix(""))
    for written in (path, table, *pictures):
        print(f"bench: {written}")
    if not pictures:
        print("bench: no pictures: this Python has no matplotlib, or there is nothing to draw")


if __name__ == "__main__":
    errors.run("bench", main)
