"""What became of a small model's attention layers."""

from dataclasses import dataclass

ROPE, NORM, NORM_V = "RoPE", "QK norm", "QK norm, V norm"


@dataclass(frozen=True)
class Layer:
    """An attention layer.

    kind: its class. fused: ROPE, NORM, NORM_V, or "" for a layer that is not fused. writes: whether
    it writes a KV cache by an op of the graph. why_not: what the passes say. heads: Q's, K's and
    the head size, as 4/2/128.
    """

    kind: str
    fused: str
    writes: bool
    why_not: str
    heads: str


@dataclass(frozen=True)
class Found:
    """A small model.

    built: the class that was built. layers: of the language model. rotations: its rotary modules'
    classes, with "GPT-J" where they turn adjacent pairs. compiled: whether vLLM compiles any of it.
    error: why there is no model.
    """

    built: str = ""
    layers: tuple[Layer, ...] = ()
    rotations: tuple[str, ...] = ()
    compiled: bool = False
    error: str = ""

    @property
    def fused(self) -> frozenset[str]:
        """Every kind of fusion that a layer has."""
        return frozenset(layer.fused for layer in self.layers if layer.fused)

    @property
    def whole(self) -> bool:
        """Whether every attention layer is fused."""
        return bool(self.fused) and all(x.fused for x in self.layers if x.kind == "Attention")
