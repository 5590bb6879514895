"""The measured cells as markdown: ratios and floors beside the times, misses marked."""

from collections.abc import Sequence

from scripts.bench import targets
from scripts.bench.results import Cell

MISS = "**miss**"
WAYS = {
    "warm": "Warm: a chain in one graph, on the same tensors each time",
    "cold": "Cold: a chain in one graph, on other tensors each time, the caches flushed before",
    "replay": "A graph of one call, replayed",
    "eager": "Without a graph, from Python: host and GPU overlapped",
}
_HEAD = (
    *("shape", "context", "T", "unfused", "AITER", "ours", "spread", "over unfused", "over AITER"),
    *("load", "over load", "move", "over move", "target", ""),
)


def markdown(cells: Sequence[Cell]) -> str:
    """The tables of one device's cells."""
    device = cells[0].device
    dates = sorted({cell.date[:10] for cell in cells})
    versions: dict[str, set[str]] = {}
    for cell in cells:
        for what, version in cell.versions.items():
            versions.setdefault(what, set()).add(version)
    said = ", ".join(f"{what} {' and '.join(sorted(found))}" for what, found in versions.items())
    lines = [
        f"# {device}",
        "",
        f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}; {said}. Made by `make bench`. bf16, "
        "block 16, packed HND cache; medians in microseconds; spread: from the 10th to the 90th "
        "percentile of ours, in percent of the median.",
        "",
        "Floors: `load` is a kernel of one load of the position, one dependent load of cos and sin "
        "and one store; `move` one that only moves the same bytes of activations; `over` them: our "
        "time divided by theirs. A target is met by its ratios or by its multiple of the floor. "
        "AITER's kernel on PyPI has no norm: (x) is our speed-up over unfused divided by AITER's "
        "in August 2026, AITER not rerun.",
    ]
    for way, title in WAYS.items():
        rows = [_row(cell, way) for cell in cells if cell.time(way, "ours") is not None]
        if rows:
            lines += ["", f"## {title}", "", _summary(cells, way), ""]
            lines += [_line(_HEAD), _line(["---"] * len(_HEAD)), *map(_line, rows)]
    return "\n".join([*lines, *_defaults(cells)]) + "\n"


def _defaults(cells: Sequence[Cell]) -> list[str]:
    """What fusing by default changes in steps that are too large to be fused."""
    head = ("shape", "context", "T", "without", "with", "without / with", "ours")
    rows = []
    for cell in cells:
        without, with_them = cell.time("warm", "unfused"), cell.time("warm", "defaults")
        if without is not None and with_them is not None:
            ours = cell.time("warm", "ours")
            times = (_time(without), _time(with_them), _ratio(without, with_them), _time(ours))
            rows.append((cell.shape, str(cell.context), str(cell.tokens), *times))
    if not rows:
        return []
    return [
        *("", "## What the fusions cost in a step too large for their passes", ""),
        "Warm. Without them: `unfused`. With them Inductor's kernels for the norm, vLLM's rotary "
        "kernel in place, the cache writer. Ours, for comparison.",
        *("", _line(head), _line(["---"] * len(head)), *map(_line, rows)),
    ]


def _summary(cells: Sequence[Cell], way: str) -> str:
    """One line: how many cells meet their target."""
    judged = [met for cell in cells if (met := targets.meets(cell, way)) is not None]
    if way not in ("warm", "cold") or not judged:
        return "No targets."
    return f"{sum(judged)} of {len(judged)} cells with a target meet it."


def _row(cell: Cell, way: str) -> list[str]:
    ours = cell.time(way, "ours")
    assert ours is not None
    unfused, load, move = (cell.time(way, name) for name in ("unfused", "load", "move"))
    spread = cell.timings[way]["ours"]
    ratio, same_run = targets.over_aiter(cell, way)
    met = targets.meets(cell, way) if way in ("warm", "cold") else None
    return [
        cell.shape,
        str(cell.context),
        str(cell.tokens),
        _time(unfused),
        _time(cell.time(way, "aiter")),
        _time(ours),
        f"{100 * (spread['high'] - spread['low']) / ours:.0f} %",
        _ratio(unfused, ours),
        "" if ratio is None else f"{ratio:.2f}" if same_run else f"({ratio:.2f})",
        _time(load),
        _ratio(ours, load),
        _time(move),
        _ratio(ours, move),
        "" if met is None else str(targets.target_of(cell.shape, cell.tokens)),
        "" if met is None else "met" if met else MISS,
    ]


def _time(time: float | None) -> str:
    return "" if time is None else f"{time:.2f}"


def _ratio(time: float | None, other: float | None) -> str:
    return "" if time is None or other is None else f"{time / other:.2f}"


def _line(fields: Sequence[str]) -> str:
    return "| " + " | ".join(fields) + " |"
