# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""ROCM_ATTN on gfx1151: Triton's attention, with the prologue in one launch.

RMSNorm of Q and K, RoPE, the norm of V and the KV cache write are one native op
on Triton's packed cache (`ops/rdna35_rope_cache.py`). What the op does not take
runs through the ops that the model would have called, with the same result.
"""

from collections.abc import Sequence

import torch

from vllm import _custom_ops as ops
from vllm import ir
from vllm.logger import init_logger
from vllm.platforms import current_platform
from vllm.v1.attention.backend import AttentionLayer, AttentionType
from vllm.v1.attention.backends.triton_attn import (
    TritonAttentionBackend,
    TritonAttentionImpl,
)
from vllm.v1.attention.ops import rdna35_rope_cache as op
from vllm.v1.attention.rope_kvcache_traits import RopeKVCacheTraits
from vllm.v1.kv_cache_interface import KVCacheLayout, is_quantized_kv_cache

logger = init_logger(__name__)


class RocmGfx1151AttentionBackend(TritonAttentionBackend):
    """Everything that Triton's backend can do, but KV connectors."""

    @staticmethod
    def get_name() -> str:
        return "ROCM_ATTN"

    @staticmethod
    def get_impl_cls() -> type["RocmGfx1151AttentionImpl"]:
        return RocmGfx1151AttentionImpl

    @classmethod
    def supports_kv_connector(cls) -> bool:
        # ROCM_ATTN is not offered to a run with a KV connector on any GPU.
        return False

    @classmethod
    def supported_kv_cache_layouts(cls) -> tuple[KVCacheLayout, ...]:
        # With a head's keys contiguous in a page, Triton's decode reads a page in
        # one piece. The kernels follow strides, so a model that mixes backends
        # may settle on any other layout.
        first = KVCacheLayout.LBHNC
        return (first, *(layout for layout in KVCacheLayout if layout is not first))


