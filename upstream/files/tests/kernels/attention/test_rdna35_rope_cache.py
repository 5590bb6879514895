# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The fused QK norm, RoPE and KV cache write of RDNA 3.5 against vLLM's modules."""

from dataclasses import dataclass

import pytest
import torch

from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.layernorm import GemmaRMSNorm, RMSNorm
from vllm.model_executor.layers.rotary_embedding import RotaryEmbedding
from vllm.platforms import current_platform
from vllm.v1.attention.ops import rdna35_rope_cache as op

if not current_platform.is_rocm():
    pytest.skip("Requires ROCm", allow_module_level=True)

from vllm.platforms.rocm import on_gfx1151  # noqa: E402

if not on_gfx1151() or not op.available():
    pytest.skip("Requires gfx1151 and a build for it", allow_module_level=True)

DEVICE = current_platform.device_type
EPS = 1e-6
NUM_BLOCKS = 11


@dataclass(frozen=True)
class Shape:
    num_heads: int
    num_kv_heads: int
    head_size: int
    rotary_dim: int
    is_neox: bool = True


SHAPES = {
    "llama": Shape(32, 8, 128, 128),
    "small": Shape(14, 2, 64, 64),
    "partial-rope": Shape(24, 8, 128, 96),
    "mha-96": Shape(32, 32, 96, 96),
    "gemma-sliding": Shape(8, 1, 256, 256),
    "gemma-full": Shape(16, 2, 512, 128),
    "glm4": Shape(32, 2, 128, 64, is_neox=False),
}


