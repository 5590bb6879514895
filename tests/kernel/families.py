"""The kinds of models that the op serves, with the shapes of one model each.

This is the one table of them: every test over families reads it.
"""

import dataclasses

from tests.kernel.rope_tables import (
    LinearRope,
    Llama3Rope,
    LongRope,
    ProportionalRope,
    Rope,
    YarnRope,
)


@dataclasses.dataclass(frozen=True)
class Family:
    """What one layer of a model asks of the op.

    norm: "" (none), "rms" (RMSNorm, weight in the activations' dtype) or
    "gemma" (GemmaRMSNorm: offset 1). gated: each Q head is followed by its gate
    in memory. position_rows: 3 for M-RoPE positions [3, T], which are equal without
    mrope_section. max_position: positions of a case lie below it. pos_offset, is_neox,
    mrope_section, mrope_interleaved: see the op.
    """

    name: str
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    rope: Rope | None
    norm: str = ""
    eps: float = 1e-6
    v_norm: bool = False
    gated: bool = False
    position_rows: int = 1
    max_position: int = 4096
    pos_offset: int = 0
    q_scale_beta: float = 0.0
    q_scale_orig_max: int = 0
    is_neox: bool = True
    mrope_section: tuple[int, int, int] | None = None
    mrope_interleaved: bool = False

    @property
    def rotary_dim(self) -> int:
        """Rotated elements of a head; 0 without RoPE."""
        return self.rope.rotary_dim if self.rope else 0

    @property
    def weight_offset(self) -> float:
        """What the norm adds to its weight."""
        return 1.0 if self.norm == "gemma" else 0.0


# The published factor lists of Phi have one entry a pair and grow like these.
_PHI35_SHORT = tuple(1.0 + 0.038 * pair for pair in range(48))
_PHI4_SHORT = (1.0,) * 48
_PHI_LONG = tuple(1.08 * 1.09**pair for pair in range(48))

FAMILIES = (
    Family("llama2", 32, 32, 128, Rope(128), eps=1e-5),
    Family("llama3", 32, 8, 128, Llama3Rope(128, base=5e5), eps=1e-5),
    Family("qwen2.5", 28, 4, 128, Rope(128, base=1e6)),
    Family("qwen3", 32, 8, 128, Rope(128, base=1e6), norm="rms"),
    Family("qwen3-vl-decode", 32, 8, 128, Rope(128, base=5e6), norm="rms", position_rows=3),
    Family("qwen3.5", 8, 2, 256, Rope(64, base=1e7), norm="gemma", gated=True),
    Family("gemma3", 16, 8, 256, LinearRope(256, base=1e6, factor=8.0), norm="gemma"),
    Family("paligemma2", 8, 4, 256, Rope(256)),
    Family("gemma4-sliding", 8, 1, 256, Rope(256), norm="rms", v_norm=True),
    Family(
        "gemma4-full",
        16,
        2,
        512,
        ProportionalRope(512, base=1e6, rotating_pairs=64),
        norm="rms",
        v_norm=True,
    ),
    Family("gemma4-kv-shared", 8, 0, 256, Rope(256), norm="rms"),
    Family(
        "phi3.5-short",
        32,
        32,
        96,
        LongRope(96, rows=8192, short_factor=_PHI35_SHORT, long_factor=_PHI_LONG),
        eps=1e-5,
    ),
    Family(
        "phi4-long",
        24,
        8,
        128,
        LongRope(96, rows=12288, short_factor=_PHI4_SHORT, long_factor=_PHI_LONG),
        eps=1e-5,
        max_position=8192,
        pos_offset=4096,
    ),
    Family("nemotron", 40, 8, 128, Rope(78), eps=1e-5),
    Family("granite-nope", 32, 8, 128, None, eps=1e-5),
    Family(
        "ministral3",
        32,
        8,
        128,
        YarnRope(128, base=1e6, rows=40960, factor=16.0, mscales_cancel=True),
        eps=1e-5,
        max_position=40960,
        q_scale_beta=0.1,
        q_scale_orig_max=16384,
    ),
    Family("gpt-j", 16, 16, 256, Rope(64), eps=1e-5, is_neox=False),
    Family("glm4", 32, 2, 128, Rope(64), eps=1e-5, is_neox=False),
    Family("cohere", 32, 8, 128, Rope(128), eps=1e-5, is_neox=False),
    # Images: the rows of positions differ.
    Family(
        "qwen2.5-vl",
        28,
        4,
        128,
        Rope(128, base=1e6),
        position_rows=3,
        mrope_section=(16, 24, 24),
    ),
    Family(
        "qwen3-vl",
        32,
        8,
        128,
        Rope(128, base=5e6),
        norm="rms",
        position_rows=3,
        mrope_section=(24, 20, 20),
        mrope_interleaved=True,
    ),
    Family(
        "qwen3.5-images",
        8,
        2,
        256,
        Rope(64, base=1e7),
        norm="gemma",
        gated=True,
        position_rows=3,
        mrope_section=(11, 11, 10),
        mrope_interleaved=True,
    ),
    Family(
        "glm4.5v",
        12,
        1,
        128,
        Rope(64),
        eps=1e-5,
        is_neox=False,
        position_rows=3,
        mrope_section=(8, 12, 12),
    ),
    # No models of the list, but legal. Adjacent pairs with every norm.
    Family(
        "gpt-j-and-norms",
        6,
        3,
        96,
        Rope(80),
        norm="gemma",
        v_norm=True,
        q_scale_beta=0.25,
        q_scale_orig_max=512,
        is_neox=False,
    ),
    # Both roundings of Q in one kernel, over a partial rotation.
    Family(
        "norm-and-scale",
        6,
        3,
        64,
        YarnRope(48, rows=8192, factor=4.0, original_max_position=2048),
        norm="rms",
        max_position=8192,
        q_scale_beta=0.25,
        q_scale_orig_max=512,
    ),
)

BY_NAME = {family.name: family for family in FAMILIES}
