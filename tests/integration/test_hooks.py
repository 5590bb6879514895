"""The hooks of ROCM_ATTN's gfx1151 class, called as the fused ops call them, on CPU tensors.

What is expected comes from vLLM's own modules and from a plain write into the cache.
"""

import contextlib
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from simulation import simulated

MAX_POSITION = 512
EPS = 1e-6


@dataclass(frozen=True)
class Shape:
    """Heads of a layer. norm: "", "rms" or "gemma"; v_norm: V's weightless norm; is_neox: RoPE
    turns pairs half a rotary dimension apart, not adjacent ones; gated: behind each head of Q lies
    a gate; q_scaling: beta and the context of Llama 4's scaling of Q, which is short, so that most
    positions are past it; mrope: M-RoPE's sections, and whether interleaved."""

    num_heads: int
    num_kv_heads: int
    head_size: int
    rotary_dim: int
    norm: str = ""
    v_norm: bool = False
    is_neox: bool = True
    gated: bool = False
    q_scaling: tuple[float, int] | None = None
    mrope: tuple[tuple[int, ...], bool] | None = None

    @property
    def parts(self) -> list[int]:
        """How many heads wide Q with its gates, K and V are."""
        return [(1 + self.gated) * self.num_heads, self.num_kv_heads, self.num_kv_heads]


SHAPES = {
    "llama 32/8/128": Shape(32, 8, 128, 128),
    "small 14/2/64": Shape(14, 2, 64, 64),
    "phi 32/32/96": Shape(32, 32, 96, 96),
    "nemotron 5/1/128, rot 78": Shape(5, 1, 128, 78),
    "cohere 24/8/128": Shape(24, 8, 128, 128, is_neox=False),
    "glm4 32/2/128, rot 64": Shape(32, 2, 128, 64, is_neox=False),
    "gemma 8/4/256": Shape(8, 4, 256, 256),
    "gemma 16/2/512": Shape(16, 2, 512, 512),
    "qwen3 32/8/128": Shape(32, 8, 128, 128, "rms"),
    "partial 6/2/128, rot 64": Shape(6, 2, 128, 64, "rms"),
    "adjacent pairs 6/2/128, rot 64": Shape(6, 2, 128, 64, "rms", is_neox=False),
    "gemma3 16/8/256": Shape(16, 8, 256, 256, "gemma"),
    "gemma4 8/1/256": Shape(8, 1, 256, 256, "rms", v_norm=True),
    "gemma4 16/2/512": Shape(16, 2, 512, 512, "rms", v_norm=True),
    "qwen3.5 8/2/256, rot 64": Shape(8, 2, 256, 64, "gemma", gated=True),
    "gated, adjacent pairs 3/1/96": Shape(3, 1, 96, 96, "rms", is_neox=False, gated=True),
    "ministral 32/8/128": Shape(32, 8, 128, 128, q_scaling=(0.1, 16)),
    "qwen2-vl 12/2/128": Shape(12, 2, 128, 128, mrope=((17, 25, 22), False)),
    "glm4.1v 24/2/128, rot 64": Shape(24, 2, 128, 64, is_neox=False, mrope=((8, 13, 11), False)),
    "interleaved 8/2/256, rot 64": Shape(8, 2, 256, 64, mrope=((11, 9, 12), True)),
    "qwen3-vl 32/8/128": Shape(32, 8, 128, 128, "rms", mrope=((24, 21, 19), True)),
    "chunked 6/1/64 after a norm": Shape(6, 1, 64, 64, "rms", mrope=((9, 13, 10), False)),
    "adjacent pairs 4/1/128, interleaved": Shape(
        4, 1, 128, 128, "rms", is_neox=False, mrope=((23, 19, 22), True)
    ),
    "gemma norm 8/2/256, rot 64": Shape(8, 2, 256, 64, "gemma", mrope=((13, 10, 9), True)),
    "qwen3.5 of images 8/2/256, rot 64": Shape(
        8, 2, 256, 64, "gemma", gated=True, mrope=((11, 9, 12), True)
    ),
    "rope": Shape(4, 2, 64, 64),
    "scaled": Shape(4, 2, 64, 32, is_neox=False, q_scaling=(0.7, 9)),
    "norm": Shape(4, 2, 64, 64, "rms"),
    "gated": Shape(4, 2, 64, 64, "rms", gated=True),
    "mrope": Shape(4, 2, 64, 64, mrope=((7, 14, 11), False)),
    "mrope norm": Shape(4, 2, 64, 64, "rms", mrope=((14, 7, 11), True)),
    "head size 80": Shape(4, 2, 80, 80),
}
ROPE_SHAPES = [n for n, shape in SHAPES.items() if not shape.norm and shape.head_size != 80]
NORM_SHAPES = [n for n, shape in SHAPES.items() if shape.norm]
EACH_HOOK = ["rope", "scaled", "norm", "gated", "mrope", "mrope norm"]


