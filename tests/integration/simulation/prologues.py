"""Attention prologues as models have them, compiled with the passes. Imported on the machine.

A prologue is what a model does between its qkv projection and attention. `run` runs some of them,
as one graph, eagerly and compiled, and tells what became of them.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.auto_functionalize import auto_functionalized
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from vllm.compilation.passes.inductor_pass import InductorPass, pass_context
from vllm.compilation.passes.ir.inplace_functionalization import (
    VllmIRInplaceFunctionalizationPass,
)
from vllm.compilation.passes.pass_manager import PostGradPassManager
from vllm.config import (
    CompilationConfig,
    CompilationMode,
    PassConfig,
    VllmConfig,
    set_current_vllm_config,
)
from vllm.config.utils import Range
from vllm.forward_context import get_forward_context, set_forward_context
from vllm.model_executor.layers.layernorm import GemmaRMSNorm, RMSNorm
from vllm.model_executor.layers.rotary_embedding import MRotaryEmbedding, RotaryEmbedding
from vllm.model_executor.models.mistral import MistralAttention
from vllm.v1.attention.backend import AttentionType

from simulation.layers import attention, compare, default_dtype, packed_cache, write_packed
from simulation.models import vllm_config

UNFUSED = "unified_kv_cache_update"
ROPE = "fused_rope_into_and_unified_kv_cache_update"
ROPE_IN_PLACE = "fused_rope_and_unified_kv_cache_update"
QK_NORM = "fused_qk_norm_rope_and_unified_kv_cache_update"
QKV_NORM = "fused_qkv_norm_rope_and_unified_kv_cache_update"

BLOCK_SIZE = 16
MAX_POSITION = 512


def fusing_config(
    custom_ops: Sequence[str] = ("+rotary_embedding",),
    rope: bool = True,
    qk_norm: bool = True,
    dtype: str = "bfloat16",
    **configs: Any,
) -> VllmConfig:
    """A small model's configuration with the fusions on or off, whatever the defaults are."""
    config = vllm_config(
        model={"dtype": dtype},
        compilation_config=CompilationConfig(
            mode=CompilationMode.VLLM_COMPILE,
            custom_ops=list(custom_ops),
            splitting_ops=[],
            pass_config=PassConfig(fuse_rope_kvcache=False, fuse_qk_norm_rope_kvcache=False),
        ),
        **configs,
    )
    passes = config.compilation_config.pass_config
    passes.fuse_rope_kvcache, passes.fuse_qk_norm_rope_kvcache = rope, qk_norm
    return config


Body = Callable[["Prologue", Tensor, Tensor], tuple[Any, ...]]


