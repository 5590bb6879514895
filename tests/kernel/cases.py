"""Builds one call of the op for a family: asymmetric random inputs in guarded
memory, laid out as vLLM does; and checks everything that the call left behind.
"""

import dataclasses

import torch

from tests.kernel import compare, op
from tests.kernel.compare import Tally
from tests.kernel.families import Family
from tests.kernel.memory import Memory
from tests.kernel.op import Arguments
from tests.kernel.reference import Expected, quantize, rope_cache
from tests.kernel.rope_tables import cos_sin_table

# vLLM's physical orders of a cache over [Layer, Block, Head, N = token in the
# block, Content], outermost first.
LAYOUTS = ("LBNHC", "LBHNC", "LHBNC", "BLHNC", "BLNHC", "BHLNC")
# A case writes layer 1 of 3; the others are guards.
_LAYERS = 3


@dataclasses.dataclass(frozen=True)
class Options:
    """How a case is laid out; sizes in elements.

    joined: q, k, v are views of one qkv row (else of allocations of their own).
    outputs: which of "q", "k", "v" go to q_out, k_out, v_out. weights: None (the
    family's: the activations' dtype) or fp32. slots_mapped: S (default T).
    skip_slots: every third token's slot is negative. row_pad, head_pad: added to
    the token and the head strides. shift: moves tensors off their alignment.
    block_pad: added to the cache's block stride, as hybrid pages do. cache_dtype: of a
    quantized cache (default: the activations' dtype), with scales that are no powers of two.
    """

    block_size: int = 16
    layout: str = "LBNHC"
    block_pad: int = 0
    cache_dtype: torch.dtype | None = None
    joined: bool = True
    outputs: frozenset[str] = frozenset()
    cache: bool = True
    v: bool = True
    weights: torch.dtype | None = None
    slots_mapped: int | None = None
    skip_slots: bool = False
    row_pad: int = 0
    head_pad: int = 0
    shift: int = 0

    def replace(self, **changes: object) -> "Options":
        """These options with some of them changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


DEFAULT = Options()


@dataclasses.dataclass
class Case:
    """A call of the op, its memory, and what the contract says it does."""

    arguments: Arguments
    memory: Memory

    def to(self, device: torch.device) -> "Case":
        """The same call, bit for bit, in memory of another device."""
        memory = self.memory.to(device)
        arguments = self.arguments.map_tensors(lambda x: memory.same_view(self.memory, x))
        return Case(arguments, memory)

    def run(self) -> Expected:
        """Runs the op; returns what the reference expects it to have done."""
        expected = rope_cache(self.arguments)
        self.memory.snapshot()
        op.run(self.arguments)
        return expected

    def run_and_check(
        self, tally: Tally | None = None, q_ulps: float = compare.REFERENCE_ULPS
    ) -> None:
        """Runs the op and checks everything that it left behind."""
        expected = self.run()
        check(self.arguments, expected, tally, q_ulps)
        self.memory.assert_untouched_but(self.written())

    def written(self) -> list[torch.Tensor]:
        """The views that the op may write (of the cache: the mapped rows)."""
        a = self.arguments
        views = [q_of(a)]
        if a.k is not None:
            views.append(k_of(a))
        if a.v_out is not None:
            views.append(a.v_out)
        views += [row for _, row in cache_rows(a)]
        return views


def q_of(a: Arguments) -> torch.Tensor:
    """Where the op leaves Q."""
    return a.q if a.q_out is None else a.q_out


def k_of(a: Arguments) -> torch.Tensor:
    """Where the op leaves K."""
    result = a.k if a.k_out is None else a.k_out
    assert result is not None
    return result


def cache_rows(a: Arguments) -> list[tuple[int, torch.Tensor]]:
    """Each written token with its row [Hkv, 2 * D] of the cache (a view)."""
    if a.kv_cache is None or a.slot_mapping is None:
        return []
    blocks, _, block_size, _ = a.kv_cache.shape
    return [
        (token, a.kv_cache[slot // block_size, :, slot % block_size])
        for token, slot in enumerate(a.slot_mapping.tolist())
        if 0 <= slot < blocks * block_size
    ]


def check(
    a: Arguments,
    expected: Expected,
    tally: Tally | None = None,
    q_ulps: float = compare.REFERENCE_ULPS,
) -> None:
    """Checks every output of a finished call against the reference: within the
    contract's measure (Q within q_ulps), or bit for bit where the op only copies."""
    rot = 0 if a.cos_sin_cache is None else a.cos_sin_cache.shape[-1]
    _check_heads("q", q_of(a), expected.q, rot, _q_is_computed(a), tally, q_ulps)
    if expected.k is not None:
        k_normed = a.k_weight is not None
        _check_heads("k", k_of(a), expected.k, rot, k_normed, tally)
    if a.v_out is not None and expected.v is not None:
        _check_heads("v_out", a.v_out, expected.v, 0, a.v_norm, tally)
    rows = cache_rows(a)
    if not rows:
        return
    assert expected.v is not None
    head_dim = a.q.shape[-1]
    tokens = [token for token, _ in rows]
    cached = torch.stack([row for _, row in rows])
    if a.k_scale is not None and a.v_scale is not None:
        _check_quantized(a, expected.v[tokens], cached, tokens)
        return
    compare.assert_same_bits(
        "K half of the cache against the rotated K",
        cached[..., :head_dim],
        k_of(a)[tokens],
    )
    if a.v_out is not None:
        compare.assert_same_bits(
            "V half of the cache against v_out", cached[..., head_dim:], a.v_out[tokens]
        )
    else:
        _check_heads(
            "V half of the cache",
            cached[..., head_dim:],
            expected.v[tokens],
            0,
            a.v_norm,
            tally,
        )


