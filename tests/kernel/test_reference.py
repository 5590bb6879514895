"""The reference model and the comparison, held against hand-made answers, and
the comparison against wrong models: each mistake that such kernels have been
seen to make must be found."""

import dataclasses
from collections.abc import Callable

import pytest
import torch

from tests.kernel import cases, compare, op, reference
from tests.kernel.compare import Tally
from tests.kernel.families import BY_NAME, FAMILIES, Family
from tests.kernel.op import Arguments
from tests.kernel.reference import Expected, rope_cache

bf16, fp16 = torch.bfloat16, torch.float16
CPU = torch.device("cpu")


def heads(*rows: list[float], dtype: torch.dtype = bf16) -> torch.Tensor:
    """One token with a head a row."""
    return torch.tensor([list(rows)], dtype=dtype)


def test_quarter_turn_moves_the_first_half_into_the_second() -> None:
    x = heads([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    rotated = reference.rotate(x, torch.zeros(1, 2), torch.ones(1, 2))
    assert rotated.tolist() == [[[-3.0, -4.0, 1.0, 2.0, 5.0, 6.0]]]


def test_norm_rounds_before_the_weight_only_for_a_weight_of_its_own_dtype() -> None:
    # 3 / sqrt((3**2 + 0.30078125**2) / 2) = 1.40716..., in bf16 1.40625. The weight makes
    # that 1.47312, in bf16 1.4765625, or 1.47217 from the rounded one, in bf16 1.46875.
    x = heads([3.0, 0.30078125])
    weight = torch.tensor([1.046875, 1.0], dtype=bf16)
    assert reference.rms_norm(x, weight, 0.0, 0.0)[0, 0, 0] == 1.46875
    assert reference.rms_norm(x, weight.float(), 0.0, 0.0)[0, 0, 0] == 1.4765625
    assert reference.rms_norm(x, weight - 1, 1.0, 0.0)[0, 0, 0] == 1.4765625


def test_rows_are_clamped_without_overflow() -> None:
    largest = 2**63 - 1
    position = torch.tensor([0, 5, 9, 10, -1, largest, -largest - 1])
    rows = reference.cos_sin_row(position, largest, 10).tolist()
    assert rows == [9, 9, 9, 9, 9, 9, 0]
    rows = reference.cos_sin_row(position, -4, 10).tolist()
    assert rows == [0, 1, 5, 6, 0, 9, 0]


def test_scale_steps_at_multiples_of_the_original_context() -> None:
    position = torch.tensor([-7, 0, 15, 16, 31, 32])
    scale = reference.llama4_scale(position, 0.5, 16)
    logs = torch.tensor([0, 0, 0, 2.0, 2.0, 3.0]).clamp(min=1).log()
    assert torch.equal(scale, 1 + 0.5 * logs)


def test_cache_rows_hold_k_then_v_and_other_slots_nothing() -> None:
    cache = torch.full((2, 1, 3, 4), 9.0, dtype=bf16)
    k, v = heads([1.0, 2.0]).expand(4, 1, 2), heads([3.0, 4.0]).expand(4, 1, 2)
    reference.write_cache(cache, k, v, torch.tensor([4, -1, 6]))
    assert cache[1, 0, 1].tolist() == [1.0, 2.0, 3.0, 4.0]
    cache[1, 0, 1] = 9.0
    assert (cache == 9.0).all()


def test_reference_leaves_its_arguments_alone() -> None:
    case = cases.build(BY_NAME["gemma4-sliding"], 5, bf16, device=CPU)
    case.memory.snapshot()
    rope_cache(case.arguments)
    case.memory.assert_untouched_but([])


@pytest.mark.parametrize("dtype", op.DTYPES, ids=str)
def test_ulps_are_of_the_heads_largest_value(dtype: torch.dtype) -> None:
    expected = heads([1.0, 0.001, 0.0], [3.0, 1.0, 0.0], dtype=dtype)
    step = torch.finfo(dtype).eps
    actual = expected.clone()
    actual[0, 0, 1] += step
    actual[0, 1, 1] += step
    ulps = compare.element_ulps(actual, expected)
    assert ulps[0, 0].amax() == pytest.approx(1.0, rel=0.01)
    assert ulps[0, 1].amax() == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (float("nan"), 1.0),
        (1.0, float("nan")),
        (float("inf"), 1.0),
        (float("inf"), -float("inf")),
        (65504.0, float("inf")),
        (0.0, float("nan")),
    ],
)
def test_nan_and_infinity_never_count_as_close(actual: float, expected: float) -> None:
    with pytest.raises(AssertionError, match="token 0, head 1, element 2"):
        compare.assert_close(
            "q",
            heads([1.0, 1.0, 1.0], [1.0, 2.0, actual], dtype=fp16),
            heads([1.0, 1.0, 1.0], [1.0, 2.0, expected], dtype=fp16),
        )