class Inputs:
    """Q, K and V of random values as views of one projection, and a cache of NaN."""

    def __init__(
        self, shape: Shape, num_tokens: int, dtype: torch.dtype, block_size: int = 16
    ) -> None:
        torch.manual_seed(1151)
        self.shape = shape
        self.rope = RotaryEmbedding(
            shape.head_size, shape.rotary_dim, 4096, 10000, shape.is_neox, dtype
        ).to(DEVICE)
        heads = shape.num_heads + 2 * shape.num_kv_heads
        qkv = torch.randn(
            num_tokens, heads, shape.head_size, dtype=dtype, device=DEVICE
        )
        self.q, self.k, self.v = qkv.split(
            [shape.num_heads, shape.num_kv_heads, shape.num_kv_heads], dim=1
        )
        self.positions = torch.randint(0, 4096, (num_tokens,), device=DEVICE)
        self.slots = torch.randperm(NUM_BLOCKS * block_size, device=DEVICE)[:num_tokens]
        self.cache = torch.full(
            (NUM_BLOCKS, shape.num_kv_heads, block_size, 2 * shape.head_size),
            float("nan"),
            dtype=dtype,
            device=DEVICE,
        )

    def run(self, **arguments) -> None:
        cos_sin_cache = self.rope.cos_sin_cache.to(self.q.dtype)
        arguments = {
            "kv_cache": self.cache,
            "slot_mapping": self.slots,
            "eps": EPS,
            "is_neox": self.shape.is_neox,
            **arguments,
        }
        op.rdna35_rope_cache(
            self.positions, self.q, self.k, self.v, cos_sin_cache, **arguments
        )

    def rotated(
        self, q: torch.Tensor, k: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        flat = self.rope.forward_native(self.positions, q.flatten(1), k.flatten(1))
        return flat[0].view_as(q), flat[1].view_as(k)

    def written(self, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        cache = torch.full_like(self.cache, float("nan"))
        block_size = cache.shape[2]
        for token, slot in enumerate(self.slots.tolist()):
            if slot >= 0:
                cache[slot // block_size, :, slot % block_size] = torch.cat(
                    [k[token], v[token]], dim=-1
                )
        return cache


@pytest.fixture(autouse=True)
def _vllm_config():
    with set_current_vllm_config(VllmConfig()):
        yield


def assert_close(actual: torch.Tensor, expected: torch.Tensor, ulps: float) -> None:
    """Compare by the last place of each head's largest value; NaN matches NaN."""
    assert torch.equal(actual.isnan(), expected.isnan())
    actual, expected = actual.nan_to_num(0), expected.nan_to_num(0)
    largest = expected.float().abs().amax(dim=-1, keepdim=True).clamp(min=1e-30)
    ulp = torch.exp2(torch.floor(torch.log2(largest))) * torch.finfo(actual.dtype).eps
    worst = ((actual.float() - expected.float()).abs() / ulp).max().item()
    assert worst <= ulps, f"{worst} units in the last place"


def norm_layer(kind: str, head_size: int, dtype: torch.dtype) -> RMSNorm | GemmaRMSNorm:
    layer = (GemmaRMSNorm if kind == "gemma" else RMSNorm)(head_size, eps=EPS)
    layer = layer.to(device=DEVICE, dtype=dtype)
    # The same weights for Q and K would hide that they are swapped.
    torch.nn.init.normal_(layer.weight, mean=0.5, std=0.3)
    return layer


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("norm", ["none", "rms", "gemma"])
@torch.inference_mode()
def test_matches_unfused_modules(shape: Shape, dtype: torch.dtype, norm: str) -> None:
    inputs = Inputs(shape, 7, dtype)
    q, k, v = inputs.q.clone(), inputs.k.clone(), inputs.v.clone()
    arguments = {}
    if norm != "none":
        q_norm = norm_layer(norm, shape.head_size, dtype)
        k_norm = norm_layer(norm, shape.head_size, dtype)
        q, k = q_norm.forward_native(q), k_norm.forward_native(k)
        arguments = {"q_weight": q_norm.weight, "k_weight": k_norm.weight}
        arguments["weight_offset"] = 1.0 if norm == "gemma" else 0.0
    q, k = inputs.rotated(q, k)
    inputs.run(**arguments)
    assert_close(inputs.q, q, 2)
    assert_close(inputs.k, k, 2)
    assert torch.equal(inputs.v, v)
    head_size = shape.head_size
    expected = inputs.written(k, v)
    assert_close(inputs.cache[..., :head_size], expected[..., :head_size], 2)
    assert torch.equal(
        inputs.cache[..., head_size:].nan_to_num(7),
        expected[..., head_size:].nan_to_num(7),
    )


@torch.inference_mode()
def test_norm_of_v_is_without_weight_and_reaches_the_cache() -> None:
    shape = SHAPES["gemma-sliding"]
    inputs = Inputs(shape, 5, torch.bfloat16)
    plain = RMSNorm(shape.head_size, eps=EPS, has_weight=False)
    expected = plain.forward_native(inputs.v.clone())
    v_out = torch.full_like(inputs.v, float("nan")).contiguous()
    inputs.run(v_norm=True, v_out=v_out)
    assert_close(v_out, expected, 2)
    written = inputs.written(inputs.k, v_out)
    assert torch.equal(inputs.cache.nan_to_num(7), written.nan_to_num(7))


@torch.inference_mode()
def test_negative_and_missing_slots_are_rotated_but_not_written() -> None:
    inputs = Inputs(SHAPES["small"], 6, torch.bfloat16)
    q, k = inputs.rotated(inputs.q.clone(), inputs.k.clone())
    inputs.slots[1] = -1
    inputs.slots = inputs.slots[:4]
    inputs.run()
    assert_close(inputs.q, q, 2)
    assert_close(inputs.k, k, 2)
    expected = inputs.written(inputs.k, inputs.v)
    assert torch.equal(inputs.cache.nan_to_num(7), expected.nan_to_num(7))


@torch.inference_mode()
def test_outputs_leave_the_projection_untouched() -> None:
    inputs = Inputs(SHAPES["llama"], 3, torch.float16)
    before = inputs.q.clone(), inputs.k.clone()
    q_out = torch.full_like(before[0], float("nan"))
    k_out = torch.full_like(before[1], float("nan"))
    inputs.run(q_out=q_out, k_out=k_out)
    assert torch.equal(inputs.q, before[0])
    assert torch.equal(inputs.k, before[1])
    first = inputs.cache.clone()
    inputs.run()
    assert torch.equal(inputs.q, q_out)
    assert torch.equal(inputs.k, k_out)
    assert torch.equal(inputs.cache.nan_to_num(7), first.nan_to_num(7))


def test_wrong_argument_is_named_before_anything_is_written() -> None:
    inputs = Inputs(SHAPES["small"], 2, torch.bfloat16)
    before = inputs.q.clone()
    inputs.slots = inputs.slots.int()
    with pytest.raises(RuntimeError, match="slot_mapping"):
        inputs.run()
    assert torch.equal(inputs.q, before)
    assert inputs.cache.isnan().all()
