"""A few launches of every kernel, for compute-sanitizer to watch.

    python -m tests.gpu.sanitizer_driver

Cases are made on the CPU and copied, so that nearly all kernels on the GPU are
the op's. Every result is checked too. Prints how many launches there were.
"""

import itertools

import torch

from tests.kernel import cases, op
from tests.kernel.cases import Options
from tests.kernel.families import Family
from tests.kernel.rope_tables import Rope

# (tokens, options): vectors and single elements, few tokens and enough for the wider kernels (1024
# and 4096 heads), slots and outputs of all kinds.
ARRANGEMENTS = (
    (3, Options(skip_slots=True)),
    (2, Options(shift=1, row_pad=3, outputs=frozenset("qkv"))),
    (101, Options()),
    (380, Options(slots_mapped=333, layout="LBHNC", outputs=frozenset("qk"))),
)


def families(head_dim: int) -> list[Family]:
    """The kinds of norm and rotation for one head size."""
    return [
        Family("plain", 5, 3, head_dim, Rope(head_dim, rows=64), max_position=64),
        Family("norm", 16, 9, head_dim, Rope(48, rows=64), "rms", v_norm=True, max_position=80),
    ]


def main() -> None:
    """Runs and checks all cases; ends with an exception where a result is wrong."""
    launches = 0
    for dtype, head_dim in itertools.product(op.DTYPES, op.HEAD_DIMS):
        for family, (tokens, options) in itertools.product(families(head_dim), ARRANGEMENTS):
            cases.build(family, tokens, dtype, options).run_and_check()
            launches += 1
    nothing = Family("nothing", 2, 2, 64, None, gated=True)
    scaled = Family("scaled", 3, 1, 64, Rope(64, rows=9), q_scale_beta=0.1, q_scale_orig_max=2)
    alone = Family("alone", 3, 0, 128, Rope(128), "gemma")
    for family in (nothing, scaled, alone):
        cases.build(family, 5, torch.bfloat16).run_and_check()
        launches += 1
    print(f"launches: {launches}")


if __name__ == "__main__":
    main()
