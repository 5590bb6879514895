"""Deliberate faults in what the hooks ask of the kernel. Imported on the machine.

A comparison that does not see them shows nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from vllm.v1.attention.backends.rocm_gfx1151_attn import RocmGfx1151AttentionImpl
from vllm.v1.attention.ops import rdna35_rope_cache as op

Kernel = Callable[..., None]
_OUTPUTS = ("q_out", "k_out", "v_out")


def k_unrotated(
    kernel: Kernel, positions: Any, q: Any, k: Any, v: Any, table: Any, **rest: Any
) -> None:
    """K reaches the cache as it was before RoPE."""
    outputs = {name: None for name in _OUTPUTS if rest.get(name) is not None}
    scratch = {name: torch.empty_like(rest[name]) for name in outputs}
    unrotated = {**rest, **scratch, "mrope_section": None, "mrope_interleaved": False}
    kernel(positions, q.clone(), k.clone(), v, None, **unrotated)
    kernel(positions, q, k, v, table, **{**rest, "kv_cache": None, "slot_mapping": None})


def weights_swapped(kernel: Kernel, *args: Any, **rest: Any) -> None:
    """Q is normed with K's weight, K with Q's."""
    rest["q_weight"], rest["k_weight"] = rest["k_weight"], rest["q_weight"]
    kernel(*args, **rest)


def v_not_normed(kernel: Kernel, *args: Any, **rest: Any) -> None:
    """V stays as it is."""
    kernel(*args, **{**rest, "v_norm": False})


def weight_offset_forgotten(kernel: Kernel, *args: Any, **rest: Any) -> None:
    """The norms multiply by the weight instead of one more."""
    kernel(*args, **{**rest, "weight_offset": 0.0})


def q_not_scaled(kernel: Kernel, *args: Any, **rest: Any) -> None:
    """Q is the same at every position."""
    kernel(*args, **{**rest, "q_scale_beta": 0.0})


def rows_dropped(kernel: Kernel, *args: Any, **rest: Any) -> None:
    """M-RoPE turns all pairs by time."""
    t, h, w = rest["mrope_section"]
    kernel(*args, **{**rest, "mrope_section": [t + h + w, 0, 0]})


def slots_shifted(kernel: Kernel, *args: Any, **rest: Any) -> None:
    """Each token's K and V lie in its neighbour's slot."""
    if rest["slot_mapping"] is not None:
        rest["slot_mapping"] = rest["slot_mapping"].roll(1)
    kernel(*args, **rest)


# name -> fault, and what a call must have for it to be one.
FAULTS: dict[str, tuple[Callable[..., None], str]] = {
    "K unrotated": (k_unrotated, "rope"),
    "norm weights swapped": (weights_swapped, "norm"),
    "weight offset forgotten": (weight_offset_forgotten, "offset"),
    "V not normed": (v_not_normed, "V norm"),
    "Q not scaled": (q_not_scaled, "scaling"),
    "rows dropped": (rows_dropped, "M-RoPE"),
    "slots shifted": (slots_shifted, "write"),
}


class Watch:
    """What the kernel was asked for.

    calls: layer -> the kinds of work in its launches, of FAULTS' second items.
    """

    def __init__(self) -> None:
        self.calls: dict[str, set[str]] = {}

    @property
    def kinds(self) -> set[str]:
        return set().union(*self.calls.values())


def _kinds(table: torch.Tensor | None, rest: dict[str, Any]) -> set[str]:
    present = {
        "rope": table is not None,
        "M-RoPE": rest.get("mrope_section") is not None,
        "norm": rest.get("q_weight") is not None,
        "offset": bool(rest.get("weight_offset")),
        "V norm": bool(rest.get("v_norm")),
        "scaling": bool(rest.get("q_scale_beta")),
        "write": rest.get("slot_mapping") is not None,
    }
    return {kind for kind, is_there in present.items() if is_there}


@contextmanager
def watched(fault: str | None = None) -> Iterator[Watch]:
    """Watches the launches of every layer, with a fault in each where one is named."""
    watch = Watch()
    kernel, hooks = (
        op.rdna35_rope_cache,
        ("do_rope_and_kv_cache_update", "do_qk_norm_rope_kvcache_update"),
    )
    originals = {name: getattr(RocmGfx1151AttentionImpl, name) for name in hooks}
    current: list[str] = []

    def launch(positions: Any, q: Any, k: Any, v: Any, table: Any, **rest: Any) -> None:
        kinds = _kinds(table, rest)
        watch.calls.setdefault(current[-1], set()).update(kinds)
        if fault and FAULTS[fault][1] in kinds:
            FAULTS[fault][0](kernel, positions, q, k, v, table, **rest)
        else:
            kernel(positions, q, k, v, table, **rest)

    def hook(original: Callable[..., None]) -> Callable[..., None]:
        def call(self: Any, layer: Any, *args: Any, **kwargs: Any) -> None:
            current.append(layer.layer_name)
            try:
                original(self, layer, *args, **kwargs)
            finally:
                current.pop()

        return call

    op.rdna35_rope_cache = launch
    for name, original in originals.items():
        setattr(RocmGfx1151AttentionImpl, name, hook(original))
    try:
        yield watch
    finally:
        op.rdna35_rope_cache = kernel
        for name, original in originals.items():
            setattr(RocmGfx1151AttentionImpl, name, original)