def test_equal_nan_and_infinity_are_close() -> None:
    x = heads([float("nan"), float("inf"), -float("inf"), 1.0])
    compare.assert_close("q", x, x.clone())


def test_difference_names_token_head_element_and_both_values() -> None:
    expected = torch.ones(3, 4, 8, dtype=bf16)
    actual = expected.clone()
    actual[2, 1, 5] = 2.0
    with pytest.raises(AssertionError) as error:
        compare.assert_close("k", actual, expected)
    message = str(error.value)
    assert "k differs first at token 2, head 1, element 5" in message
    assert "got 2 (0x4000), expected 1 (0x3f80), 128.00 ulps" in message
    with pytest.raises(AssertionError, match="token 2, head 1, element 5"):
        compare.assert_same_bits("k", actual, expected)


def test_signed_zeros_and_nan_payloads_have_different_bits() -> None:
    with pytest.raises(AssertionError, match="element 0"):
        compare.assert_same_bits("v", heads([-0.0]), heads([0.0]))
    one, other = torch.tensor([[[0x7FC0]], [[0x7FC1]]], dtype=torch.int16).view(bf16)
    with pytest.raises(AssertionError, match="differs"):
        compare.assert_same_bits("v", one, other)


def test_more_than_one_head_in_a_thousand_above_one_ulp_fails() -> None:
    expected = torch.ones(2000, 1, 4, dtype=bf16)
    actual = expected.clone()
    actual[:2, 0, 0] += 1.5 * torch.finfo(bf16).eps
    actual[:2, 0, 0] = 1.015625  # two ulps
    tally = Tally()
    compare.assert_close("q", actual, expected, tally)
    tally.assert_rare()
    actual[2, 0, 0] = 1.015625
    tally = Tally()
    compare.assert_close("q", actual, expected, tally)
    with pytest.raises(AssertionError, match="3 of 2000 heads"):
        tally.assert_rare()


# Wrong models. Each is a mistake made somewhere by a kernel of this kind.


def position_off_by_one(a: Arguments) -> Expected:
    return rope_cache(a.replace(positions=a.positions + 1))


def weights_swapped(a: Arguments) -> Expected:
    return rope_cache(a.replace(q_weight=a.k_weight, k_weight=a.q_weight))


def no_rounding_before_the_weight(a: Arguments) -> Expected:
    assert a.q_weight is not None and a.k_weight is not None
    return rope_cache(a.replace(q_weight=a.q_weight.float(), k_weight=a.k_weight.float()))


def no_rounding_between_norm_and_rope(a: Arguments) -> Expected:
    """Norm, rotation and scale in fp32, rounded once at the end."""
    wide = a.replace(q=a.q.float(), k=None if a.k is None else a.k.float())
    e = rope_cache(wide.replace(v=None, v_norm=False, kv_cache=None))
    k = None if e.k is None else e.k.to(a.q.dtype)
    return dataclasses.replace(rope_cache(a), q=e.q.to(a.q.dtype), k=k)


