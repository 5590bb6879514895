"""NaN, infinity and every bit pattern: copies are exact, and what is computed
becomes NaN or infinite where it does in the model."""

import pytest
import torch

from tests.kernel import cases, compare, op
from tests.kernel.cases import Case, Options
from tests.kernel.families import Family
from tests.kernel.op import Arguments
from tests.kernel.rope_tables import Rope

NAN, INFINITY = float("nan"), float("inf")

of_both_dtypes = pytest.mark.parametrize("dtype", op.DTYPES, ids=str)


def every_bit_pattern(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """All 65536 patterns, repeated, in an order of no period of the kernel's."""
    count = torch.Size(shape).numel()
    bits = (torch.arange(count) * 40503) % 65536 - 32768
    return bits.to(torch.int16).view(dtype).reshape(shape)


def built(family: Family, dtype: torch.dtype, tokens: int, options: Options) -> Case:
    return cases.build(family, tokens, dtype, options, seed=9)


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("outputs", ["", "qkv"])
@pytest.mark.parametrize("head_dim", op.HEAD_DIMS)
@of_both_dtypes
def test_copies_keep_every_bit_pattern(
    dtype: torch.dtype, head_dim: int, outputs: str, shift: int
) -> None:
    """Without norm and RoPE, Q, K and V are only copied."""
    tokens = 65536 // (2 * head_dim) + 1
    family = Family("copy", 3, 2, head_dim, None)
    options = Options(outputs=frozenset(outputs), shift=shift)
    case = built(family, dtype, tokens, options)
    a = case.arguments
    assert a.k is not None and a.v is not None
    for x in (a.q, a.k, a.v):
        x.copy_(every_bit_pattern(tuple(x.shape), dtype))
    case.run_and_check()


@pytest.mark.parametrize("rot", [2, 30, 64, 96])
@of_both_dtypes
def test_elements_past_rot_keep_every_bit_pattern(dtype: torch.dtype, rot: int) -> None:
    tokens = 65536 // (2 * (128 - rot)) + 1
    case = built(Family("past", 2, 2, 128, Rope(rot)), dtype, tokens, Options())
    a = case.arguments
    assert a.k is not None and a.v is not None
    for x in (a.q, a.k):
        x[..., rot:] = every_bit_pattern((tokens, 2, 128 - rot), dtype)
    a.v.copy_(every_bit_pattern(tuple(a.v.shape), dtype))
    case.run_and_check()


def poke(a: Arguments, name: str, index: tuple[int, ...], value: float) -> None:
    tensor = getattr(a, name)
    tensor[index] = value


@pytest.mark.parametrize("value", [NAN, INFINITY, -INFINITY], ids=str)
@pytest.mark.parametrize("norm", ["", "rms", "gemma"])
@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("q", (3, 1, 5)),
        ("q", (3, 2, 70)),
        ("q", (0, 0, 127)),
        ("k", (2, 1, 0)),
        ("k", (4, 0, 95)),
        ("v", (1, 0, 17)),
        ("v", (4, 1, 127)),
    ],
)
@of_both_dtypes
def test_one_value_spoils_what_it_spoils_in_the_model(
    dtype: torch.dtype, name: str, index: tuple[int, ...], norm: str, value: float
) -> None:
    """A neighbour's head, token or pair stays clean: the model says which."""
    family = Family("special", 3, 2, 128, Rope(96), norm=norm, v_norm=norm == "rms")
    case = built(family, dtype, 5, Options(outputs=frozenset("qkv")))
    poke(case.arguments, name, index, value)
    case.run_and_check()


@pytest.mark.parametrize("value", [NAN, INFINITY, 0.0], ids=str)
@pytest.mark.parametrize("name", ["q_weight", "k_weight"])
@pytest.mark.parametrize("norm", ["rms", "gemma"])
@of_both_dtypes
def test_special_weights(dtype: torch.dtype, norm: str, name: str, value: float) -> None:
    case = built(Family("weights", 3, 2, 64, Rope(32), norm=norm), dtype, 5, Options())
    poke(case.arguments, name, (7,), value)
    poke(case.arguments, name, (40,), value)
    case.run_and_check()


