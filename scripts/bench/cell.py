"""One cell of the tables: every variant on one shape, T and context, in one process."""

import dataclasses
from collections.abc import Sequence

import torch

from scripts.bench import gpu, timing
from scripts.bench.inputs import Inputs, make_sets, set_bytes
from scripts.bench.shapes import Shape
from scripts.bench.timing import Timing
from scripts.bench.variants import OURS, Variant

# Long enough that the start of a graph, some microseconds, is a hundredth of it.
_FEWEST_CALLS, _MOST_CALLS = 32, 512
_CHAIN_SECONDS = 800e-6  # about, for what moves many bytes
_BYTES_PER_SECOND = 2e12
_SETS_BYTES = 3 << 30

# name of the way of timing -> name of the variant -> time a call
Timings = dict[str, dict[str, dict[str, float]]]


def measure(
    shape: Shape, tokens: int, context: int, variants: Sequence[Variant], floors: Sequence[Variant]
) -> Timings:
    """Checks the variants, then times them and the floors: `warm` and `cold` in chains, `replay` as
    graphs of one call, `eager` without graphs. Microseconds a call."""
    moved = sum(shape.bytes_moved(tokens))
    length = int(_CHAIN_SECONDS * _BYTES_PER_SECOND / moved)
    length = min(_MOST_CALLS, max(_FEWEST_CALLS, length))
    count = max(2, min(length, _SETS_BYTES // set_bytes(shape, tokens)))
    sets = make_sets(shape, tokens, context, count, gpu.device())
    variants = [v for v in variants if v.serves(shape, tokens) and _is_right(v, sets)]
    everything = {v.name: v.on(sets) for v in (*variants, *floors)}
    flush = torch.empty(2 * gpu.l2_bytes(), dtype=torch.uint8, device=gpu.device())
    return {
        "warm": _plain(timing.chains(everything, length, 1, None)),
        "cold": _plain(timing.chains(everything, length, count, flush)),
        "replay": _plain(timing.replays(everything)),
        "eager": _plain(timing.eager({v.name: everything[v.name] for v in variants})),
    }


def _is_right(variant: Variant, sets: Sequence[Inputs]) -> bool:
    """Whether the variant's results are right on the first and the last set. Ours must be; one of
    the others that fails, in whatever way, is named and left out."""
    try:
        variant.verify(sets[0])
        variant.verify(sets[-1])
    except Exception as error:
        if variant.name == OURS:
            raise
        reason = str(error).strip().splitlines() or [""]
        print(f"bench: {variant.name} is left out: {type(error).__name__}: {reason[0]}", flush=True)
        return False
    return True


def _plain(timings: dict[str, Timing]) -> dict[str, dict[str, float]]:
    return {
        name: {key: round(value, 3) for key, value in dataclasses.asdict(timing).items()}
        for name, timing in timings.items()
    }
