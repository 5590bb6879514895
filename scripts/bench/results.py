"""Measured cells: one JSON file a device, to which every run adds."""

import dataclasses
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scripts.bench.shapes import SHAPES
from scripts.errors import Fault

FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Cell:
    """The times of one shape, T and context, all from one process.

    timings: way of timing (warm, cold, replay, eager) -> variant -> median, low and high in us.
    versions: of what was measured and what measured it. date: ISO 8601, UTC.
    """

    shape: str
    tokens: int
    context: int
    device: str
    date: str
    versions: dict[str, str]
    timings: dict[str, dict[str, dict[str, float]]]

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What a cell of the tables is: a newer one replaces it."""
        return (self.device, self.shape, self.tokens, self.context)

    def time(self, way: str, variant: str) -> float | None:
        """Median us of a variant; of `move`, the fastest of its launches; None if not measured."""
        found = [
            timing["median"]
            for name, timing in self.timings.get(way, {}).items()
            if name == variant or name.startswith(f"{variant}-")
        ]
        return min(found) if found else None


def file_of(folder: Path, device: str) -> Path:
    """Where a device's cells are: nvidia-h200.json."""
    return folder / (re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") + ".json")


def read(path: Path) -> list[Cell]:
    """The cells of a file; none where there is no file. Fault for anything else."""
    if not path.exists():
        return []
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']}, this reads {FORMAT}")
        return [Cell(**cell) for cell in content["cells"]]
    except (ValueError, KeyError, TypeError) as error:
        raise Fault(f"{path} is not a file of `make bench` ({error}); remove it") from error


def merge(cells: Iterable[Cell]) -> list[Cell]:
    """Of each cell the newest, in the tables' order."""
    newest: dict[tuple[str, str, int, int], Cell] = {}
    for cell in cells:
        if cell.key not in newest or newest[cell.key].date <= cell.date:
            newest[cell.key] = cell
    return sorted(newest.values(), key=_order)


def _order(cell: Cell) -> tuple[str, int, str, int, int]:
    names = [shape.name for shape in SHAPES]
    place = names.index(cell.shape) if cell.shape in names else len(names)
    return (cell.device, place, cell.shape, cell.context, cell.tokens)


def write(path: Path, cells: Iterable[Cell]) -> None:
    """Replaces the file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"format": FORMAT, "cells": [dataclasses.asdict(cell) for cell in merge(cells)]}
    new = path.with_suffix(f".{os.getpid()}.new")
    new.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    new.replace(path)