class RocmGfx1151AttentionImpl(TritonAttentionImpl):
    """Triton's attention with RoPE (and the norms) fused with the cache write."""

    rope_kvcache_traits = RopeKVCacheTraits(
        checks_head_size=True,
        mixed_dtypes=False,
        weight_offset=True,
        v_norm=True,
        mrope=True,
        rope_by_head=True,
        gated_query=True,
        separate_outputs=True,
        llama_4_scaling=True,
        without_slots=True,
    )

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._unfused_reason = self._find_unfused_reason()

    def _find_unfused_reason(self) -> str | None:
        """Why no call of this layer can be fused; None if one can."""
        if self.attn_type != AttentionType.DECODER:
            return f"{self.attn_type} attention has no KV cache of its own tokens"
        if self.kv_sharing_target_layer_name is not None:
            return "the layer shares another layer's KV cache"
        if is_quantized_kv_cache(self.kv_cache_dtype):
            return f"the KV cache is quantized ({self.kv_cache_dtype})"
        if not op.available():
            return f"this build has no rdna35_rope_cache: {op.unavailable_reason()}"
        if not op.supports_head_size(self.head_size):
            return f"the kernel is not built for head size {self.head_size}"
        return None

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        super().process_weights_after_loading(act_dtype)
        if self._unfused_reason is not None:
            return
        # The first call may come inside a graph capture, where a code object
        # cannot be loaded.
        try:
            op.load_kernels(torch.empty(0, device=current_platform.device_type).device)
        except RuntimeError as e:
            self._unfused_reason = f"the kernels do not load: {e}"
            self._warn_unfused(self._unfused_reason)

    def rope_kvcache_unfused_reason(self) -> str | None:
        return self._unfused_reason

    def fused_rope_kvcache_supported(self) -> bool:
        return self._unfused_reason is None

    def fused_qk_norm_rope_kvcache_supported(self) -> bool:
        return self._unfused_reason is None

    def fused_qk_norm_mrope_kvcache_supported(self) -> bool:
        return self._unfused_reason is None

    def do_rope_and_kv_cache_update(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        positions: torch.Tensor,
        cos_sin_cache: torch.Tensor,
        is_neox: bool,
        kv_cache: torch.Tensor,
        layer_slot_mapping: torch.Tensor | None,
        query_out: torch.Tensor | None = None,
        key_out: torch.Tensor | None = None,
        q_scale_beta: float = 0.0,
        q_scale_orig_max: int = 1,
        mrope_section: Sequence[int] | None = None,
        mrope_interleaved: bool = False,
    ) -> None:
        """Rotate query and key, and write key and value to the KV cache.

        Args:
            layer: The attention layer.
            query: `[T, num_heads, head_size]`, rotated in place unless `query_out`
                is given.
            key: `[T, num_kv_heads, head_size]`, likewise with `key_out`.
            value: `[T, num_kv_heads, head_size]`.
            positions: int64 `[T]`.
            cos_sin_cache: `[max_position, rotary_dim]`, cosines then sines.
            is_neox: Whether pairs are half a rotary dimension apart, or adjacent.
            kv_cache: `[num_blocks, num_kv_heads, block_size, 2 * head_size]`.
            layer_slot_mapping: int64 `[S]`, S <= T; None: nothing is written.
            query_out: As `query`, receives the rotated query.
            key_out: As `key`, receives the rotated key.
            q_scale_beta: Beta of Llama 4's scaling of the rotated query; 0: off.
            q_scale_orig_max: Context length that the scaling starts from, in tokens.
            mrope_section: Pairs that turn by each row of `positions` `[3, T]`.
            mrope_interleaved: Whether the rows take turns.

        """
        reason = self._unfused_reason or self._unfit(
            query, key, value, cos_sin_cache, kv_cache, None, None, mrope_section
        )
        if reason is None:
            op.rdna35_rope_cache(
                positions,
                query,
                key,
                value,
                cos_sin_cache,
                is_neox=is_neox,
                q_scale_beta=q_scale_beta,
                q_scale_orig_max=q_scale_orig_max,
                mrope_section=mrope_section,
                mrope_interleaved=mrope_interleaved,
                kv_cache=None if layer_slot_mapping is None else kv_cache,
                slot_mapping=layer_slot_mapping,
                q_out=query_out,
                k_out=key_out,
            )
            return

        self._warn_unfused(reason)
        if query_out is not None:
            query = query_out.copy_(query)
        if key_out is not None:
            key = key_out.copy_(key)
        self._rotate_and_write(
            layer,
            query,
            key,
            value,
            positions,
            cos_sin_cache,
            is_neox,
            kv_cache,
            layer_slot_mapping,
            mrope_section,
            mrope_interleaved,
        )
        if q_scale_beta:
            steps = torch.floor(positions.float() / q_scale_orig_max)
            factor = 1 + q_scale_beta * torch.log(1 + steps)
            query.copy_(query * factor.view(-1, 1, 1))

    def do_qk_norm_rope_kvcache_update(
        self,
        layer: AttentionLayer,
        qkv: torch.Tensor,
        q_out: torch.Tensor,
        k_out: torch.Tensor,
        positions: torch.Tensor,
        q_weight: torch.Tensor,
        k_weight: torch.Tensor,
        rms_norm_eps: float,
        cos_sin_cache: torch.Tensor,
        is_neox: bool,
        kv_cache: torch.Tensor,
        layer_slot_mapping: torch.Tensor | None,
        weight_offset: float = 0.0,
        v_out: torch.Tensor | None = None,
        mrope_section: Sequence[int] | None = None,
        mrope_interleaved: bool = False,
    ) -> None:
        """Norm and rotate Q and K, norm V if asked to, and write K and V.

        Args:
            layer: The attention layer.
            qkv: `[T, (num_heads + 2 * num_kv_heads) * head_size]`, only read. With
                twice as many heads in Q, each second one is a gate and passed over.
            q_out: `[T, num_heads, head_size]`, receives Q.
            k_out: `[T, num_kv_heads, head_size]`, receives K.
            positions: int64 `[T]`.
            q_weight: RMSNorm weight `[head_size]` of Q.
            k_weight: RMSNorm weight `[head_size]` of K.
            rms_norm_eps: Epsilon of all the norms.
            cos_sin_cache: `[max_position, rotary_dim]`, cosines then sines.
            is_neox: Whether pairs are half a rotary dimension apart, or adjacent.
            kv_cache: `[num_blocks, num_kv_heads, block_size, 2 * head_size]`.
            layer_slot_mapping: int64 `[S]`, S <= T; None: nothing is written.
            weight_offset: Added to both weights in fp32 (GemmaRMSNorm: 1.0).
            v_out: `[T, num_kv_heads, head_size]`, receives V after a weightless
                RMSNorm, which is then written as well. None: V is written raw.
            mrope_section: Pairs that turn by each row of `positions` `[3, T]`.
            mrope_interleaved: Whether the rows take turns.

        """
        q, k, v = self._heads(qkv)
        reason = self._unfused_reason or self._unfit(
            q, k, v, cos_sin_cache, kv_cache, q_weight, k_weight, mrope_section
        )
        if reason is None:
            op.rdna35_rope_cache(
                positions,
                q,
                k,
                v,
                cos_sin_cache,
                is_neox=is_neox,
                mrope_section=mrope_section,
                mrope_interleaved=mrope_interleaved,
                q_weight=q_weight,
                k_weight=k_weight,
                weight_offset=weight_offset,
                v_norm=v_out is not None,
                eps=rms_norm_eps,
                kv_cache=None if layer_slot_mapping is None else kv_cache,
                slot_mapping=layer_slot_mapping,
                q_out=q_out,
                k_out=k_out,
                v_out=v_out,
            )
            return

        self._warn_unfused(reason)
        if weight_offset:
            q_weight = q_weight.float() + weight_offset
            k_weight = k_weight.float() + weight_offset
        q_out.copy_(ir.ops.rms_norm(q, q_weight, rms_norm_eps))
        k_out.copy_(ir.ops.rms_norm(k, k_weight, rms_norm_eps))
        if v_out is not None:
            v = v_out.copy_(ir.ops.rms_norm(v, None, rms_norm_eps))
        self._rotate_and_write(
            layer,
            q_out,
            k_out,
            v,
            positions,
            cos_sin_cache,
            is_neox,
            kv_cache,
            layer_slot_mapping,
            mrope_section,
            mrope_interleaved,
        )

    def do_mrope_and_kv_cache_update(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        positions: torch.Tensor,
        cos_sin_cache: torch.Tensor,
        is_neox: bool,
        mrope_section: Sequence[int],
        is_interleaved: bool,
        kv_cache: torch.Tensor,
        layer_slot_mapping: torch.Tensor | None,
        query_out: torch.Tensor | None = None,
        key_out: torch.Tensor | None = None,
    ) -> None:
        """`do_rope_and_kv_cache_update` with M-RoPE.

        Plain positions stand for three rows that are equal, as they are in text.
        """
        self.do_rope_and_kv_cache_update(
            layer,
            query,
            key,
            value,
            positions,
            cos_sin_cache,
            is_neox,
            kv_cache,
            layer_slot_mapping,
            query_out,
            key_out,
            mrope_section=mrope_section if positions.dim() == 2 else None,
            mrope_interleaved=is_interleaved and positions.dim() == 2,
        )

    def do_qk_norm_mrope_kvcache_update(
        self,
        layer: AttentionLayer,
        qkv: torch.Tensor,
        q_out: torch.Tensor,
        positions: torch.Tensor,
        q_weight: torch.Tensor,
        k_weight: torch.Tensor,
        rms_norm_eps: float,
        cos_sin_cache: torch.Tensor,
        is_neox: bool,
        mrope_section: Sequence[int],
        is_interleaved: bool,
        rotary_dim: int,
        kv_cache: torch.Tensor,
        layer_slot_mapping: torch.Tensor | None,
        k_out: torch.Tensor | None = None,
        weight_offset: float = 0.0,
    ) -> None:
        """`do_qk_norm_rope_kvcache_update` with M-RoPE, positions as above.

        The rotary dimension is the width of `cos_sin_cache`, whatever is said.
        """
        if k_out is None:
            shape = (qkv.shape[0], self.num_kv_heads, self.head_size)
            k_out = torch.empty(shape, dtype=qkv.dtype, device=qkv.device)
        self.do_qk_norm_rope_kvcache_update(
            layer,
            qkv,
            q_out,
            k_out,
            positions,
            q_weight,
            k_weight,
            rms_norm_eps,
            cos_sin_cache,
            is_neox,
            kv_cache,
            layer_slot_mapping,
            weight_offset,
            None,
            mrope_section if positions.dim() == 2 else None,
            is_interleaved and positions.dim() == 2,
        )

    def _heads(self, qkv: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Q, K and V as views `[T, heads, head_size]`, Q without gates."""
        heads = qkv.unflatten(-1, (-1, self.head_size))
        in_q = heads.shape[1] - 2 * self.num_kv_heads
        q, k, v = heads.split([in_q, self.num_kv_heads, self.num_kv_heads], dim=1)
        return q[:, :: in_q // self.num_heads], k, v

    def _unfit(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cos_sin_cache: torch.Tensor,
        kv_cache: torch.Tensor,
        q_weight: torch.Tensor | None,
        k_weight: torch.Tensor | None,
        mrope_section: Sequence[int] | None,
    ) -> str | None:
        """Why the kernel does not take this call; None if it does."""
        dtype = q.dtype
        if not op.supports_dtype(dtype):
            return f"activations of {dtype}"
        others = {"k": k, "v": v, "cos_sin_cache": cos_sin_cache}
        if kv_cache.numel() > 0:
            others["kv_cache"] = kv_cache
        for name, tensor in others.items():
            if tensor.dtype != dtype:
                return f"{name} of {tensor.dtype} with activations of {dtype}"
        if q_weight is not None and k_weight is not None:
            if q_weight.dtype != k_weight.dtype:
                return f"norm weights of {q_weight.dtype} and {k_weight.dtype}"
            if q_weight.dtype not in (dtype, torch.float32):
                return f"norm weights of {q_weight.dtype} with activations of {dtype}"
        if mrope_section is not None:
            rotary_dim = cos_sin_cache.shape[1]
            if (
                len(mrope_section) != 3
                or min(mrope_section) < 0
                or 2 * sum(mrope_section) != rotary_dim
            ):
                sections = ", ".join(map(str, mrope_section))
                return f"M-RoPE's sections {sections} of {rotary_dim // 2} pairs"
            if cos_sin_cache.nbytes >= 1 << 32:
                return f"M-RoPE with a cos_sin_cache of {cos_sin_cache.nbytes} bytes"
        return None

    def _warn_unfused(self, reason: str) -> None:
        logger.warning_once(
            "RoPE and the KV cache write run as separate ops: %s.", reason
        )

    def _rotate_and_write(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        positions: torch.Tensor,
        cos_sin_cache: torch.Tensor,
        is_neox: bool,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor | None,
        mrope_section: Sequence[int] | None,
        mrope_interleaved: bool,
    ) -> None:
        """The model's own ops: rotate in place, then write what a layer writes."""
        if mrope_section is None:
            ops.rotary_embedding(
                positions, query, key, self.head_size, cos_sin_cache, is_neox
            )
        else:
            torch.ops.vllm.mrope(
                positions,
                query.view(query.shape[0], -1),
                key.view(key.shape[0], -1),
                cos_sin_cache,
                self.head_size,
                cos_sin_cache.shape[1],
                *mrope_section[:3],
                mrope_interleaved,
                is_neox,
            )
        if slot_mapping is not None and self.kv_sharing_target_layer_name is None:
            self.do_kv_cache_update(layer, key, value, kv_cache, slot_mapping)
