"""What vLLM runs where nothing is fused: Inductor's kernels for norm and RoPE, then its Triton
writer of the cache."""

import functools
import itertools
import types
from collections.abc import Callable

import torch

from scripts.bench import inputs as tensors
from scripts.bench import vllm_modules
from scripts.bench.inputs import Inputs
from scripts.bench.shapes import Shape
from scripts.bench.variants import Variant

# As vLLM 0.33.0's CompilationConfig sets them; a test compares. No guards, as vLLM drops them: one
# graph, traced with a dynamic T at vLLM's largest batch, serves every T.
OPTIONS = {"combo_kernels": True, "benchmark_combo_kernel": True}
_TRACED_TOKENS = 2048
_numbers = itertools.count()


# (qkv [T, row], positions [T] or [3, T], cos/sin table) -> q [T, Hq, D], k and v [T, Hkv, D]
Prologue = Callable[
    [torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor, torch.Tensor]
]


def prologue(
    modules: vllm_modules.VllmModules,
    shape: Shape,
    weights: tuple[torch.Tensor, torch.Tensor] | None,
    *,
    rotates: bool = True,
) -> Prologue:
    """A layer's code between the qkv projection and attention, as vLLM's models have it.

    Returns a function of (qkv [T, row], positions [T] or [3, T], cos/sin table) giving q
    [T, Hq, D], k and v [T, Hkv, D]; without `rotates`, from before RoPE.
    """
    head_dim = shape.head_dim
    q_size, kv_size = shape.num_q_heads * head_dim, shape.num_kv_heads * head_dim
    norms = []
    for weight in weights or ():
        if shape.norm == "gemma":
            norm = modules.GemmaRMSNorm(head_dim, eps=tensors.EPS)
        else:
            norm = modules.RMSNorm(head_dim, eps=tensors.EPS, dtype=weight.dtype)
        norm = norm.to(device=weight.device, dtype=weight.dtype)
        norm.load_state_dict({"weight": weight})
        norms.append(norm)
    rotate = _by_sections(modules, shape) if shape.mrope_section else modules.rotate

    def run(
        qkv: torch.Tensor, positions: torch.Tensor, table: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if shape.gated:
            q_gate, k, v = qkv.split([2 * q_size, kv_size, kv_size], dim=-1)
            by_head = q_gate.view(q_gate.shape[0], shape.num_q_heads, 2 * head_dim)
            q = by_head.chunk(2, dim=-1)[0].reshape(q_gate.shape[0], q_size)
        else:
            q, k, v = qkv.split([q_size, kv_size, kv_size], dim=-1)
        if norms:
            q = norms[0](q.view(q.shape[0], -1, head_dim)).view(q.shape)
            k = norms[1](k.view(k.shape[0], -1, head_dim)).view(k.shape)
        if rotates:
            q, k = rotate(positions, q, k, head_dim, shape.rot, table, shape.is_neox)
        heads = (-1, head_dim)
        return q.unflatten(-1, heads), k.unflatten(-1, heads), v.unflatten(-1, heads)

    return run


class _OfTable:
    """An MRotaryEmbedding whose cos_sin_cache is a table that comes with the call, for what its
    forward_native reads of a module: each set of tensors has a table of its own."""

    def __init__(self, module: torch.nn.Module, table: torch.Tensor) -> None:
        self.table = table
        self.mrope_section = module.mrope_section
        self.mrope_interleaved = module.mrope_interleaved
        self.head_size = module.head_size
        self.rotary_dim = module.rotary_dim
        self.apply_rotary_emb = module.apply_rotary_emb

    def _match_cos_sin_cache_dtype(self, query: torch.Tensor) -> torch.Tensor:
        return self.table


def _by_sections(
    modules: vllm_modules.VllmModules, shape: Shape
) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """M-RoPE of a shape, with the arguments of `modules.rotate` but for positions [3, T]."""
    assert shape.mrope_section
    module = modules.MRotaryEmbedding(
        shape.head_dim,
        shape.rot,
        1,  # position: its own table is not looked at
        1e4,
        shape.is_neox,
        torch.bfloat16,
        mrope_section=list(shape.mrope_section),
        mrope_interleaved=shape.mrope_interleaved,
    )
    forward = modules.MRotaryEmbedding.forward_native

    def rotate(
        positions: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        head_dim: int,
        rot: int,
        table: torch.Tensor,
        is_neox: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return forward(_OfTable(module, table), positions, q, k)

    return rotate


def compiled(function: Prologue, qkv: torch.Tensor, *arguments: torch.Tensor) -> Prologue:
    """The function through Inductor, with T (qkv's and the first argument's) dynamic; compiled by a
    first call with _TRACED_TOKENS tokens made from the given ones."""
    # Compiled code is found by the code object, and its guards, which would tell one shape's from
    # another's, are dropped: each gets a code object of its own.
    assert isinstance(function, types.FunctionType)
    code = function.__code__.replace(co_name=f"prologue_{next(_numbers)}")
    result = torch.compile(
        types.FunctionType(code, function.__globals__, code.co_name, None, function.__closure__),
        fullgraph=True,
        dynamic=False,
        options={**OPTIONS, "guard_filter_fn": lambda guards: [False for _ in guards]},
    )
    positions, *others = arguments
    many = qkv[:1].expand(_TRACED_TOKENS, -1).contiguous()
    # In rows as far apart as the given ones'.
    many_positions = torch.empty_strided(
        (*positions.shape[:-1], _TRACED_TOKENS),
        positions.stride(),
        dtype=positions.dtype,
        device=positions.device,
    )
    many_positions.copy_(positions[..., :1].expand(many_positions.shape))
    torch._dynamo.mark_dynamic(many, 0)
    torch._dynamo.mark_dynamic(many_positions, positions.dim() - 1)
    result(many, many_positions, *others)
    return result


def unfused(modules: vllm_modules.VllmModules) -> Variant:
    """The variant. Compiles when the shape changes."""
    write_cache = vllm_modules.writer_of(modules)

    @functools.lru_cache(maxsize=1)
    def of_shape(shape: Shape) -> Prologue:
        device = torch.device("cuda")
        any_set = tensors.make_sets(shape, 1, 1, 1, device)[0]
        function = prologue(modules, shape, tensors.make_weights(shape, device))
        return compiled(function, any_set.qkv, any_set.positions, any_set.cos_sin_cache)

    one = torch.ones(1, device="cuda")

    def write(i: Inputs, k: torch.Tensor, v: torch.Tensor) -> None:
        k_cache, v_cache = i.kv_cache.transpose(1, 2).split(i.shape.head_dim, dim=-1)
        if i.shape.fp8:
            write_cache(k, v, k_cache, v_cache, i.slot_mapping, "fp8", i.k_scale, i.v_scale)
        else:
            write_cache(k, v, k_cache, v_cache, i.slot_mapping, "auto", one, one)

    def outputs(i: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            q, k, v = of_shape(i.shape)(i.qkv, i.positions, i.cos_sin_cache)
            write(i, k, v)
        return q, k

    return Variant("unfused", outputs, outputs, allowed=4)
