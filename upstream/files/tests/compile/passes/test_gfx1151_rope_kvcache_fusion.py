# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Both KV cache fusions on gfx1151, where ROCM_ATTN serves them without AITER."""

import json
from dataclasses import dataclass

import pytest
import torch

from tests.compile.backend import TestBackend
from vllm.compilation.passes.fusion.qk_norm_rope_kvcache_fusion import (
    QkNormRopeKvCacheFusionPass,
)
from vllm.compilation.passes.fusion.rope_kvcache_fusion import RopeKVCacheFusionPass
from vllm.compilation.passes.utility.noop_elimination import NoOpEliminationPass
from vllm.compilation.passes.utility.post_cleanup import PostCleanupPass
from vllm.compilation.passes.utility.scatter_split_replace import (
    ScatterSplitReplacementPass,
)
from vllm.compilation.passes.utility.split_coalescing import SplitCoalescingPass
from vllm.config import (
    CacheConfig,
    CompilationConfig,
    CompilationMode,
    ModelConfig,
    PassConfig,
    VllmConfig,
    set_current_vllm_config,
)
from vllm.forward_context import get_forward_context, set_forward_context
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.layernorm import GemmaRMSNorm, RMSNorm
from vllm.model_executor.layers.rotary_embedding import MRotaryEmbedding, RotaryEmbedding
from vllm.platforms import current_platform
from vllm.utils.torch_utils import _encode_layer_name
from vllm.v1.attention.ops import rdna35_rope_cache as op

if not current_platform.is_rocm():
    pytest.skip("Requires ROCm", allow_module_level=True)

from vllm.platforms.rocm import on_gfx1151  # noqa: E402

if not on_gfx1151() or not op.available():
    pytest.skip("Requires gfx1151 and a build for it", allow_module_level=True)

DEVICE = current_platform.device_type
DTYPE = torch.bfloat16
BLOCK_SIZE = 16
EPS = 1e-6


@dataclass(frozen=True)
class Shape:
    num_heads: int
    num_kv_heads: int
    head_size: int
    norm: type | None = None
    v_norm: bool = False
    is_neox: bool = True
    # RoPE gets the heads as they come from the norms.
    rope_by_head: bool = False
    # Behind each head of Q lies its gate.
    gated: bool = False
    # Sections, and whether they are interleaved.
    mrope: tuple[list[int], bool] | None = None


# Layers of one graph. Several shapes used to crash or to get the first one's sizes.
GRAPHS = {
    "llama": [Shape(4, 2, 128), Shape(4, 2, 128)],
    "unequal-heads": [Shape(8, 2, 64), Shape(4, 1, 128)],
    "qwen3-and-llama": [Shape(4, 2, 128, RMSNorm), Shape(6, 2, 128)],
    "gemma3": [Shape(4, 2, 256, GemmaRMSNorm)],
    "glm4": [Shape(4, 2, 128, is_neox=False)],
    "lfm2": [Shape(4, 2, 64, RMSNorm, rope_by_head=True)],
    "qwen3-next": [Shape(4, 2, 64, GemmaRMSNorm, gated=True)],
    "qwen2-vl-and-llama": [
        Shape(4, 2, 128, mrope=([16, 26, 22], False)),
        Shape(4, 1, 64, mrope=([7, 14, 11], False)),
        Shape(4, 2, 128),
    ],
    "qwen3-vl": [
        Shape(4, 2, 128, RMSNorm, mrope=([24, 21, 19], True)),
        Shape(8, 2, 64, RMSNorm, mrope=([11, 9, 12], True)),
    ],
    "gemma4": [
        Shape(4, 1, 256, RMSNorm, v_norm=True),
        Shape(2, 1, 512, RMSNorm, v_norm=True),
    ],
}


