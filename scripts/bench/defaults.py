"""What vLLM runs with the fusions on in a step too large for its passes.

Fusing by default takes the rotation from Inductor to vLLM's own kernel (`+rotary_embedding`), in
these steps too: Inductor's kernels for the norm, the rotary kernel in place, then the Triton writer
of the cache. Without the default it is what `unfused` is.
"""

import functools
from collections.abc import Callable
from pathlib import Path

import torch

from scripts.bench import gpu, unfused, vllm_modules
from scripts.bench import inputs as tensors
from scripts.bench.inputs import Inputs
from scripts.bench.shapes import Shape
from scripts.bench.variants import Variant

NAME = "defaults"
FUSED_TOKENS = 256  # upstream's rope_kvcache_fusion_max_token_num

_BEFORE = """
#include <stdint.h>
#if defined(__HIP__)
using bf16 = __bf16;
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
struct Index { int x; };
#define threadIdx (Index{static_cast<int>(__builtin_amdgcn_workitem_id_x())})
#define blockIdx (Index{static_cast<int>(__builtin_amdgcn_workgroup_id_x())})
#define blockDim (Index{static_cast<int>(__builtin_amdgcn_workgroup_size_x())})
#define VLLM_LDG(address) *(address)
#else
#include <cuda_bf16.h>
using bf16 = __nv_bfloat16;
#define VLLM_LDG(address) __ldg(address)
#endif
"""
_BEHIND = """
extern "C" __global__ void vllm_rotary(
    const int64_t* positions, bf16* query, bf16* key, const bf16* cos_sin_cache, uint32_t rot_dim,
    uint32_t query_stride, uint32_t key_stride, uint32_t num_heads, uint32_t num_kv_heads,
    uint32_t head_size) {
  const int token = blockIdx.x;
  vllm::apply_rotary_embedding<bf16, bf16, true>(
      query, key, cos_sin_cache + positions[token] * rot_dim, head_size, num_heads, num_kv_heads,
      rot_dim, token, query_stride, key_stride, head_size, 0, false);
}
"""


def serves(shape: Shape, tokens: int) -> bool:
    """Whether there is such a step: of more than FUSED_TOKENS, with the rotation that the kernel is
    instantiated for above and a bf16 cache."""
    return tokens > FUSED_TOKENS and shape.is_neox and shape.is_plain


def rotary_source(original: str) -> str:
    """The device code of vLLM's pos_encoding_kernels.cu, without torch's headers, and an entry."""
    device_code = original.partition("\nvoid rotary_embedding(")[0]
    lines = [line for line in device_code.splitlines() if not line.startswith("#include")]
    return "\n".join([_BEFORE, *lines, _BEHIND])


def defaults(folder: Path, modules: vllm_modules.VllmModules) -> Variant:
    """The variant, with vLLM's files from a folder; for steps of more than FUSED_TOKENS."""
    write_cache = vllm_modules.writer_of(modules)
    text = rotary_source((folder / "csrc" / "pos_encoding_kernels.cu").read_text(encoding="utf-8"))
    launch = gpu.Module(gpu.write_source("vllm_rotary.cu", text)).launch
    one = torch.ones(1, device="cuda")

    @functools.lru_cache(maxsize=1)
    def of_shape(shape: Shape) -> Callable[..., tuple[torch.Tensor, ...]]:
        device = torch.device("cuda")
        any_set = tensors.make_sets(shape, 1, 1, 1, device)[0]
        function = unfused.prologue(
            modules, shape, tensors.make_weights(shape, device), rotates=False
        )
        if not shape.norm:
            return function  # views alone: nothing to compile
        return unfused.compiled(function, any_set.qkv, any_set.positions, any_set.cos_sin_cache)

    def outputs(i: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
        s = i.shape
        with torch.no_grad():
            q, k, v = of_shape(s)(i.qkv, i.positions, i.cos_sin_cache)
            threads = min(s.num_q_heads * s.rot // 2, 512)
            sizes = (s.rot, q.stride(0), k.stride(0), s.num_q_heads, s.num_kv_heads, s.head_dim)
            launch("vllm_rotary", i.tokens, threads, i.positions, q, k, i.cos_sin_cache, *sizes)
            k_cache, v_cache = i.kv_cache.transpose(1, 2).split(s.head_dim, dim=-1)
            write_cache(k, v, k_cache, v_cache, i.slot_mapping, "auto", one, one)
        return q, k

    return Variant(NAME, outputs, outputs, allowed=4, serves=serves)