class Case:
    """A layer with random inputs, a poisoned cache, and what the model's modules make of them.

    blocks: of the cache, and the slots of each.
    """

    def __init__(
        self,
        shape_name: str,
        dtype: str = "bfloat16",
        layout: str = "LBHNC",
        padding: int = 0,
        blocks: tuple[int, int] = (5, 16),
        tokens: int = 7,
        num_slots: int | None = None,
        cache_dtype: str = "auto",
        **attention: Any,
    ) -> None:
        import torch
        from simulation import layers
        from simulation.models import vllm_config
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.layers.layernorm import GemmaRMSNorm, RMSNorm
        from vllm.model_executor.layers.rotary_embedding import MRotaryEmbedding, RotaryEmbedding

        torch.manual_seed(1234)
        self.dtype = getattr(torch, dtype)
        self.shape = shape = SHAPES[shape_name]
        dtype = self.dtype
        self.config = vllm_config(model={"dtype": dtype}, cache={"cache_dtype": cache_dtype})
        h, hkv, d = shape.num_heads, shape.num_kv_heads, shape.head_size
        if shared := attention.get("kv_sharing_target_layer_name"):
            layers.attention(self.config, h, hkv, d, name=shared)
        self.layer = layers.attention(
            self.config, h, hkv, d, name="model.layers.1.self_attn.attn", **attention
        )
        self.impl = self.layer.impl
        with set_current_vllm_config(self.config), layers.default_dtype(dtype):
            rope = (d, shape.rotary_dim, MAX_POSITION, 1e4, shape.is_neox, dtype)
            self.rope = (
                MRotaryEmbedding(*rope, *shape.mrope) if shape.mrope else RotaryEmbedding(*rope)
            )
            norm = {"rms": RMSNorm, "gemma": GemmaRMSNorm, "": None}[shape.norm]
            self.norms = [norm(d, EPS) for _ in range(2)] if norm else []
        for each in self.norms:
            each.weight.data = torch.randn(d).to(each.weight.dtype)
        # Heads of different sizes, so that a head taken for another is seen.
        scale = 1 + torch.arange(sum(shape.parts)).repeat_interleave(d) / 7
        self.qkv = (torch.randn(tokens, sum(shape.parts) * d) * scale).to(dtype)
        if shape.gated:
            self.qkv.unflatten(-1, (-1, d))[:, 1 : 2 * h : 2] = float("nan")
        # As the model runner's, rows of a wider buffer.
        rows = torch.randint(0, MAX_POSITION, (3, tokens + 5))[:, :tokens]
        self.positions = rows if shape.mrope else rows[0]
        slots = torch.randperm(blocks[0] * blocks[1])[:tokens]
        slots[2] = -1
        self.slots = slots[: tokens if num_slots is None else num_slots]
        self.cache = layers.packed_cache(blocks[0], hkv, blocks[1], d, dtype, layout, padding)
        self.untouched = self.cache.clone()

    @property
    def qkv_heads(self) -> list[Any]:
        """q, k, v as views [T, H, D] of qkv."""
        q, k, v = self.qkv.unflatten(-1, (-1, self.shape.head_size)).split(self.shape.parts, dim=1)
        return [q[:, ::2] if self.shape.gated else q, k, v]

    @property
    def scaling(self) -> dict[str, Any]:
        """The RoPE hook's arguments for a scaled Q."""
        if self.shape.q_scaling is None:
            return {}
        beta, context = self.shape.q_scaling
        return {"q_scale_beta": beta, "q_scale_orig_max": context}

    def expected(self) -> list[Any]:
        """q, k, v as the model's own modules leave them."""
        from vllm.model_executor.models.mistral import MistralAttention

        q, k, v = (x.clone() for x in self.qkv_heads)
        if self.norms:
            q, k = self.norms[0].forward_native(q), self.norms[1].forward_native(k)
        q, k = self.rope.forward_native(self.positions, q, k)
        if self.shape.q_scaling is not None:
            beta, context = self.shape.q_scaling
            model = SimpleNamespace(
                llama_4_scaling_beta=beta,
                llama_4_scaling_original_max_position_embeddings=context,
            )
            factor = MistralAttention._get_llama_4_attn_scale(model, self.positions)
            q = (q * factor.unsqueeze(-1)).to(q.dtype)
        if self.shape.v_norm:
            from vllm import ir

            v = ir.ops.rms_norm.impls["native"].impl_fn(v, None, EPS)
        return [q, k, v]

    def rope_hook(self, outputs: list[Any], slots: Any) -> None:
        """Calls the RoPE hook; outputs: q and k to write to, None in place."""
        mrope = self.shape.mrope or ()
        impl = self.impl
        hook = impl.do_mrope_and_kv_cache_update if mrope else impl.do_rope_and_kv_cache_update
        hook(
            self.layer,
            *self.qkv_heads,
            self.positions,
            self.rope.cos_sin_cache,
            self.shape.is_neox,
            *mrope,
            self.cache,
            slots,
            *outputs,
            **self.scaling,
        )

    def call_rope(self, slots: Any, outputs: bool = False) -> list[Any]:
        """q, k, v after the RoPE hook."""
        import torch

        q, k, v = self.qkv_heads
        out = [torch.full_like(x, float("nan")) for x in (q, k)] if outputs else [None, None]
        self.rope_hook(out, slots)
        return [*(out if outputs else (q, k)), v]

    def norm_hook(self, outputs: list[Any], slots: Any) -> None:
        """Calls the qk-norm hook; outputs: q, k and v to write to."""
        q, k, v = outputs
        if self.shape.mrope:
            self.norm_mrope_hook(q, slots, k_out=k)
            return
        self.impl.do_qk_norm_rope_kvcache_update(
            self.layer,
            self.qkv,
            q,
            k,
            self.positions,
            self.norms[0].weight.data,
            self.norms[1].weight.data,
            EPS,
            self.rope.cos_sin_cache,
            self.shape.is_neox,
            self.cache,
            slots,
            weight_offset=1.0 if self.shape.norm == "gemma" else 0.0,
            v_out=v if self.shape.v_norm else None,
        )

    def norm_mrope_hook(self, q_out: Any, slots: Any, **k_out: Any) -> None:
        """Calls the qk-norm hook with M-RoPE."""
        assert self.shape.mrope
        self.impl.do_qk_norm_mrope_kvcache_update(
            self.layer,
            self.qkv,
            q_out,
            self.positions,
            self.norms[0].weight.data,
            self.norms[1].weight.data,
            EPS,
            self.rope.cos_sin_cache,
            self.shape.is_neox,
            *self.shape.mrope,
            self.shape.rotary_dim,
            self.cache,
            slots,
            weight_offset=1.0 if self.shape.norm == "gemma" else 0.0,
            **k_out,
        )

    def call_norm(self, slots: Any) -> list[Any]:
        """q, k, v after the qk-norm hook."""
        import torch

        q, k, v = (torch.full(x.shape, float("nan"), dtype=x.dtype) for x in self.qkv_heads)
        self.norm_hook([q, k, v], slots)
        return [q, k, v if self.shape.v_norm else self.qkv_heads[2]]

    def call(self, slots: Any) -> list[Any]:
        """q, k, v after the hook that the shape needs."""
        return self.call_norm(slots) if self.norms else self.call_rope(slots)

    def assert_right(self, found: list[Any], expected: list[Any], slots: Any) -> None:
        """Outputs within the contract of the modules', the cache exactly what a write leaves."""
        from simulation import layers

        compare = layers.compare()
        for name, is_, should in zip("qkv", found, expected, strict=True):
            compare.assert_close(name, is_, should, bound=compare.NATIVE_ULPS)
        cache = self.untouched
        if slots is not None:
            layers.write_packed(cache, found[1], found[2], slots)
        compare.assert_same_bits("cache", self.cache, cache)


