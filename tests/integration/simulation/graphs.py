"""The graphs that the passes make of prologues, as text, and whether they are right.

For backends with a cache of any layout: what the hooks write is compared, not caches. Imported on
the machine.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from vllm.compilation.passes.pass_manager import PostGradPassManager
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.forward_context import get_forward_context, set_forward_context
from vllm.v1.attention.backend import AttentionType

from simulation.native_ops import rms_norm, rotary_embedding
from simulation.prologues import MAX_POSITION, Backend, Model, Prologue, served

_TOKENS = 7


@dataclass
class Compiled:
    """What became of some prologues: plain values, which two machines can compare.

    graphs: "after the fusions" and "after all passes", as text. served: the op that writes each
    layer's cache. fault: "" if all that attention and the caches get is as eager's,
    else "wrong: ..." or "crashes: ...".
    """

    graphs: dict[str, str] = field(default_factory=dict)
    served: list[str] = field(default_factory=list)
    fault: str = ""


def compiled(config: VllmConfig, layers: Sequence[Prologue]) -> Compiled:
    """Run prologues on the same random inputs, eagerly and as their graphs are after the passes."""
    torch.manual_seed(0)
    positions = torch.randint(0, MAX_POSITION, (_TOKENS,))
    dtype = config.model_config.dtype
    projected = [torch.randn(_TOKENS, layer.width).to(dtype) for layer in layers]
    model = Model(layers)
    backend = _Interpreted(config)
    torch._dynamo.reset()

    def dynamic(*inputs: Tensor) -> Any:
        for x in inputs:
            torch._dynamo.mark_dynamic(x, 0)
        return torch.compile(model, backend=backend, fullgraph=True)(*inputs)

    def outcome(call: Callable[..., Any]) -> dict[str, list[Tensor]]:
        found: dict[str, list[Tensor]] = {layer.name: [] for layer in layers}
        for layer in layers:
            _record(layer, found[layer.name])
        slots = {layer.name: torch.arange(_TOKENS) for layer in layers}
        with torch.no_grad(), set_current_vllm_config(config), set_forward_context(None, config):
            get_forward_context().slot_mapping = slots
            outputs = call(positions.clone(), *(x.clone() for x in projected))
        for layer, (_, *more) in zip(layers, outputs, strict=True):
            found[layer.name] += more
        return found

    should = outcome(model)
    try:
        found = outcome(dynamic)
    except Exception as e:
        first = str(e).strip().splitlines()[0]
        return Compiled(backend.texts(), fault=f"crashes: {type(e).__name__}: {first}")
    fault = next(filter(None, (_difference(n, found[n], should[n]) for n in should)), "")
    return Compiled(backend.texts(), list(served(backend.graph).values()), fault)


def _difference(name: str, found: list[Tensor], should: list[Tensor]) -> str:
    """The first value of a layer that is not as eager's."""
    if len(found) != len(should):
        return f"wrong: {name}: {len(found)} values instead of {len(should)}"
    for i, (a, b) in enumerate(zip(found, should, strict=True)):
        # One step of the type: fp8 has 3 bits, and 16-bit types have at least 7.
        step = 2**-3 if b.dtype.itemsize == 1 else 2**-6
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"wrong: {name}: value {i} is {_type(a)} instead of {_type(b)}"
        if not torch.allclose(a.float(), b.float(), rtol=step, atol=step / 8):
            return f"wrong: {name}: value {i} is off by {(a.float() - b.float()).abs().max():.3g}"
    return ""