@pytest.mark.parametrize("bits", [0x7F800001, 0x7FFFFFFF, -1, 0x7F7FFFFF, 0x7F800000], ids=hex)
@of_both_dtypes
def test_special_fp32_weights(dtype: torch.dtype, bits: int) -> None:
    """NaN stays NaN, though all that says so may be in the bits that are rounded away."""
    options = Options(weights=torch.float32)
    case = built(Family("weights", 3, 2, 64, Rope(32), norm="rms"), dtype, 5, options)
    for weight in (case.arguments.q_weight, case.arguments.k_weight):
        assert weight is not None
        weight.view(torch.int32)[9] = bits
        weight.view(torch.int32)[50] = bits
    case.run_and_check()


@pytest.mark.parametrize("value", [NAN, INFINITY, 0.0], ids=str)
@of_both_dtypes
def test_special_table_rows(dtype: torch.dtype, value: float) -> None:
    """Only tokens at the row see it."""
    family = Family("table", 3, 2, 64, Rope(64, rows=32), max_position=32)
    case = built(family, dtype, 40, Options())
    row = int(case.arguments.positions[11])
    poke(case.arguments, "cos_sin_cache", (row, 3), value)
    poke(case.arguments, "cos_sin_cache", (row, 45), value)
    case.run_and_check()


@pytest.mark.parametrize("eps", [0.0, 1e-6, 1.0])
@pytest.mark.parametrize("head_dim", op.HEAD_DIMS)
@of_both_dtypes
def test_heads_of_zeros(dtype: torch.dtype, head_dim: int, eps: float) -> None:
    """0 * rsqrt(eps) is 0, but 0 * rsqrt(0) is NaN."""
    family = Family("zeros", 2, 2, head_dim, Rope(head_dim), "rms", eps, v_norm=True)
    case = built(family, dtype, 4, Options(outputs=frozenset("qkv")))
    a = case.arguments
    assert a.k is not None and a.v is not None
    a.q[1], a.k[2, 1], a.v[3, 0] = 0.0, 0.0, 0.0
    case.run_and_check()


@of_both_dtypes
def test_large_and_small_heads(dtype: torch.dtype) -> None:
    """Sums of squares that fp16 could not hold, and heads far below eps."""
    family = Family("sizes", 3, 2, 256, Rope(64), norm="rms", v_norm=True)
    case = built(family, dtype, 6, Options(outputs=frozenset("qkv")))
    a = case.arguments
    assert a.k is not None and a.v is not None
    for x in (a.q, a.k, a.v):
        x[1] *= 1e4
        x[2] *= 1e-4
    case.run_and_check()


@pytest.mark.parametrize("norm", ["", "rms"])
def test_bf16_sums_beyond_fp32(norm: str) -> None:
    """Squares that overflow fp32 make an infinite sum, so the norm gives 0, as
    the native module does."""
    family = Family("huge", 2, 2, 128, Rope(128), norm=norm, v_norm=True)
    case = built(family, torch.bfloat16, 3, Options(outputs=frozenset("qkv")))
    a = case.arguments
    assert a.k is not None and a.v is not None
    for x in (a.q, a.k, a.v):
        x[1] *= 1e25
    case.run_and_check()
    assert a.v_out is not None
    assert not a.v_out[1].any()


@of_both_dtypes
def test_rotation_overflows_to_infinity(dtype: torch.dtype) -> None:
    """cos + sin of an eighth of a turn makes 1.41 of the largest number."""
    table = torch.full((4, 64), 0.70710678).to(dtype)
    family = Family("overflow", 2, 2, 64, Rope(64, rows=4), max_position=4)
    case = cases.build(family, 3, dtype, seed=1, table=table)
    a = case.arguments
    assert a.k is not None
    a.q[1], a.k[2] = torch.finfo(dtype).max, -torch.finfo(dtype).max
    case.run_and_check()
    assert a.q[1, :, 32:].isinf().all()
    assert not a.q[1, :, :32].any()


@of_both_dtypes
def test_subnormal_numbers_are_not_flushed(dtype: torch.dtype) -> None:
    family = Family("subnormal", 2, 2, 64, Rope(32))
    case = built(family, dtype, 8, Options())
    a = case.arguments
    assert a.k is not None and a.v is not None
    for x in (a.q, a.k, a.v):
        x.copy_(every_bit_pattern(tuple(x.shape), dtype).abs())
        x.view(torch.int16).bitwise_and_(0x007F)
    case.run_and_check()
    compare.assert_same_bits("q past rot", a.q[..., 32:], a.q[..., 32:].abs())
