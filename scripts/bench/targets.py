"""The targets of the H200's tables, and whether a cell meets them."""

import dataclasses

from scripts.bench.results import Cell

DEVICE = "NVIDIA H200"

# With the norm, AITER's kernel is not on PyPI: its times of August 2026, us, beside those of the
# unfused kernels of the same run. (shape, T) -> (unfused, aiter)
AITER_NOT_RERUN = {
    ("32/8/128+norm", 1): (4.02, 2.60),
    ("32/8/128+norm", 8): (4.28, 2.78),
    ("32/8/128+norm", 32): (4.23, 3.13),
    ("14/2/64+norm", 1): (3.75, 2.24),
    ("14/2/64+norm", 8): (3.94, 2.38),
    ("14/2/64+norm", 32): (4.11, 2.42),
    ("8/1/256+norm", 1): (3.96, 2.69),
    ("8/1/256+norm", 8): (4.00, 2.82),
    ("8/1/256+norm", 32): (4.36, 2.92),
    ("16/2/512+norm", 1): (4.04, 3.12),
    ("16/2/512+norm", 8): (4.27, 3.30),
    ("16/2/512+norm", 32): (4.61, 4.21),
    ("32/32/128+norm", 1): (4.15, 2.66),
    ("32/32/128+norm", 8): (4.78, 2.84),
    ("32/32/128+norm", 32): (4.94, 3.66),
}


@dataclasses.dataclass(frozen=True)
class Target:
    """What a cell has to reach: all of the ratios, or the multiple of its floor if there is one.

    over_unfused, over_aiter: how many times faster at least. over_floor: times the floor at most.
    never_slower: than unfused, whatever the floor says.
    """

    over_unfused: float | None = None
    over_aiter: float | None = None
    floor: str = "load"
    over_floor: float = 0.0
    never_slower: bool = False

    def __str__(self) -> str:
        if self.never_slower:
            return f"{self.over_floor:.2f} {self.floor} and 1x unfused"
        aiter = f", {self.over_aiter}x AITER" if self.over_aiter else ""
        floor = f", or {self.over_floor} {self.floor}" if self.over_floor else ""
        return f"{self.over_unfused}x unfused{aiter}{floor}"


def target_of(shape: str, tokens: int) -> Target | None:
    """The target of a shape at T; None where there is none."""
    if shape.endswith("+pairs"):
        return Target(over_unfused=1.5) if tokens in (1, 8, 32) else None
    if shape.endswith(("+mrope", "+fp8")):
        return Target(over_unfused=1.5) if tokens <= 32 else None
    normed = not shape.endswith("+rope")
    if tokens in (1, 8, 32):
        multiple = 1.2 if tokens == 1 else 1.3
        if normed:
            return Target(2.5, 1.5, "load", round(multiple + 0.1, 1))
        return Target(1.9, 1.4, "load", multiple)
    if tokens == 256:
        return Target(over_unfused=1.75, floor="move", over_floor=1.3)
    if tokens >= 2048:
        return Target(floor="move", over_floor=1 / 0.85, never_slower=True)
    return None


def over_aiter(cell: Cell, way: str) -> tuple[float | None, bool]:
    """How many times faster than AITER, and whether that is from the same run: with the norm it is
    our speed-up over unfused divided by the unfused one's over AITER in the table above."""
    ours, aiter = cell.time(way, "ours"), cell.time(way, "aiter")
    if ours and aiter:
        return aiter / ours, True
    unfused = cell.time(way, "unfused")
    known = AITER_NOT_RERUN.get((cell.shape, cell.tokens))
    if ours and unfused and known:
        return (unfused / ours) / (known[0] / known[1]), False
    return None, False


def meets(cell: Cell, way: str) -> bool | None:
    """Whether a cell meets its target; None where it has none or lacks what that compares."""
    target = target_of(cell.shape, cell.tokens)
    ours = cell.time(way, "ours")
    floor = cell.time(way, target.floor) if target else None
    unfused = cell.time(way, "unfused")
    if target is None or ours is None or floor is None:
        return None
    if target.never_slower:
        if unfused is None:
            return None
        return ours <= unfused and ours <= target.over_floor * floor
    if ours <= target.over_floor * floor:
        return True
    if unfused is None:
        return None
    ratio, _ = over_aiter(cell, way)
    by_aiter = target.over_aiter is None or ratio is None or ratio >= target.over_aiter
    return target.over_unfused is not None and unfused / ours >= target.over_unfused and by_aiter
