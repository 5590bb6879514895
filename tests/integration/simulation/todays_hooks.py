"""Fused hooks as AITER's implementations have them, of plain ops. Imported on the machine."""

from typing import Any

import torch
from torch import Tensor
from vllm import ir
from vllm.model_executor.layers.attention import Attention
from vllm.v1.attention.backend import AttentionType

_LIBRARIES: list[torch.library.Library] = []


def define_aiter_quant() -> None:
    """The op that upstream's qk-norm pass names whether or not AITER is there."""
    if not hasattr(torch.ops.vllm, "rocm_aiter_per_tensor_quant"):
        library = torch.library.Library("vllm", "FRAGMENT")
        library.define(
            "rocm_aiter_per_tensor_quant("
            "Tensor! out, Tensor x, Tensor! scale, bool is_dynamic) -> ()"
        )
        _LIBRARIES.append(library)


def give_todays_hooks(attn: Attention) -> None:
    """Let the layer's implementation support both fusions, declaring nothing else."""
    impl = attn.impl

    def rope(
        layer: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        positions: Tensor,
        cos_sin_cache: Tensor,
        is_neox: bool,
        kv_cache: Tensor,
        slots: Tensor,
    ) -> None:
        if attn.attn_type != AttentionType.DECODER:
            return
        torch.ops._C.rotary_embedding(positions, query, key, impl.head_size, cos_sin_cache, is_neox)
        impl.do_kv_cache_update(layer, key, value, kv_cache, slots)

    def qk_norm(
        layer: Any,
        qkv: Tensor,
        q_out: Tensor,
        k_out: Tensor,
        positions: Tensor,
        q_weight: Tensor,
        k_weight: Tensor,
        rms_norm_eps: float,
        cos_sin_cache: Tensor,
        is_neox: bool,
        kv_cache: Tensor,
        slots: Tensor,
    ) -> None:
        sizes = [n * impl.head_size for n in (impl.num_heads, *[impl.num_kv_heads] * 2)]
        q, k, v = (x.unflatten(-1, (-1, impl.head_size)) for x in qkv.split(sizes, dim=-1))
        q_out.copy_(ir.ops.rms_norm(q, q_weight, rms_norm_eps))
        k_out.copy_(ir.ops.rms_norm(k, k_weight, rms_norm_eps))
        rope(layer, q_out, k_out, v, positions, cos_sin_cache, is_neox, kv_cache, slots)

    impl.fused_rope_kvcache_supported = lambda: True
    impl.fused_qk_norm_rope_kvcache_supported = lambda: True
    impl.do_rope_and_kv_cache_update = rope
    impl.do_qk_norm_rope_kvcache_update = qk_norm