class Prologue(torch.nn.Module):
    """A layer of one kind, whose weights are random and never one.

    norm: "", "rms" or "gemma" for Q and K. v_norm: V's norm, without a weight. by_head: RoPE gets
    [T, H, D], straight from the norms. gated: behind each head of Q lies its gate. q_scaling: beta
    and the context of Ministral 3's scaling of Q by its positions. mrope: M-RoPE's sections, and
    whether interleaved; without, only the first row of positions [3, T] is used. width: of the
    projection's output, if there is more in it than that. body: what the model does, if not the
    usual: (layer, positions, qkv) to q, k and v for attention, and values to return besides.
    modules: makes what such a body uses, with the model's dtype as default.
    """

    def __init__(
        self,
        config: VllmConfig,
        num_heads: int,
        num_kv_heads: int,
        head_size: int,
        *,
        norm: str = "",
        v_norm: bool = False,
        by_head: bool = False,
        gated: bool = False,
        q_scaling: tuple[float, float] | None = None,
        rotary_dim: int | None = None,
        eps: float = 1e-6,
        is_neox: bool = True,
        mrope: tuple[list[int], bool] | None = None,
        width: int | None = None,
        name: str | None = None,
        body: Body | None = None,
        modules: Callable[[], dict[str, torch.nn.Module]] | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__()
        registered = config.compilation_config.static_forward_context
        self.name = name or f"model.layers.{len(registered)}.self_attn.attn"
        self.attn = attention(
            config, num_heads, num_kv_heads, head_size, name=self.name, **arguments
        )
        self.num_heads, self.num_kv_heads, self.head_size = num_heads, num_kv_heads, head_size
        self.sizes = [n * head_size for n in (num_heads, num_kv_heads, num_kv_heads)]
        self.split_sizes = [(1 + gated) * self.sizes[0], *self.sizes[1:]]
        self.width = width or sum(self.split_sizes)
        self.body = body or usual
        self.normed, self.by_head, self.gated = bool(norm), by_head, gated
        self.mrope = mrope
        self.do_llama_4_scaling = q_scaling is not None
        if q_scaling is not None:
            beta, context = q_scaling
            self.llama_4_scaling_beta = beta
            self.llama_4_scaling_original_max_position_embeddings = context
        dtype = config.model_config.dtype
        with set_current_vllm_config(config), default_dtype(dtype):
            rotary = (head_size, rotary_dim or head_size, MAX_POSITION, 1e4, is_neox, dtype)
            self.rotary = MRotaryEmbedding(*rotary, *mrope) if mrope else RotaryEmbedding(*rotary)
            if norm:
                kind = {"rms": RMSNorm, "gemma": GemmaRMSNorm}[norm]
                self.q_norm, self.k_norm = kind(head_size, eps), kind(head_size, eps)
                self.q_norm.weight.data.uniform_(-0.5, 1.5)
                self.k_norm.weight.data.uniform_(-0.5, 1.5)
            self.v_norm = RMSNorm(head_size, eps, has_weight=False) if v_norm else None
            for module_name, module in (modules() if modules else {}).items():
                for parameter in module.parameters():
                    parameter.data.uniform_(-0.5, 1.5)
                self.add_module(module_name, module)

    def norm_heads(self, norm: torch.nn.Module, x: Tensor) -> Tensor:
        """The norm over each head of `[T, heads * head_size]`; of that shape, or by head."""
        x = norm(x.unflatten(-1, (-1, self.head_size)))
        return x if self.by_head else x.flatten(-2)

    def q_factor(self, positions: Tensor) -> Tensor:
        """What Ministral 3 multiplies Q by, `[T, 1]`."""
        return MistralAttention._get_llama_4_attn_scale(self, positions)

    def forward(self, positions: Tensor, qkv: Tensor) -> tuple[Any, ...]:
        if positions.dim() == 2 and not self.mrope:
            positions = positions[0]
        q, k, v, *more = self.body(self, positions, qkv)
        return self.attn(q, k, v), *more


def usual(layer: Prologue, positions: Tensor, qkv: Tensor) -> tuple[Tensor, ...]:
    """What Llama and Qwen3 do, their VL models with M-RoPE, LFM2 by head, Gemma 4 with the norm of
    V, Qwen3-Next with a gate, Ministral 3 with a scaled Q."""
    q, k, v = qkv.split(layer.split_sizes, dim=-1)
    gates = []
    if layer.gated:
        halves = q.view(-1, layer.num_heads, 2 * layer.head_size).chunk(2, dim=-1)
        q, gate = (half.reshape(-1, layer.sizes[0]) for half in halves)
        gates.append(gate.sigmoid())
    if layer.normed:
        q, k = layer.norm_heads(layer.q_norm, q), layer.norm_heads(layer.k_norm, k)
    if layer.v_norm is not None:
        v = layer.norm_heads(layer.v_norm, v)
    q, k = layer.rotary(positions, q, k)
    if layer.do_llama_4_scaling:
        q = (q * layer.q_factor(positions)).to(q.dtype)
    return q.flatten(1), k.flatten(1), v, *gates


@dataclass
class Outcome:
    """What one run left: attention's inputs, the caches, and what else the model returned."""

    inputs: dict[str, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict)
    caches: dict[str, Tensor] = field(default_factory=dict)
    returned: dict[str, list[Tensor]] = field(default_factory=dict)


@dataclass
class Run:
    """Both outcomes, and which op served each layer (its name in vLLM's namespace)."""

    eager: Outcome
    compiled: Outcome
    served: dict[str, str]
    graph: torch.fx.Graph
    mapping: Tensor | None
    with_cache: frozenset[str]

    def served_in_order(self) -> list[str]:
        return list(self.served.values())

    def assert_right(self) -> None:
        """Attention's inputs and all that is returned within the contract of eager's, and each
        cache exactly what a write of those inputs leaves."""
        assert not (faults := self.faults()), "\n".join(faults.values())

    def faults(self) -> dict[str, str]:
        """What is not so, by the layer's name; the first thing of each layer."""
        found = {}
        assert self.eager.inputs.keys() == self.compiled.inputs.keys()
        for name in self.eager.inputs:
            try:
                self._assert_layer_right(name)
            except AssertionError as e:
                found[name] = f"{name}: {e}"
        return found

    def _assert_layer_right(self, name: str) -> None:
        check = compare()
        pairs = zip(self.compiled.inputs[name], self.eager.inputs[name], strict=True)
        for which, (is_, should) in zip("qkv", pairs, strict=True):
            check.assert_close(which, is_, should, bound=check.NATIVE_ULPS)
        cache = torch.full_like(self.eager.caches[name], float("nan"))
        if self.mapping is not None and name in self.with_cache:
            _, key, value = self.compiled.inputs[name]
            write_packed(cache, key, value, self.mapping)
        check.assert_same_bits("cache", self.compiled.caches[name], cache)
        returned = zip(self.compiled.returned[name], self.eager.returned[name], strict=True)
        for i, (is_, should) in enumerate(returned):
            # First attention's output, which is the query here; the rest is not of heads.
            size = self.eager.inputs[name][0].shape[-1] if i == 0 else 32
            heads = (x.reshape(x.shape[0], -1, size) for x in (is_, should))
            check.assert_close(f"returned {i}", *heads, bound=check.NATIVE_ULPS)


class Model(torch.nn.Module):
    def __init__(self, layers: Sequence[Prologue]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, positions: Tensor, *projected: Tensor) -> list[tuple[Tensor, ...]]:
        # The product stands for the projection: its result is a fresh tensor of the graph.
        return [
            layer(positions, qkv * 0.75) for layer, qkv in zip(self.layers, projected, strict=True)
        ]


def run(
    config: VllmConfig,
    layers: Sequence[Prologue],
    tokens: int = 7,
    slots: bool = True,
    largest: int = 64,
    seed: int = 0,
) -> Run:
    """Run prologues on the same random inputs, eagerly and compiled.

    tokens: T; the last one's slot is -1. slots: whether there is a slot mapping. largest: the end
    of the compile range.
    """
    torch.manual_seed(seed)
    dtype = config.model_config.dtype
    rows = [3] if any(layer.mrope for layer in layers) else []
    positions = torch.randint(0, MAX_POSITION, (*rows, tokens))
    projected = [torch.randn(tokens, layer.width).to(dtype) for layer in layers]
    mapping = torch.randperm(4 * BLOCK_SIZE)[:tokens]
    mapping[-1] = -1
    model = Model(layers)
    backend = Backend(config, largest)

    def outcome(call: Callable[..., list[tuple[Tensor, ...]]]) -> Outcome:
        found = Outcome()
        for layer in layers:
            _record(layer, found)
        with torch.no_grad(), set_current_vllm_config(config), set_forward_context(None, config):
            get_forward_context().slot_mapping = (
                {layer.name: mapping for layer in layers} if slots else {}
            )
            inputs = [x.clone() for x in (positions, *projected)]
            outputs = call(*inputs)
        for layer, values in zip(layers, outputs, strict=True):
            found.returned[layer.name] = [x.clone() for x in values]
        found.caches = {layer.name: layer.attn.kv_cache for layer in layers}
        return found

    eager = outcome(model)
    torch._dynamo.reset()
    compiled_model = torch.compile(model, backend=backend, fullgraph=True)

    def dynamic(*inputs: Tensor) -> list[tuple[Tensor, ...]]:
        positions, *projected = inputs
        torch._dynamo.mark_dynamic(positions, positions.dim() - 1)
        for x in projected:
            torch._dynamo.mark_dynamic(x, 0)
        return compiled_model(*inputs)

    compiled = outcome(dynamic)
    with_cache = frozenset(
        layer.name
        for layer in layers
        if layer.attn.attn_type == AttentionType.DECODER
        and layer.attn.kv_sharing_target_layer_name is None
    )
    written = mapping if slots else None
    return Run(eager, compiled, served(backend.graph), backend.graph, written, with_cache)


def _record(layer: Prologue, found: Outcome) -> None:
    """Give the layer a poisoned cache, and put what attention is called with into `found`."""
    attn, name = layer.attn, layer.name
    attn.kv_cache = packed_cache(5, layer.num_kv_heads, BLOCK_SIZE, layer.head_size, attn.dtype)

    def forward(_: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **more: Any) -> None:
        found.inputs[name] = (query.clone(), key.clone(), value.clone())
        output = more["output"] if "output" in more else rest[2]
        output.copy_(query)

    attn.impl.forward = forward


class Backend:
    """Inductor with vLLM's own passes in their own order; keeps the graph after the fusions."""

    def __init__(self, config: VllmConfig, largest: int) -> None:
        self.config = config
        self.range = Range(1, largest)
        self.graph: torch.fx.Graph

    def __call__(self, module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        settings = copy.deepcopy(self.config.compilation_config.inductor_compile_config)
        settings["force_disable_caches"] = True
        settings["pre_grad_custom_pass"] = VllmIRInplaceFunctionalizationPass(self.config)
        with pass_context(self.range):
            manager = self.manager()
            manager.configure(self.config)
            manager.add(_Keep(self))
            settings["post_grad_custom_post_pass"] = manager
            return compile_fx(
                module, inputs, inner_compile=self.inner_compile, config_patches=settings
            )

    def manager(self) -> PostGradPassManager:
        """What runs the passes, not configured yet."""
        return PostGradPassManager()

    def inner_compile(self, *args: Any, **kwargs: Any) -> Any:
        """What becomes of a graph that autograd and functionalization are done with."""
        return compile_fx_inner(*args, **kwargs)


class _Keep(InductorPass):
    """The last of the passes that fuse: before ops are lowered and put back in place."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def __call__(self, graph: torch.fx.Graph) -> None:
        self.backend.graph = copy.deepcopy(graph)


def served(graph: torch.fx.Graph) -> dict[str, str]:
    """The op that writes each layer's cache, by the layer's name."""
    found: dict[str, str] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        functional = node.target is auto_functionalized
        op = node.args[0] if functional else node.target
        name = getattr(op, "_schema", None) and op._schema.name
        if not name or not name.endswith("unified_kv_cache_update"):
            continue
        layer = node.kwargs["layer_name"] if functional else node.args[2]
        if isinstance(layer, torch.fx.Node):
            layer = layer.meta["val"].real_obj
        found[getattr(layer, "value", layer)] = name.removeprefix("vllm::")
    return found
