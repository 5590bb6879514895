# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What an attention implementation declares about its fused RoPE hooks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm.config import VllmConfig


@dataclass(frozen=True)
class RopeKVCacheTraits:
    """What `do_rope_and_kv_cache_update` and `do_qk_norm_rope_kvcache_update` do.

    The defaults are what the hooks of AITER's implementations do.

    Attributes:
        checks_head_size: The implementation says for itself which head sizes its
            hooks take: `fused_*_supported` is False for any other.
        mixed_dtypes: They take a cos/sin cache and norm weights of any dtype. If
            not: the cache is of the activations' dtype, and both norm weights are
            of that or fp32.
        weight_offset: The norm adds `weight_offset` to the weights (GemmaRMSNorm).
        v_norm: V is normed as well if there is a `v_out`.
        mrope: There is `do_mrope_and_kv_cache_update`, and
            `do_qk_norm_mrope_kvcache_update` has a `k_out`; both take M-RoPE with any
            sections that cover the rotary dimension, and plain positions.
        rope_by_head: Q and K may be rotated as they come from their norms, as
            `[T, num_heads, head_size]`. Only the pass differs, not the hook.
        gated_query: The hook with norms also takes a `qkv` in which a gate of
            `head_size` lies behind each head of Q.
        separate_outputs: The hook without norms writes to `query_out` and
            `key_out`, so the projection's output is not overwritten.
        llama_4_scaling: With `separate_outputs`, the hook without norms also scales
            the rotated Q by its position: `q_scale_beta` and `q_scale_orig_max`.
        without_slots: Those with outputs of their own are called without a slot
            mapping too, and then define the outputs and write no cache.

    """

    checks_head_size: bool = False
    mixed_dtypes: bool = True
    weight_offset: bool = False
    v_norm: bool = False
    mrope: bool = False
    rope_by_head: bool = False
    gated_query: bool = False
    separate_outputs: bool = False
    llama_4_scaling: bool = False
    without_slots: bool = False


def any_layer_declares(config: "VllmConfig", trait: str) -> bool:
    """Whether a layer of the models that are loaded has a trait."""
    layers = config.compilation_config.static_forward_context.values()
    traits = (
        getattr(getattr(layer, "impl", None), "rope_kvcache_traits", None)
        for layer in layers
    )
    return any(getattr(declared, trait, False) for declared in traits)
