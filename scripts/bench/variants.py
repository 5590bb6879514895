"""What is timed: the op, and the floors below it."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from scripts.bench import check, gpu
from scripts.bench.inputs import EPS, Inputs
from scripts.bench.shapes import Shape
from scripts.bench.timing import Call

# Threads of a workgroup and vectors of 16 bytes a thread: the fastest is the floor of moving.
_MOVES = ((64, 1), (128, 1), (256, 1), (256, 2), (256, 4))
OURS = "ours"
MOVE = "move"


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way to do the op's work (or less).

    run(inputs) does it once; outputs(inputs) does it once and gives (q, k), k None where there
    is none. allowed: units in the last place from the fp32 model; None: nothing to compare.
    serves(shape, T): whether there is such work for it.
    """

    name: str
    run: Callable[[Inputs], object]
    outputs: Callable[[Inputs], tuple[torch.Tensor, torch.Tensor | None]] | None = None
    allowed: float | None = None
    serves: Callable[[Shape, int], bool] = lambda shape, tokens: True

    def on(self, sets: Sequence[Inputs]) -> Call:
        """The variant on the sets, by number."""
        return lambda number: self.run(sets[number])

    def verify(self, inputs: Inputs) -> None:
        """Fault where the variant's results are not those of the op's contract."""
        if self.outputs is not None and self.allowed is not None:
            check.poison(inputs)
            expected = check.expected(inputs)  # before a variant that works in place
            q, k = self.outputs(inputs)
            check.verify(self.name, inputs, q, k, expected, self.allowed)
            inputs.kv_cache.zero_()


def arguments(i: Inputs) -> tuple[object, ...]:
    """The op's arguments, in the schema's order, as vLLM's hooks give them: Q and K go to
    contiguous destinations."""
    return (
        *(i.positions, i.q, i.k, i.v, i.cos_sin_cache, i.q_weight, i.k_weight),
        *(False, EPS, 0, 0.0, 0, i.kv_cache, i.slot_mapping, i.q_out, i.k_out, None),
        1.0 if i.shape.norm == "gemma" else 0.0,
        i.shape.is_neox,
        list(i.shape.mrope_section) if i.shape.mrope_section else None,
        *(i.shape.mrope_interleaved, i.k_scale, i.v_scale),
    )


def ours(library: Path) -> Variant:
    """The op."""
    torch.ops.load_library(str(library))
    op = torch.ops._rocm_C.rdna35_rope_cache.default

    def run(i: Inputs) -> None:
        op(*arguments(i))

    def outputs(i: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
        run(i)
        return i.q_out, i.k_out

    return Variant(OURS, run, outputs, allowed=2)


def floors() -> list[Variant]:
    """empty: nothing, with a workgroup a token. load: position, its row of cos/sin, a store.
    move-<threads>x<vectors>: the op's bytes of activations."""
    launch = gpu.Module(Path(__file__).with_name("floors.cu")).launch

    def empty(i: Inputs) -> None:
        launch("floor_empty", i.tokens, 32)

    def load(i: Inputs) -> None:
        row_bytes = 2 * i.shape.rot
        threads = max(32, row_bytes // 8)
        launch("floor_load", i.tokens, threads, i.positions, i.cos_sin_cache, i.q_out, row_bytes)

    def move(i: Inputs, threads: int, vectors: int) -> None:
        read, written = (size // 16 for size in i.shape.bytes_moved(i.tokens))
        grid = -(-read // (threads * vectors))
        launch(f"floor_move_{vectors}", grid, threads, i.qkv, i.moved, read, written, threads)

    moves = [
        Variant(
            f"{MOVE}-{threads}x{vectors}", functools.partial(move, threads=threads, vectors=vectors)
        )
        for threads, vectors in _MOVES
    ]
    return [Variant("empty", empty), Variant("load", load), *moves]