def _check_quantized(
    a: Arguments, v: torch.Tensor, cached: torch.Tensor, tokens: list[int]
) -> None:
    """The rows [T, Hkv, 2 * D] of a quantized cache: bit for bit what the reference makes of the
    K and V that the op gave. Where it gave no V, and normed it, of the expected one: a last bit
    may make a step of the 8-bit float there."""
    assert a.k_scale is not None and a.v_scale is not None
    head_dim = a.q.shape[-1]
    k = quantize(k_of(a)[tokens].cpu(), a.k_scale.cpu(), cached.dtype)
    compare.assert_same_fp8("K half of the cache", cached[..., :head_dim], k)
    if a.v_out is not None:
        v = a.v_out[tokens].cpu()
    expected = quantize(v, a.v_scale.cpu(), cached.dtype)
    if a.v_out is not None or not a.v_norm:
        compare.assert_same_fp8("V half of the cache", cached[..., head_dim:], expected)
        return
    # Codes of one sign are in order.
    codes = (compare.bits_of(x).short() for x in (cached[..., head_dim:], expected))
    steps = torch.sub(*codes).abs()
    assert int(steps.max()) <= 1, f"V in the cache is {int(steps.max())} steps away"
    assert int((steps > 0).sum()) <= max(2, steps.numel() // 100)


def _q_is_computed(a: Arguments) -> bool:
    return a.q_weight is not None or a.q_scale_beta != 0


def _check_heads(
    name: str,
    actual: torch.Tensor,
    expected: torch.Tensor,
    rot: int,
    computed: bool,
    tally: Tally | None,
    bound: float = compare.REFERENCE_ULPS,
) -> None:
    """Elements past rot are bit copies unless the whole head is computed."""
    if computed or rot:
        compare.assert_close(name, actual, expected, tally, bound)
    if not computed:
        compare.assert_same_bits(f"{name} past rot {rot}", actual[..., rot:], expected[..., rot:])


def build(
    family: Family,
    tokens: int,
    dtype: torch.dtype,
    options: Options = DEFAULT,
    seed: int = 0,
    table: torch.Tensor | None = None,
    device: torch.device | None = None,
) -> Case:
    """One call for a family, deterministic in all its arguments.

    table: the cos/sin table [rows, rot] in place of the family's own formula.
    """
    memory = Memory(torch.device("cpu"))
    random = torch.Generator().manual_seed(seed)
    f, o = family, options
    q, k, v = _qkv(memory, random, f, tokens, dtype, o)
    positions = _positions(memory, random, f, tokens)
    arguments = Arguments(
        positions=positions,
        q=q,
        k=k,
        v=v,
        v_norm=f.v_norm and v is not None,
        eps=f.eps,
        pos_offset=f.pos_offset,
        q_scale_beta=f.q_scale_beta,
        q_scale_orig_max=f.q_scale_orig_max,
        weight_offset=f.weight_offset,
        is_neox=f.is_neox,
        mrope_section=None if f.mrope_section is None else list(f.mrope_section),
        mrope_interleaved=f.mrope_interleaved,
    )
    if f.rope is not None:
        if table is None:
            table = cos_sin_table(f.rope, dtype)
        held = memory.allocate("cos_sin_cache", tuple(table.shape), dtype, shift=o.shift)
        arguments = arguments.replace(cos_sin_cache=held.copy_(table))
    if f.norm:
        arguments = arguments.replace(**_weights(memory, random, f, dtype, o))
    for name, like in (("q", q), ("k", k), ("v", v)):
        if like is not None and name in o.outputs:
            out = memory.allocate(
                f"{name}_out",
                tuple(like.shape),
                dtype,
                _head_strides(like.shape[1], f.head_dim, o),
                o.shift,
            )
            arguments = arguments.replace(**{f"{name}_out": out})
    if o.cache and k is not None and v is not None:
        arguments = arguments.replace(**_cache(memory, random, f, tokens, dtype, o))
    case = Case(arguments, memory)
    device = op.device() if device is None else device
    return case if device.type == "cpu" else case.to(device)


def _head_strides(heads: int, head_dim: int, o: Options) -> tuple[int, int, int]:
    head_stride = head_dim + o.head_pad
    return heads * head_stride + o.row_pad, head_stride, 1


def _qkv(
    memory: Memory,
    random: torch.Generator,
    f: Family,
    tokens: int,
    dtype: torch.dtype,
    o: Options,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """q, k, v: views of one row [q (and its gates) | k | v], or separate."""
    q_head = f.head_dim * (2 if f.gated else 1) + o.head_pad
    kv_head = f.head_dim + o.head_pad
    has_kv = f.num_kv_heads > 0
    parts = {"q": (f.num_q_heads, q_head)}
    if has_kv:
        parts["k"] = (f.num_kv_heads, kv_head)
        if o.v:
            parts["v"] = (f.num_kv_heads, kv_head)
    views: dict[str, torch.Tensor] = {}
    if o.joined:
        width = sum(heads * stride for heads, stride in parts.values()) + o.row_pad
        row = memory.allocate("qkv", (tokens, width), dtype, shift=o.shift)
        begin = 0
        for name, (heads, stride) in parts.items():
            views[name] = row.as_strided(
                (tokens, heads, f.head_dim),
                (width, stride, 1),
                row.storage_offset() + begin,
            )
            begin += heads * stride
    else:
        for name, (heads, stride) in parts.items():
            views[name] = memory.allocate(
                name,
                (tokens, heads, f.head_dim),
                dtype,
                (heads * stride + o.row_pad, stride, 1),
                o.shift,
            )
    for view in views.values():
        heads = view.shape[1]
        # Heads of different sizes: a head in another's place shows.
        size = 0.4 + 2.0 * torch.rand(1, heads, 1, generator=random)
        view.copy_(torch.randn(view.shape, generator=random) * size)
    return views["q"], views.get("k"), views.get("v")


def _positions(memory: Memory, random: torch.Generator, f: Family, tokens: int) -> torch.Tensor:
    position = torch.randint(0, f.max_position, (tokens,), generator=random)
    # The ends of the table; from a random first token on, so that T = 1 is not
    # always position 0.
    if tokens > 2:
        position[1], position[2] = 0, f.max_position - 1
    if f.position_rows == 1:
        held = memory.allocate("positions", (tokens,), torch.int64)
        return held.copy_(position)
    held = memory.allocate("positions", (f.position_rows, tokens), torch.int64, (tokens + 5, 1))
    held.copy_(position.expand(f.position_rows, -1))
    if f.mrope_section is not None:
        held[1:].copy_(torch.randint(0, f.max_position, (2, tokens), generator=random))
    return held


def _weights(
    memory: Memory,
    random: torch.Generator,
    f: Family,
    dtype: torch.dtype,
    o: Options,
) -> dict[str, torch.Tensor]:
    weights = {}
    for name, mean in (("q", 1.25), ("k", 0.75)):
        if name == "k" and f.num_kv_heads == 0:
            continue
        held = memory.allocate(f"{name}_weight", (f.head_dim,), o.weights or dtype, shift=o.shift)
        spread = 0.3 * torch.randn(f.head_dim, generator=random)
        weights[f"{name}_weight"] = held.copy_(spread + mean - f.weight_offset)
    return weights


def _cache(
    memory: Memory,
    random: torch.Generator,
    f: Family,
    tokens: int,
    dtype: torch.dtype,
    o: Options,
) -> dict[str, torch.Tensor]:
    blocks = (tokens + 3) // o.block_size + 2
    cache = paged_cache(
        memory,
        (blocks, f.num_kv_heads, o.block_size, 2 * f.head_dim),
        o.cache_dtype or dtype,
        o.layout,
        o.block_pad,
        o.shift,
    )
    # The last slot is nobody's: the guards of slot_mapping name it, so that a
    # slot read past the end shows as a damaged cache.
    slots = torch.randperm(blocks * o.block_size - 1, generator=random)
    mapped = tokens if o.slots_mapped is None else o.slots_mapped
    held = memory.allocate("slot_mapping", (mapped,), torch.int64, fill=blocks * o.block_size - 1)
    held.copy_(slots[:mapped])
    if o.skip_slots:
        held[1::3] = -1
    given = {"kv_cache": cache, "slot_mapping": held}
    if o.cache_dtype is not None:
        for name, scale in (("k_scale", 0.0173), ("v_scale", 0.0061)):
            given[name] = memory.allocate(name, (1,), torch.float32).fill_(scale)
    return given


def paged_cache(
    memory: Memory,
    shape: tuple[int, int, int, int],
    dtype: torch.dtype,
    layout: str,
    block_pad: int = 0,
    shift: int = 0,
) -> torch.Tensor:
    """One layer's poisoned cache, logical [blocks, Hkv, block_size, 2 * D], of
    a cache of several layers in one of vLLM's physical layouts."""
    blocks, heads, block_size, content = shape
    sizes = {"L": _LAYERS, "B": blocks, "H": heads, "N": block_size, "C": content}
    stride, step = {}, 1
    for axis in reversed(layout):
        if axis == "B":
            step += block_pad
        stride[axis] = step
        step *= sizes[axis]
    whole = memory.allocate(
        "kv_cache",
        (_LAYERS, *shape),
        dtype,
        tuple(stride[axis] for axis in "LBHNC"),
        shift,
    )
    return whole[1]