def _record(layer: Prologue, found: list[Tensor]) -> None:
    """Put what is written and what attention gets into `found`: first K and V, then Q.

    The hooks that a layer declares are plain ones, which do what their ops are specified to do.
    """
    impl: Any = layer.attn.impl
    layer.attn.kv_cache = torch.zeros(1)
    decoder = layer.attn.attn_type == AttentionType.DECODER

    def forward(_: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **more: Any) -> None:
        found.append(query.clone())
        if not decoder:  # it has no cache to read K and V from
            found.extend((key.clone(), value.clone()))
        (more["output"] if "output" in more else rest[2]).zero_()

    def write(_: Any, key: Tensor, value: Tensor, *rest: Any) -> None:
        found.extend((key.clone(), value.clone()))

    def rope(
        attn: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        positions: Tensor,
        cos_sin_cache: Tensor,
        is_neox: bool,
        *rest: Any,
    ) -> None:
        rotary_embedding(positions, query, key, layer.head_size, cos_sin_cache, is_neox)
        write(attn, key, value)

    def qk_norm(
        attn: Any,
        qkv: Tensor,
        q_out: Tensor,
        k_out: Tensor,
        positions: Tensor,
        q_weight: Tensor,
        k_weight: Tensor,
        eps: float,
        cos_sin_cache: Tensor,
        is_neox: bool,
        *rest: Any,
    ) -> None:
        normed(qkv, q_out, k_out, q_weight, k_weight, eps)
        rotary_embedding(positions, q_out, k_out, layer.head_size, cos_sin_cache, is_neox)
        write(attn, k_out, heads(qkv)[2])

    def qk_norm_mrope(
        attn: Any,
        qkv: Tensor,
        q_out: Tensor,
        positions: Tensor,
        q_weight: Tensor,
        k_weight: Tensor,
        eps: float,
        cos_sin_cache: Tensor,
        is_neox: bool,
        sections: tuple[int, int, int],
        interleaved: bool,
        rotary_dim: int,
        *rest: Any,
    ) -> None:
        k_out = torch.empty_like(heads(qkv)[1])
        normed(qkv, q_out, k_out, q_weight, k_weight, eps)
        torch.ops.vllm.mrope(
            positions,
            q_out.flatten(1),
            k_out.flatten(1),
            cos_sin_cache,
            layer.head_size,
            rotary_dim,
            *sections,
            interleaved,
            is_neox,
        )
        write(attn, k_out, heads(qkv)[2])

    def heads(qkv: Tensor) -> list[Tensor]:
        return [x.unflatten(-1, (-1, layer.head_size)) for x in qkv.split(layer.sizes, dim=-1)]

    def normed(
        qkv: Tensor, q_out: Tensor, k_out: Tensor, q_weight: Tensor, k_weight: Tensor, eps: float
    ) -> None:
        q, k, _ = heads(qkv)
        rms_norm(q_out, q, q_weight, eps)
        rms_norm(k_out, k, k_weight, eps)

    def skip(*_: Any) -> None:
        """What these hooks do in layers that have no cache; the one with norms does not ask."""

    impl.forward = forward
    impl.do_kv_cache_update = write if decoder else skip
    if impl.fused_rope_kvcache_supported():
        impl.do_rope_and_kv_cache_update = rope if decoder else skip
    if impl.fused_qk_norm_rope_kvcache_supported():
        impl.do_qk_norm_rope_kvcache_update = qk_norm
    if impl.fused_qk_norm_mrope_kvcache_supported():
        impl.do_qk_norm_mrope_kvcache_update = qk_norm_mrope


class _Done(Exception):
    """The passes are done; generating code, which takes long, is not wanted."""


class _Manager(PostGradPassManager):
    def __init__(self, backend: "_Interpreted") -> None:
        super().__init__()
        self.backend = backend

    def __call__(self, graph: fx.Graph) -> None:
        super().__call__(graph)
        module = graph.owning_module
        assert module is not None
        self.backend.final = fx.GraphModule(module, copy.deepcopy(graph))
        raise _Done


class _Interpreted(Backend):
    """Inductor up to the end of vLLM's passes; the graph is interpreted."""

    final: fx.GraphModule | None = None

    def __init__(self, config: VllmConfig) -> None:
        super().__init__(config, largest=64)

    def manager(self) -> PostGradPassManager:
        return _Manager(self)

    def inner_compile(self, *args: Any, **kwargs: Any) -> Callable[[list[Any]], Any]:
        try:
            super().inner_compile(*args, **kwargs)
        except Exception:
            if self.final is None:
                raise
        final = self.final
        assert final is not None

        def call(inputs: list[Any]) -> Any:
            return fx.Interpreter(final).run(*inputs)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    def texts(self) -> dict[str, str]:
        """The graphs that were reached."""
        found = {}
        if hasattr(self, "graph"):
            found["after the fusions"] = as_text(self.graph)
        if self.final is not None:
            found["after all passes"] = as_text(self.final.graph)
        return found


def as_text(graph: fx.Graph) -> str:
    """A line a node: number, op, arguments, and the type of the result.

    Nodes are numbered in their order, and symbolic sizes by first appearance.
    """
    numbers = {node: f"%{i}" for i, node in enumerate(graph.nodes)}
    symbols: dict[str, str] = {}

    def argument(x: Any) -> str:
        match x:
            case fx.Node():
                return numbers[x]
            case list() | tuple():
                return f"[{', '.join(map(argument, x))}]"
            case dict():
                return ", ".join(f"{k}={argument(v)}" for k, v in sorted(x.items()))
        return getattr(x, "value", None) or str(x)

    def result(val: Any) -> str:
        if isinstance(val, Tensor):
            sizes = [_size(x, symbols) for x in (*val.shape, "/", *val.stride())]
            return f"{val.dtype}[{' '.join(sizes)}]"
        if isinstance(val, list | tuple):
            return f"[{', '.join(map(result, val))}]"
        if isinstance(val, torch.SymInt):
            return _size(val, symbols)
        return argument(getattr(val, "real_obj", val))

    def line(node: fx.Node) -> str:
        op = node.op if isinstance(node.target, str) else str(node.target)
        arguments = ", ".join(filter(None, (*map(argument, node.args), argument(node.kwargs))))
        return f"{numbers[node]} = {op}({arguments}): {result(node.meta.get('val'))}"

    return "\n".join(map(line, graph.nodes))


def _size(size: Any, symbols: dict[str, str]) -> str:
    if isinstance(size, torch.SymInt):
        return symbols.setdefault(str(size), f"s{len(symbols)}")
    return str(size)


def _type(x: Tensor) -> str:
    return f"{x.dtype}{list(x.shape)}"
