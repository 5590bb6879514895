"""What is measured: attention shapes, with and without the q/k norm, token counts, contexts."""

import dataclasses
from collections.abc import Sequence

from scripts.errors import Fault

TOKENS = (1, 2, 4, 8, 16, 32, 64, 256, 2048)
CONTEXTS = (128, 1024)


@dataclasses.dataclass(frozen=True)
class Shape:
    """One layer's attention, bf16.

    norm: "" (none), "rms" (RMSNorm of q and k) or "gemma" (GemmaRMSNorm: weight offset 1).
    gated: each Q head is followed by its gate in memory. is_neox: RoPE's pairs are (i, i + rot/2),
    else (2i, 2i + 1). mrope_section: M-RoPE, with so many pairs for each of three rows of
    positions, one section after another or mrope_interleaved. fp8: a float8_e4m3fn cache.
    """

    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    norm: str = ""
    rotary_dim: int = 0  # 0: all of the head
    gated: bool = False
    is_neox: bool = True
    mrope_section: tuple[int, int, int] | None = None
    mrope_interleaved: bool = False
    fp8: bool = False

    @property
    def name(self) -> str:
        """32/8/128+norm: heads of Q, heads of K, head size, and the kind."""
        kind = "gated" if self.gated else "norm" if self.norm else "rope"
        kind = kind if self.is_neox else "pairs"
        if self.mrope_section:
            kind = "norm+mrope" if self.norm else "mrope"
        kind = f"{kind}+fp8" if self.fp8 else kind
        return f"{self.num_q_heads}/{self.num_kv_heads}/{self.head_dim}+{kind}"

    @property
    def rot(self) -> int:
        """Rotated elements of a head."""
        return self.rotary_dim or self.head_dim

    @property
    def is_plain(self) -> bool:
        """One position a token, and a cache of the activations' dtype."""
        return self.mrope_section is None and not self.fp8

    def bytes_moved(self, tokens: int) -> tuple[int, int]:
        """Bytes of activations read, and written: Q, K, and the cache's K and V.

        Rows of cos and sin, positions, slots and weights are left out (at most 3 %).
        """
        head = 2 * self.head_dim * tokens
        read = (self.num_q_heads + 2 * self.num_kv_heads) * head
        cached = 2 * self.num_kv_heads * head // (2 if self.fp8 else 1)
        written = (self.num_q_heads + self.num_kv_heads) * head + cached
        return read, written


_HEADS = ((32, 8, 128), (14, 2, 64), (8, 1, 256), (16, 2, 512), (32, 32, 128))

SHAPES = (
    *(Shape(*heads, norm=norm) for heads in _HEADS for norm in ("", "rms")),
    Shape(32, 32, 96),  # Phi
    Shape(8, 2, 256, norm="gemma", rotary_dim=64, gated=True),  # Qwen3.5
    Shape(32, 8, 128, is_neox=False),  # Cohere
    Shape(32, 2, 128, rotary_dim=64, is_neox=False),  # GLM-4
    Shape(28, 4, 128, mrope_section=(16, 24, 24)),  # Qwen2.5-VL
    Shape(32, 8, 128, norm="rms", mrope_section=(24, 20, 20), mrope_interleaved=True),  # Qwen3-VL
    *(Shape(32, 8, 128, norm=norm, fp8=True) for norm in ("", "rms")),
)


def choose_shapes(text: str) -> tuple[Shape, ...]:
    """The shapes of a comma-separated list: names, or heads alone for every kind of them."""
    if not text:
        return SHAPES
    chosen: list[Shape] = []
    for wanted in text.split(","):
        found = [s for s in SHAPES if wanted in (s.name, s.name.split("+")[0])]
        if not found:
            names = ", ".join(s.name for s in SHAPES)
            raise Fault(f"SHAPES has {wanted!r}; there are {names}")
        chosen += [s for s in found if s not in chosen]
    return tuple(chosen)


def choose_numbers(name: str, text: str, offered: Sequence[int]) -> tuple[int, ...]:
    """The numbers of a comma-separated list; all that are offered when it is empty."""
    if not text:
        return tuple(offered)
    numbers: list[int] = []
    for word in text.split(","):
        if not word.isdecimal() or int(word) < 1:
            raise Fault(f"{name} has {word!r}; give positive integers separated by commas")
        numbers.append(int(word))
    return tuple(dict.fromkeys(numbers))
