"""The measured cells as pictures: the speed-up by T, and the time beside the floors."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.bench.results import Cell

CONTEXT = 128  # of which the pictures are


def draw(cells: Sequence[Cell], stem: Path) -> list[Path]:
    """Writes <stem>-speedup.png and <stem>-floor.png, from warm chains; returns what it wrote.

    Nothing where matplotlib is missing, or no cell has the variants.
    """
    try:
        import matplotlib
    except ModuleNotFoundError:
        return []
    matplotlib.use("agg")
    by_shape: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.context == CONTEXT and cell.time("warm", "ours"):
            by_shape.setdefault(cell.shape, []).append(cell)
    for row in by_shape.values():
        row.sort(key=lambda cell: cell.tokens)
    return [path for path in (_speedup(by_shape, stem), _floors(by_shape, stem)) if path]


def _speedup(by_shape: dict[str, list[Cell]], stem: Path) -> Path | None:
    """One line a shape: how many times faster than the unfused kernels."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5.5), layout="constrained")
    drawn = False
    for number, (shape, row) in enumerate(by_shape.items()):
        points = [
            (cell.tokens, unfused / ours)
            for cell in row
            if (unfused := cell.time("warm", "unfused")) and (ours := cell.time("warm", "ours"))
        ]
        if points:
            drawn = True
            style = "--" if shape.endswith("+rope") else "-"
            x, y = zip(*points, strict=True)
            axes.plot(x, y, style, marker="o", label=shape, color=f"C{number // 2}")
    if not drawn:
        pyplot.close(figure)
        return None
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set_xscale("log", base=2)
    _powers_of_two(axes.xaxis)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("T (tokens in the step)")
    axes.set_ylabel("times faster than unfused")
    axes.set_title(f"rdna35_rope_cache against vLLM's unfused kernels, {_device(by_shape)}")
    axes.legend(ncols=2, fontsize="small")
    return _save(figure, stem.with_name(f"{stem.name}-speedup.png"))


def _floors(by_shape: dict[str, list[Cell]], stem: Path) -> Path | None:
    """A panel a shape: unfused, AITER, ours and the floors, us by T."""
    from matplotlib import pyplot

    if not by_shape:
        return None
    columns = min(3, len(by_shape))
    rows = -(-len(by_shape) // columns)
    figure, grid = pyplot.subplots(
        rows, columns, figsize=(4 * columns, 3 * rows), squeeze=False, layout="constrained"
    )
    lines = {
        "unfused": ("C0", "o-"),
        "aiter": ("C1", "o-"),
        "ours": ("C3", "o-"),
        "load": ("black", "--"),
        "move": ("black", ":"),
        "empty": ("grey", "-"),
    }
    for axes in grid.flat[len(by_shape) :]:
        axes.set_axis_off()
    for axes, (shape, row) in zip(grid.flat, by_shape.items(), strict=False):
        for name, (color, style) in lines.items():
            points = [(c.tokens, time) for c in row if (time := c.time("warm", name)) is not None]
            if points:
                x, y = zip(*points, strict=True)
                axes.plot(x, y, style, color=color, markersize=3, label=name)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        _powers_of_two(axes.xaxis)
        _powers_of_two(axes.yaxis)
        axes.set_title(shape, fontsize="medium")
    grid[0][0].legend(fontsize="small")
    figure.supxlabel("T (tokens in the step)")
    figure.supylabel("us")
    figure.suptitle(f"Time beside the floors, {_device(by_shape)}")
    return _save(figure, stem.with_name(f"{stem.name}-floor.png"))


def _device(by_shape: dict[str, list[Cell]]) -> str:
    cells = [cell for row in by_shape.values() for cell in row]
    return f"{cells[0].device}, {max(cell.date[:10] for cell in cells)}"


def _powers_of_two(axis: Any) -> None:
    """Whole numbers on a logarithmic axis."""
    from matplotlib.ticker import LogLocator

    axis.set_major_locator(LogLocator(base=2))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(lambda value, _: "")


def _save(figure: Any, path: Path) -> Path:
    from matplotlib import pyplot

    new = path.with_suffix(".new")
    figure.savefig(new, format="png", dpi=120)
    new.replace(path)
    pyplot.close(figure)
    return path