def rounding_after_each_step_of_rope(a: Arguments) -> Expected:
    """As vLLM's native module, which the contract does not follow there."""
    assert a.cos_sin_cache is not None and a.k is not None
    cos, sin = a.cos_sin_cache[a.positions][:, None].chunk(2, dim=-1)

    def rotated(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    return dataclasses.replace(rope_cache(a), q=rotated(a.q), k=rotated(a.k))


def offset_forgotten(a: Arguments) -> Expected:
    return rope_cache(a.replace(weight_offset=0.0))


def norm_forgotten(a: Arguments) -> Expected:
    return rope_cache(a.replace(q_weight=None, k_weight=None))


def v_norm_forgotten(a: Arguments) -> Expected:
    return rope_cache(a.replace(v_norm=False))


def pos_offset_forgotten(a: Arguments) -> Expected:
    return rope_cache(a.replace(pos_offset=0))


def scale_forgotten(a: Arguments) -> Expected:
    return rope_cache(a.replace(q_scale_beta=0.0))


def interleaved_pairs(a: Arguments) -> Expected:
    """Rotates neighbours (GPT-J) in place of halves (NeoX)."""
    rot = 0 if a.cos_sin_cache is None else a.cos_sin_cache.shape[-1]

    def shuffle(x: torch.Tensor) -> torch.Tensor:
        halves = x[..., :rot].unflatten(-1, (rot // 2, 2)).transpose(-1, -2)
        return torch.cat([halves.flatten(-2), x[..., rot:]], dim=-1)

    def unshuffle(x: torch.Tensor) -> torch.Tensor:
        pairs = x[..., :rot].unflatten(-1, (2, rot // 2)).transpose(-1, -2)
        return torch.cat([pairs.flatten(-2), x[..., rot:]], dim=-1)

    assert a.k is not None
    e = rope_cache(a.replace(q=shuffle(a.q), k=shuffle(a.k)))
    assert e.k is not None
    return dataclasses.replace(e, q=unshuffle(e.q), k=unshuffle(e.k))


def whole_head_rotated(a: Arguments) -> Expected:
    """Takes the rotary dim for the head's."""
    assert a.cos_sin_cache is not None
    wider = torch.cat([a.cos_sin_cache, a.cos_sin_cache], dim=-1)[:, : a.q.shape[-1]]
    return rope_cache(a.replace(cos_sin_cache=wider.contiguous()))


def heads_shifted(a: Arguments) -> Expected:
    return rope_cache(a.replace(q=a.q.roll(1, dims=1)))


MISTAKES: list[tuple[Callable[[Arguments], Expected], str]] = [
    (position_off_by_one, "llama3"),
    (position_off_by_one, "qwen3.5"),
    (weights_swapped, "qwen3"),
    (weights_swapped, "qwen3.5"),
    (no_rounding_before_the_weight, "qwen3"),
    (no_rounding_between_norm_and_rope, "norm-and-scale"),
    (no_rounding_between_norm_and_rope, "qwen3"),
    (no_rounding_between_norm_and_rope, "gemma3"),
    (rounding_after_each_step_of_rope, "llama3"),
    (offset_forgotten, "gemma3"),
    (norm_forgotten, "qwen3"),
    (v_norm_forgotten, "gemma4-sliding"),
    (pos_offset_forgotten, "phi4-long"),
    (scale_forgotten, "ministral3"),
    (interleaved_pairs, "llama2"),
    (whole_head_rotated, "nemotron"),
    (heads_shifted, "llama3"),
]


@pytest.mark.parametrize("dtype", op.DTYPES, ids=str)
@pytest.mark.parametrize(("mistake", "family"), MISTAKES, ids=lambda x: getattr(x, "__name__", x))
def test_comparison_finds(
    mistake: Callable[[Arguments], Expected], family: str, dtype: torch.dtype
) -> None:
    """Swapped norm weights among them, which weights left at one would hide."""
    a = cases.build(BY_NAME[family], 256, dtype, device=CPU).arguments
    wrong, right = mistake(a), rope_cache(a)
    with pytest.raises(AssertionError, match=r"differs first|heads differ|of other bits"):
        compare_expected(wrong, right)


def compare_expected(actual: Expected, expected: Expected) -> None:
    """The whole measure between two models' results."""
    tally = Tally()
    for name in ("q", "k", "v"):
        e = getattr(expected, name)
        if e is not None:
            compare.assert_close(name, getattr(actual, name), e, tally)
    tally.assert_rare()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_another_order_of_the_sum_is_within_the_measure(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the contract grants is granted: fp64 sums in place of fp32 ones."""
    a = cases.build(family, 256, bf16, device=CPU).arguments

    def exact_sum(
        x: torch.Tensor, weight: torch.Tensor | None, offset: float, eps: float
    ) -> torch.Tensor:
        inverse = (x.double().square().mean(-1, keepdim=True) + eps).rsqrt()
        normed = x.float() * inverse.float()
        if weight is None:
            return normed.to(x.dtype)
        if weight.dtype == x.dtype and offset == 0:
            return (normed.to(x.dtype).float() * weight.float()).to(x.dtype)
        return (normed * (offset + weight.float())).to(x.dtype)

    right = rope_cache(a)
    monkeypatch.setattr(reference, "rms_norm", exact_sum)
    compare_expected(rope_cache(a), right)