class Layer(torch.nn.Module):
    """What a model does between the qkv projection and attention."""

    def __init__(self, vllm_config: VllmConfig, shape: Shape, index: int) -> None:
        super().__init__()
        size = shape.head_size
        self.shape = shape
        q_heads = (1 + shape.gated) * shape.num_heads
        self.sizes = [
            heads * size for heads in (q_heads, shape.num_kv_heads, shape.num_kv_heads)
        ]
        self.layer_name = f"model.layers.{index}.self_attn.attn"
        self.attn = Attention(
            shape.num_heads,
            size,
            size**-0.5,
            num_kv_heads=shape.num_kv_heads,
            cache_config=vllm_config.cache_config,
            prefix=self.layer_name,
        )
        self.attn.process_weights_after_loading(DTYPE)
        rope = (size, size, 512, 10000, shape.is_neox, DTYPE)
        self.rotary_emb = (
            MRotaryEmbedding(*rope, *shape.mrope)
            if shape.mrope
            else RotaryEmbedding(*rope)
        )
        self.norms = torch.nn.ModuleList()
        if shape.norm is not None:
            self.norms.extend(shape.norm(size, eps=EPS) for _ in range(2))
            for norm in self.norms:
                # The same weights for Q and K would hide that they are swapped.
                torch.nn.init.uniform_(norm.weight, -0.5, 1.5)
        self.v_norm = RMSNorm(size, EPS, has_weight=False) if shape.v_norm else None

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], -1, self.shape.head_size)

    def by_head(self, norm: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        return norm(self.heads(x)).view(x.shape)

    def forward(
        self, positions: torch.Tensor, qkv: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        q, k, v = (qkv * 0.75).split(self.sizes, dim=-1)
        gates = []
        if self.shape.gated:
            q_gate = q.view(q.shape[0], self.shape.num_heads, -1)
            q, gate = (x.reshape(x.shape[0], -1) for x in q_gate.chunk(2, dim=-1))
            gates.append(gate)
        if len(self.norms) > 0:
            q, k = self.by_head(self.norms[0], q), self.by_head(self.norms[1], k)
        if self.v_norm is not None:
            v = self.by_head(self.v_norm, v)
        if self.shape.rope_by_head:
            q, k = self.heads(q), self.heads(k)
        rows = positions if self.shape.mrope else positions[0]
        q, k = self.rotary_emb(rows, q, k)
        q, k, v = self.heads(q), self.heads(k), self.heads(v)
        dependency = torch.ops.vllm.unified_kv_cache_update(
            k, v, _encode_layer_name(self.layer_name)
        )
        return q, k, v, *gates, dependency

    def poison_cache(self) -> None:
        shape = (5, self.shape.num_kv_heads, BLOCK_SIZE, 2 * self.shape.head_size)
        self.attn.kv_cache = torch.full(shape, float("nan"), dtype=DTYPE, device=DEVICE)


class Model(torch.nn.Module):
    def __init__(self, layers: list[Layer]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, positions: torch.Tensor, *projected: torch.Tensor) -> list:
        return [
            layer(positions, qkv)
            for layer, qkv in zip(self.layers, projected, strict=True)
        ]


@pytest.fixture
def vllm_config(tmp_path):
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    vllm_config = VllmConfig(
        model_config=ModelConfig(
            model=str(tmp_path),
            tokenizer=str(tmp_path),
            skip_tokenizer_init=True,
            dtype="bfloat16",
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE),
        compilation_config=CompilationConfig(
            mode=CompilationMode.VLLM_COMPILE,
            custom_ops=["+rotary_embedding"],
            splitting_ops=[],
            pass_config=PassConfig(
                fuse_rope_kvcache=True, fuse_qk_norm_rope_kvcache=True
            ),
        ),
    )
    default_dtype = torch.get_default_dtype()
    torch.set_default_dtype(DTYPE)
    with set_current_vllm_config(vllm_config), torch.device(DEVICE):
        yield vllm_config
    torch.set_default_dtype(default_dtype)


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Within 2 units in the last place of each head's largest value."""
    largest = expected.float().abs().amax(dim=-1, keepdim=True).clamp(min=1e-30)
    ulp = torch.exp2(torch.floor(torch.log2(largest))) * torch.finfo(DTYPE).eps
    worst = ((actual.float() - expected.float()).abs() / ulp).max().item()
    assert worst <= 2, f"{worst} units in the last place"


@pytest.mark.parametrize("shapes", GRAPHS.values(), ids=GRAPHS)
@torch.inference_mode()
def test_every_layer_is_fused_and_right(
    shapes: list[Shape], vllm_config: VllmConfig
) -> None:
    torch.manual_seed(1151)
    torch._dynamo.reset()
    num_tokens = 7
    model = Model([Layer(vllm_config, shape, i) for i, shape in enumerate(shapes)])
    positions = torch.randint(0, 512, (3, num_tokens))
    slots = torch.randperm(5 * BLOCK_SIZE)[:num_tokens]
    slots[2] = -1
    projected = [torch.randn(num_tokens, sum(layer.sizes)) for layer in model.layers]

    def run(call) -> tuple[list, list[torch.Tensor]]:
        for layer in model.layers:
            layer.poison_cache()
        with set_forward_context(None, vllm_config):
            get_forward_context().slot_mapping = {
                layer.layer_name: slots for layer in model.layers
            }
            outputs = call(positions, *(qkv.clone() for qkv in projected))
        return outputs, [layer.attn.kv_cache for layer in model.layers]

    expected, _ = run(model)
    rope_pass = RopeKVCacheFusionPass(vllm_config)
    qk_norm_pass = QkNormRopeKvCacheFusionPass(vllm_config)
    backend = TestBackend(
        NoOpEliminationPass(vllm_config),
        SplitCoalescingPass(vllm_config),
        ScatterSplitReplacementPass(vllm_config),
        qk_norm_pass,
        rope_pass,
        PostCleanupPass(vllm_config),
    )
    actual, caches = run(torch.compile(model, backend=backend, fullgraph=True))

    num_normed = sum(shape.norm is not None for shape in shapes)
    assert qk_norm_pass.matched_count == num_normed
    assert rope_pass.matched_count == len(shapes) - num_normed
    assert backend.op_count(torch.ops.vllm.unified_kv_cache_update.default) == 0
    for cache, fused, unfused in zip(caches, actual, expected, strict=True):
        for is_, should in zip(fused[:-1], unfused[:-1], strict=True):
            assert_close(is_, should)
        written = torch.full_like(cache, float("nan"))
        for token, slot in enumerate(slots.tolist()):
            if slot >= 0:
                written[slot // BLOCK_SIZE, :, slot % BLOCK_SIZE] = torch.cat(
                    [fused[1][token], fused[2][token]], dim=-1
                )
        assert torch.equal(cache.nan_to_num(7), written.nan_to_num(7))
