# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Says how many layers the RoPE + KV cache fusions fused, once a model is compiled."""

from collections import Counter
from typing import TYPE_CHECKING

import torch
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized

from vllm.logger import init_logger

from ..fx_utils import is_func

if TYPE_CHECKING:
    from .rope_kvcache_match import FusableLayers

logger = init_logger(__name__)

FUSED = ""

_reasons: dict[str, str | None] = {}
"""Of every layer seen that writes a KV cache: FUSED, why it is not, or None."""


def note_layers(graph: fx.Graph, layers: "FusableLayers") -> None:
    """Note which layers of a graph are fused, after a pass over it.

    Args:
        graph: Part of a model; the others may be passed before or after.
        layers: The pass's. Without one that explains itself, nothing is noted.

    """
    if not layers.explained:
        return
    update = torch.ops.vllm.unified_kv_cache_update.default
    for node in graph.nodes:
        if is_func(node, update):
            name = layers.name_of(node.args[2])
            if _reasons.get(name) is None:
                _reasons[name] = layers.reason(name)
        elif is_func(node, auto_functionalized) and (
            node.args[0].name().endswith("_and_unified_kv_cache_update")
        ):
            _reasons[layers.name_of(node.kwargs["layer_name"])] = FUSED


def log_layers() -> None:
    """Log one line about the layers noted since the last call."""
    if not _reasons:
        return
    unknown = "its norm, RoPE and KV cache write are not the ones that fuse"
    unfused = Counter(r or unknown for r in _reasons.values() if r != FUSED)
    logger.info(
        "RoPE and the KV cache write are one op in %d of %d attention layers%s",
        len(_reasons) - unfused.total(),
        len(_reasons),
        "".join(f"; not in {n}: {reason}" for reason, n in unfused.items()),
    )
    _reasons.clear()
