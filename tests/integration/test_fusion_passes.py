"""vLLM's fusion passes on prologues as its models have them, compiled and compared with eager.

Attention's inputs, the caches and what a model returns besides are all compared, and the op that
writes each layer's cache is named.
"""

from typing import Any

import pytest
from simulation import simulated

UNFUSED = "unified_kv_cache_update"
ROPE = "fused_rope_into_and_unified_kv_cache_update"
QK_NORM = "fused_qk_norm_rope_and_unified_kv_cache_update"
QKV_NORM = "fused_qkv_norm_rope_and_unified_kv_cache_update"

# Layers of one graph: heads (num_heads, num_kv_heads, head_size), more of Prologue's arguments,
# and the op that must write their cache.
FUSED: dict[str, list[tuple[tuple[int, int, int], dict[str, Any], str]]] = {
    "llama": [((4, 2, 128), {}, ROPE), ((4, 2, 128), {}, ROPE)],
    "one KV head": [((6, 1, 64), {}, ROPE), ((5, 1, 128), {"norm": "rms"}, QK_NORM)],
    "as many KV heads": [((3, 3, 96), {}, ROPE), ((2, 2, 128), {"norm": "rms"}, QK_NORM)],
    "same head size, other counts": [
        ((6, 2, 128), {}, ROPE),
        ((4, 2, 128), {}, ROPE),
        ((4, 1, 128), {"norm": "rms"}, QK_NORM),
        ((6, 2, 128), {"norm": "rms"}, QK_NORM),
    ],
    "same sizes of the split, other heads": [
        ((8, 2, 64), {}, ROPE),
        ((4, 1, 128), {}, ROPE),
        ((4, 1, 128), {"norm": "rms"}, QK_NORM),
        ((8, 2, 64), {"norm": "rms"}, QK_NORM),
    ],
    "KV heads of each layer its own": [
        ((8, 4, 64), {}, ROPE),
        ((8, 2, 64), {}, ROPE),
        ((8, 1, 64), {}, ROPE),
        ((8, 8, 64), {}, ROPE),
    ],
    "partial rotation": [
        ((4, 2, 128), {"rotary_dim": 64}, ROPE),
        ((4, 2, 128), {"rotary_dim": 78, "norm": "rms"}, QK_NORM),
        ((4, 2, 64), {"rotary_dim": 16, "norm": "rms", "eps": 1e-5}, QK_NORM),
    ],
    "gemma 3": [
        ((4, 2, 256), {"norm": "gemma"}, QK_NORM),
        ((4, 1, 256), {"norm": "gemma"}, QK_NORM),
    ],
    "gemma 4, small heads first": [
        ((4, 1, 256), {"norm": "rms", "v_norm": True}, QKV_NORM),
        ((2, 1, 512), {"norm": "rms", "v_norm": True}, QKV_NORM),
    ],
    "gemma 4, large heads first": [
        ((2, 1, 512), {"norm": "rms", "v_norm": True}, QKV_NORM),
        ((4, 1, 256), {"norm": "rms", "v_norm": True}, QKV_NORM),
    ],
    "two head sizes without V's norm": [
        ((2, 1, 512), {"norm": "rms"}, QK_NORM),
        ((4, 1, 256), {"norm": "rms"}, QK_NORM),
        ((4, 1, 256), {"norm": "rms", "v_norm": True}, QKV_NORM),
    ],
    "three shapes, two passes": [
        ((4, 2, 64), {"norm": "gemma", "v_norm": True}, QKV_NORM),
        ((2, 1, 256), {}, ROPE),
        ((4, 1, 128), {"norm": "rms", "eps": 1e-5}, QK_NORM),
    ],
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("kind", FUSED)
@simulated()
def test_every_layer_of_a_graph_is_fused_with_its_own_shape(kind: str, dtype: str) -> None:
    from simulation.prologues import Prologue, fusing_config, run

    config = fusing_config(dtype=dtype)
    layers = [Prologue(config, *heads, **more) for heads, more, _ in FUSED[kind]]
    found = run(config, layers)
    assert found.served_in_order() == [op for _, _, op in FUSED[kind]]
    found.assert_right()