@contextlib.contextmanager
def counted_launches() -> Any:
    """A list that gets an item for each call of the native op."""
    from vllm.v1.attention.ops import rdna35_rope_cache as op

    calls: list[None] = []
    real = op.rdna35_rope_cache

    def counting(*args: Any, **kwargs: Any) -> None:
        calls.append(None)
        real(*args, **kwargs)

    op.rdna35_rope_cache = counting
    try:
        yield calls
    finally:
        op.rdna35_rope_cache = real


@pytest.mark.parametrize("shape", ROPE_SHAPES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@simulated()
def test_rope_hook_rotates_in_place_and_writes_the_cache(shape: str, dtype: str) -> None:
    """sglang 19636: the rotated K is in the cache and in the key that attention gets. vLLM 43676:
    heads of which only a part is rotated, as the table's width says."""
    case = Case(shape, dtype)
    expected = case.expected()
    with counted_launches() as launches:
        found = case.call_rope(case.slots)
    case.assert_right(found, expected, case.slots)
    assert len(launches) == 1


@pytest.mark.parametrize("shape", ["llama 32/8/128", "ministral 32/8/128", "qwen2-vl 12/2/128"])
@pytest.mark.parametrize("fused", [True, False])
@simulated()
def test_rope_hook_with_outputs_leaves_its_inputs(shape: str, fused: bool) -> None:
    from simulation.layers import compare

    case = Case(shape)
    if not fused:
        case.impl._unfused_reason = "the test wants it so"
    before, expected = case.qkv.clone(), case.expected()
    found = case.call_rope(case.slots, outputs=True)
    case.assert_right(found, expected, case.slots)
    compare().assert_same_bits("qkv", case.qkv, before)


@pytest.mark.parametrize("shape", NORM_SHAPES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@simulated()
def test_norm_hook_norms_rotates_and_writes_the_cache(shape: str, dtype: str) -> None:
    """sglang 19636 and vLLM 43676, as above."""
    from simulation.layers import compare

    case = Case(shape, dtype)
    before, expected = case.qkv.clone(), case.expected()
    with counted_launches() as launches:
        found = case.call_norm(case.slots)
    case.assert_right(found, expected, case.slots)
    compare().assert_same_bits("qkv", case.qkv, before)
    assert len(launches) == 1


@pytest.mark.parametrize("layout", ["LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"])
@simulated()
def test_every_layout_of_the_cache_is_written(layout: str) -> None:
    case = Case("rope", layout=layout)
    expected = case.expected()
    case.assert_right(case.call_rope(case.slots), expected, case.slots)


@pytest.mark.parametrize("layout", ["LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"])
@pytest.mark.parametrize("shape", ["rope", "norm"])
@simulated()
def test_a_layout_is_not_read_as_another_where_all_its_sizes_are_two(
    shape: str, layout: str
) -> None:
    """vLLM 51722: with 2 KV heads, the layout was taken for one that has K and V apart."""
    case = Case(shape, layout=layout, blocks=(2, 2), tokens=4)
    assert case.cache.shape[:3] == (2, 2, 2)
    expected = case.expected()
    case.assert_right(case.call(case.slots), expected, case.slots)


@simulated()
def test_padding_between_blocks_stays_as_it_is() -> None:
    case = Case("rope", padding=40)
    storage = case.cache.untyped_storage()
    before = bytes(storage)
    expected = case.expected()
    case.assert_right(case.call_rope(case.slots), expected, case.slots)
    row = 2 * case.cache.stride(0)
    padding = slice(row - 80, row)
    assert bytes(storage)[padding] == before[padding]


@pytest.mark.parametrize("shape", EACH_HOOK)
@pytest.mark.parametrize("fused", [True, False])
@simulated()
def test_tokens_past_the_slot_mapping_are_rotated_and_not_written(shape: str, fused: bool) -> None:
    """vLLM 43355: a padded graph has more tokens than slots."""
    case = Case(shape, num_slots=5)
    if not fused:
        case.impl._unfused_reason = "the test wants it so"
    expected = case.expected()
    case.assert_right(case.call(case.slots), expected, case.slots)


@pytest.mark.parametrize("shape", EACH_HOOK)
@pytest.mark.parametrize("fused", [True, False])
@simulated()
def test_slot_minus_one_is_not_an_index(shape: str, fused: bool) -> None:
    """vLLM 43810: as one, it is the last slot, or the one before the first."""
    import torch
    from simulation import layers

    case = Case(shape)
    if not fused:
        case.impl._unfused_reason = "the test wants it so"
    s = case.shape
    around = layers.packed_cache(7, s.num_kv_heads, 16, s.head_size, case.dtype)
    before = around.clone()
    case.cache = around[1:-1]
    expected, slots = case.expected(), torch.full((7,), -1)
    case.assert_right(case.call(slots), expected, slots)
    layers.compare().assert_same_bits("the cache and what is around it", around, before)


@pytest.mark.parametrize("shape", EACH_HOOK)
@simulated()
def test_a_fused_call_allocates_nothing(shape: str) -> None:
    """aiter 5193: what a hook allocates is freed under the graph that has captured the call."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    case = Case(shape)
    outputs = [torch.empty_like(x) for x in case.qkv_heads]

    def call() -> None:
        if case.norms:
            case.norm_hook(outputs, case.slots)
        else:
            case.rope_hook(outputs[:2], case.slots)

    call()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        call()
    names = [event.name for event in seen.events()]
    assert "_rocm_C::rdna35_rope_cache" in names
    assert "[memory]" not in names


@pytest.mark.parametrize("shape", NORM_SHAPES)
@simulated()
def test_swapped_norm_weights_are_noticed(shape: str) -> None:
    """They would not be with the weights that norms have at first, all the same."""
    case = Case(shape)
    expected = case.expected()
    case.norms.reverse()
    found = case.call(case.slots)
    with pytest.raises(AssertionError, match="q differs first"):
        case.assert_right(found, expected, case.slots)


@pytest.mark.parametrize("shape", EACH_HOOK)
@pytest.mark.parametrize("bound_cache", [True, False])
@pytest.mark.parametrize("fused", [True, False])
@simulated()
def test_without_a_slot_mapping_outputs_are_defined_and_nothing_is_written(
    shape: str, bound_cache: bool, fused: bool
) -> None:
    """vLLM 43355: a hook that is skipped there leaves attention what was in memory."""
    import torch

    case = Case(shape)
    if not fused:
        case.impl._unfused_reason = "the test wants it so"
    if not bound_cache:
        case.cache = case.untouched = torch.tensor([], dtype=case.dtype)
    expected = case.expected()
    case.assert_right(case.call(None), expected, None)


UNFIT: dict[str, tuple[str, dict[str, Any], str]] = {
    "head size 80": ("head size 80", {}, "not built for head size 80"),
    "fp32": ("rope", {"dtype": "float32"}, "activations of torch.float32"),
    "fp32, Q scaled": ("scaled", {"dtype": "float32"}, "activations of torch.float32"),
    "fp32 after a norm": ("norm", {"dtype": "float32"}, "activations of torch.float32"),
    "fp32, gated": ("gated", {"dtype": "float32"}, "activations of torch.float32"),
    "fp32, adjacent pairs": ("glm4 32/2/128, rot 64", {"dtype": "float32"}, "activations"),
    "fp32, adjacent pairs after a norm": (
        "adjacent pairs 6/2/128, rot 64",
        {"dtype": "float32"},
        "activations of torch.float32",
    ),
    "fp32, M-RoPE": ("mrope", {"dtype": "float32"}, "activations of torch.float32"),
    "fp32, M-RoPE after a norm": ("mrope norm", {"dtype": "float32"}, "activations"),
}


@pytest.mark.parametrize("unfit", UNFIT)
@simulated()
def test_what_the_kernel_does_not_take_runs_unfused_with_the_same_result(unfit: str) -> None:
    import torch
    from simulation import layers, log

    shape, options, reason = UNFIT[unfit]
    case = Case(shape, **options)
    expected, qkv = case.expected(), case.qkv.clone()
    with log.messages() as warnings, counted_launches() as launches:
        found = case.call(case.slots)
        for is_, should in zip(found, expected, strict=True):
            torch.testing.assert_close(is_, should, rtol=2e-2, atol=2e-2)
        layers.write_packed(case.untouched, found[1], found[2], case.slots)
        torch.testing.assert_close(case.cache, case.untouched, rtol=0, atol=0, equal_nan=True)
        case.qkv.copy_(qkv)
        case.call(case.slots)
    assert not launches
    about = [w for w in warnings if "run as separate ops" in w]
    assert len(about) == 1 and reason in about[0], warnings


@pytest.mark.parametrize("sections", [(7, 14, 10), (7, 14, 6, 5)])
@simulated()
def test_sections_that_are_not_three_for_all_pairs_run_unfused(sections: tuple[int, ...]) -> None:
    """vLLM's op takes three of them, and the last one's row for what is left."""
    from simulation import log

    case = Case("mrope")
    expected = case.expected()
    case.shape = replace(case.shape, mrope=(sections, False))
    with log.messages() as warnings, counted_launches() as launches:
        case.assert_right(case.call(case.slots), expected, case.slots)
    assert not launches
    about = [w for w in warnings if "run as separate ops" in w]
    named = ", ".join(map(str, sections))
    assert len(about) == 1 and f"sections {named} of 32 pairs" in about[0], warnings


@pytest.mark.parametrize("shape", ["mrope", "mrope norm"])
@pytest.mark.parametrize("fused", [True, False])
@simulated()
def test_plain_positions_do_for_mrope(shape: str, fused: bool) -> None:
    """As for text, where the three rows are equal."""
    from simulation.layers import compare

    case = Case(shape)
    if not fused:
        case.impl._unfused_reason = "the test wants it so"
    case.positions = case.positions[1]
    before, expected = case.qkv.clone(), case.expected()
    with counted_launches() as launches:
        plain = case.call(case.slots)
    case.assert_right(plain, expected, case.slots)
    assert len(launches) == fused
    if fused:
        case.qkv, case.positions = before, case.positions.expand(3, -1)
        for name, is_, should in zip("qkv", case.call(case.slots), plain, strict=True):
            compare().assert_same_bits(name, is_, should)


@simulated()
def test_the_norm_hook_with_mrope_does_without_a_key_to_write_to() -> None:
    """As upstream declares it: then K is in the cache alone."""
    import torch
    from simulation.layers import compare

    case = Case("mrope norm")
    before, expected = case.qkv.clone(), case.expected()
    query = torch.full(expected[0].shape, float("nan"), dtype=case.dtype)
    case.norm_mrope_hook(query, case.slots)
    written = case.slots >= 0
    cached = case.cache.transpose(1, 2).flatten(0, 1)[case.slots[written]]
    key, value = cached.split(case.shape.head_size, dim=-1)
    bound = compare().NATIVE_ULPS
    compare().assert_close("q", query, expected[0], bound=bound)
    compare().assert_close("k", key, expected[1][written], bound=bound)
    compare().assert_same_bits("v", value, expected[2][written])
    compare().assert_same_bits("qkv", case.qkv, before)


@simulated()
def test_a_cache_of_another_float_is_written_unfused() -> None:
    import torch
    from simulation import layers, log

    case = Case("rope")
    case.cache = case.cache.half()
    case.untouched = case.cache.clone()
    with log.messages() as warnings, counted_launches() as launches:
        _, k, v = case.call(case.slots)
    assert not launches
    assert [w for w in warnings if "kv_cache of torch.float16" in w]
    layers.write_packed(case.untouched, k, v, case.slots)
    torch.testing.assert_close(case.cache, case.untouched, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "name, dtype", [("cos_sin_cache", "float32"), ("key", "float16"), ("value", "float32")]
)
@simulated()
def test_an_argument_of_another_dtype_runs_unfused(name: str, dtype: str) -> None:
    import torch
    from simulation import log

    case = Case("rope")
    q, k, v = (x.clone() for x in case.qkv_heads)
    expected = case.expected()
    arguments = {"query": q, "key": k, "value": v, "cos_sin_cache": case.rope.cos_sin_cache}
    arguments[name] = arguments[name].to(getattr(torch, dtype))
    with log.messages() as warnings, counted_launches() as launches:
        case.impl.do_rope_and_kv_cache_update(
            case.layer,
            **arguments,
            positions=case.positions,
            is_neox=True,
            kv_cache=case.cache,
            layer_slot_mapping=case.slots,
        )
    assert not launches
    assert [w for w in warnings if f"of torch.{dtype} with activations of torch.bfloat16" in w]
    for index, key in enumerate(("query", "key")):
        torch.testing.assert_close(arguments[key].bfloat16(), expected[index], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("other", ["float16", "float64"])
@simulated()
def test_norm_weights_of_another_type_run_unfused(other: str) -> None:
    import torch
    from simulation import log

    case = Case("norm")
    for norm in case.norms:
        norm.weight.data = norm.weight.data.to(getattr(torch, other))
    expected = case.expected()
    with log.messages() as warnings, counted_launches() as launches:
        found = case.call(case.slots)
    assert not launches
    assert [w for w in warnings if "norm weights of" in w], warnings
    for is_, should in zip(found, expected, strict=True):
        torch.testing.assert_close(is_, should, rtol=2e-2, atol=2e-2)


@simulated()
def test_fp32_norm_weights_are_fused() -> None:
    case = Case("norm")
    for norm in case.norms:
        norm.weight.data = norm.weight.data.float()
    expected = case.expected()
    with counted_launches() as launches:
        case.assert_right(case.call(case.slots), expected, case.slots)
    assert len(launches) == 1


@simulated()
def test_a_quantized_cache_is_left_to_the_unfused_path() -> None:
    import torch

    case = Case("rope", cache_dtype="fp8")
    assert not case.impl.fused_rope_kvcache_supported()
    assert not case.impl.fused_qk_norm_rope_kvcache_supported()
    assert not case.impl.fused_qk_norm_mrope_kvcache_supported()
    case.cache = torch.zeros(case.cache.shape, dtype=torch.float8_e4m3fn)
    written: list[Any] = []
    case.impl.do_kv_cache_update = lambda *arguments: written.append(arguments)
    expected = case.expected()
    with counted_launches() as launches:
        q, k, _ = case.call_rope(case.slots)
    assert not launches
    torch.testing.assert_close(q, expected[0], rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(k, expected[1], rtol=2e-2, atol=2e-2)
    (_, key, _, cache, slots) = written[0]
    assert key is not None and cache is case.cache and slots is case.slots


@simulated()
def test_an_encoder_layer_is_rotated_and_never_written() -> None:
    import torch
    from vllm.v1.attention.backend import AttentionType

    case = Case("rope", attn_type=AttentionType.ENCODER_ONLY)
    assert not case.impl.fused_rope_kvcache_supported()
    assert not case.impl.fused_qk_norm_rope_kvcache_supported()
    case.cache = case.untouched = torch.tensor([], dtype=case.dtype)
    expected = case.expected()
    case.assert_right(case.call(torch.zeros(7, dtype=torch.int64)), expected, None)


@simulated()
def test_a_layer_that_shares_a_cache_is_rotated_and_does_not_write_it() -> None:
    case = Case("rope", kv_sharing_target_layer_name="model.layers.0.self_attn.attn")
    assert not case.impl.fused_rope_kvcache_supported()
    expected = case.expected()
    case.assert_right(case.call(case.slots), expected, None)


@simulated()
def test_kernels_that_do_not_load_are_warned_of_once_and_the_layers_run_unfused() -> None:
    from simulation import layers, log
    from vllm.v1.attention.ops import rdna35_rope_cache as op

    real = op.load_kernels

    def failing(device: Any) -> None:
        raise RuntimeError("no code object for gfx9999")

    case = Case("rope", loaded=False)
    other = layers.attention(case.config, 4, 2, 64, name="model.layers.2.attn", loaded=False)
    assert case.impl.fused_rope_kvcache_supported()
    op.load_kernels = failing
    try:
        with log.messages() as warnings:
            for layer in (case.layer, other):
                layer.process_weights_after_loading(case.dtype)
    finally:
        op.load_kernels = real
    assert [w for w in warnings if "no code object for gfx9999" in w] == warnings[:1]
    assert len(warnings) == 1
    assert not case.impl.fused_rope_kvcache_supported()
    expected = case.expected()
    with counted_launches() as launches:
        case.assert_right(case.call(case.slots), expected, case.slots)
    assert not launches


@simulated()
def test_kernels_are_loaded_when_weights_are_processed() -> None:
    import torch
    from vllm.v1.attention.ops import rdna35_rope_cache as op

    devices: list[torch.device] = []
    real, op.load_kernels = op.load_kernels, devices.append
    try:
        case = Case("rope", loaded=False)
        assert not devices
        case.layer.process_weights_after_loading(case.dtype)
    finally:
        op.load_kernels = real
    assert devices == [torch.device("cpu")]


@simulated(op=False)
def test_a_build_without_the_op_says_why_and_runs_unfused() -> None:
    from simulation import log
    from vllm.v1.attention.ops import rdna35_rope_cache as op

    assert not op.available()
    assert op.unavailable_reason().endswith("librdna35.so")
    case = Case("rope")
    assert not case.impl.fused_rope_kvcache_supported()
    expected = case.expected()
    with log.messages() as warnings:
        case.assert_right(case.call(case.slots), expected, case.slots)
    assert [w for w in warnings if "this build has no rdna35_rope_cache" in w]
