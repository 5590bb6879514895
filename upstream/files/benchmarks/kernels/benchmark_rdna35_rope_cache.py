# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Benchmark the fused QK norm, RoPE and KV cache write of RDNA 3.5.

The baseline is what vLLM runs without it: the norms and RoPE compiled by
Inductor, then the Triton kernel that writes K and V to the packed cache.
"""

import torch

from vllm.benchmarks.lib.utils import default_vllm_config
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.rotary_embedding import RotaryEmbedding
from vllm.triton_utils import triton
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.attention.ops.rdna35_rope_cache import (
    rdna35_rope_cache,
    unavailable_reason,
)
from vllm.v1.attention.ops.triton_reshape_and_cache_flash import (
    triton_reshape_and_cache_flash,
)

BLOCK_SIZE = 16
MAX_POSITION = 8192
EPS = 1e-6


class Layer:
    """One layer's inputs and both ways to get from them to rotated Q and K."""

    def __init__(self, num_tokens: int, args) -> None:
        heads = (args.num_heads, args.num_kv_heads, args.num_kv_heads)
        self.norm = args.norm
        self.qkv = torch.randn(num_tokens, sum(heads), args.head_size)
        self.heads = heads
        self.positions = torch.randint(0, MAX_POSITION, (num_tokens,))
        num_blocks = triton.cdiv(num_tokens, BLOCK_SIZE) + 1
        self.slots = torch.randperm(num_blocks * BLOCK_SIZE)[:num_tokens]
        self.cache = torch.zeros(
            num_blocks, args.num_kv_heads, BLOCK_SIZE, 2 * args.head_size
        )
        self.q_norm = RMSNorm(args.head_size, eps=EPS)
        self.k_norm = RMSNorm(args.head_size, eps=EPS)
        self.rope = RotaryEmbedding(
            args.head_size,
            args.rotary_dim or args.head_size,
            MAX_POSITION,
            10000,
            True,
            torch.get_default_dtype(),
        )
        self.cos_sin = self.rope.cos_sin_cache.to(self.qkv.dtype)
        self.scale = torch.ones(1, dtype=torch.float32)
        self.compiled = torch.compile(self.prologue, fullgraph=True)

    def prologue(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        q, k, v = self.qkv.split(self.heads, dim=1)
        if self.norm:
            q, k = self.q_norm.forward_native(q), self.k_norm.forward_native(k)
        q_flat, k_flat = self.rope.forward_native(
            self.positions, q.flatten(1), k.flatten(1)
        )
        return q_flat.view(q.shape), k_flat.view(k.shape), v

    def unfused(self) -> None:
        _, k, v = self.compiled()
        key_cache, value_cache = self.cache.transpose(1, 2).chunk(2, dim=-1)
        triton_reshape_and_cache_flash(
            k, v, key_cache, value_cache, self.slots, "auto", self.scale, self.scale
        )

    def fused(self) -> None:
        q, k, v = self.qkv.split(self.heads, dim=1)
        rdna35_rope_cache(
            self.positions,
            q,
            k,
            v,
            self.cos_sin,
            q_weight=self.q_norm.weight if self.norm else None,
            k_weight=self.k_norm.weight if self.norm else None,
            eps=EPS,
            kv_cache=self.cache,
            slot_mapping=self.slots,
        )


@default_vllm_config()
@torch.inference_mode()
def main(args) -> None:
    if reason := unavailable_reason():
        raise SystemExit(f"rdna35_rope_cache is not available: {reason}")
    torch.set_default_device("cuda")
    torch.set_default_dtype(torch.bfloat16)
    print(f"{'tokens':>8} {'unfused us':>12} {'fused us':>12} {'speedup':>8}")
    for num_tokens in args.num_tokens:
        layer = Layer(num_tokens, args)
        unfused, fused = (
            1000 * triton.testing.do_bench_cudagraph(run)
            for run in (layer.unfused, layer.fused)
        )
        print(
            f"{num_tokens:>8} {unfused:>12.2f} {fused:>12.2f} {unfused / fused:>8.2f}"
        )


if __name__ == "__main__":
    parser = FlexibleArgumentParser(description=__doc__)
    parser.add_argument("--num-tokens", type=int, nargs="+", default=[1, 8, 32, 256])
    parser.add_argument("--num-heads", type=int, default=32)
    parser.add_argument("--num-kv-heads", type=int, default=8)
    parser.add_argument("--head-size", type=int, default=128)
    parser.add_argument("--rotary-dim", type=int, help="default: the head size")
    parser.add_argument("--norm", action="store_true", help="QK norm before RoPE")
    main(parser.parse_args())
