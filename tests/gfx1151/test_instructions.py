"""What the emulator makes of ALU instructions, against results worked out from integers and
fractions (exact.py), for edge cases and random bits, with all, some and no lanes active.

Every instruction of the code object has a case here or in test_program_flow.py,
test_lanes.py or test_memory_instructions.py; test_decoding.py sees to that.
"""

import dataclasses
import decimal
import itertools
import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.gfx1151 import exact, programs
from tests.gfx1151.emulator.floats import Transcendentals
from tests.gfx1151.emulator.launch import Stopped
from tests.gfx1151.exact import F16, F32

M16, M32, M64 = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF

# What a destination holds before, and lanes that are active: both rows of 16, ends included.
OLD, OLD_HIGH = 0x5A17C3E9, 0x1B2D4F68
SOME = 0x80F1A5C1

EDGES = {
    "f32": (
        *(0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x3FC00000, 0x40490FDB),
        *(0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x80800000, 0x7F7FFFFF),
        *(0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345, 0x7F800001),
        *(0xFF812345, 0x33800000, 0x33800001, 0x4B800001, 0x477FF000, 0x477FEFFF),
        *(0x38800000, 0x387FE000, 0x33000000, 0x33000001, 0x4F7FFFFF, 0xCF000000),
        *(0x4F000000, 0x3EFFFFFF, 0xBF000000, 0x7E800000, 0x01000000, 0x5F000000),
    ),
    "f16": (
        *(0x0000, 0x8000, 0x3C00, 0xBC00, 0x3E00, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF),
        *(0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFE12, 0x7C01, 0xFD55, 0x2E66, 0x5640, 0x1400),
    ),
    "u32": (0, 1, 2, 31, 32, 33, 63, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0xFFFF0000),
    "u16": (0, 1, 0x7FFF, 0x8000, 0xFFFF),
    "u64": (0, 1, M32, M32 + 1, 1 << 63, (1 << 63) - 1, M64, 0x8000000080000000),
    # Positive normal operands of approximations, whose results are normal too.
    "trans": (0x3F800000, 0x40000000, 0x3F7FFFFF, 0x00800000, 0x7E000000, 0x3EAAAAAB),
}


def signed(x: int, bits: int = 32) -> int:
    """Bits as a two's complement number."""
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


@dataclasses.dataclass(frozen=True)
class Case:
    """One instruction. kinds: of its sources, in v[0:1], v[2:3], v[4:5] (or s); the destination is
    v[10:11] (s[10:11]), carries and masks s12 or VCC.

    expected: from the sources' bits to the destination's. old: it gets the destination's bits
    first. carry: it gets the lane's bit of VCC last, and gives a pair with the lane's bit out
    (None: no bit is written). words: of the destination; 0: the bit alone.
    """

    text: str
    kinds: tuple[str | None, ...]
    expected: Callable[..., Any]
    words: int = 1
    old: bool = False
    carry: bool = False

    def __str__(self) -> str:
        return self.text


def _fma32(a: int, b: int, c: int) -> int:
    return exact.fma(F32, a, b, c)


def _add32(a: int, b: int) -> int:
    return exact.add(F32, a, b)


def _mul32(a: int, b: int) -> int:
    return exact.multiply(F32, a, b)


def _low(x: int) -> int:
    return exact.convert(F16, F32, x & M16)


def _high(x: int) -> int:
    return exact.convert(F16, F32, x >> 16)


def _to_f16(x: int) -> int:
    return exact.convert(F32, F16, x)


def _put_low(old: int, half: int) -> int:
    return old & 0xFFFF0000 | half


def _put_high(old: int, half: int) -> int:
    return old & M16 | half << 16


def _from_integer(x: int) -> int:
    return F32.round(Fraction(x))


def _ldexp(x: int, power: int) -> int:
    if F32.is_nan(x):
        return x | F32.quiet
    if F32.is_infinite(x):
        return x
    power = max(-400, min(400, signed(power)))
    return F32.round(F32.value(x) * Fraction(2) ** power, zero_sign=x & F32.sign)


def _order(x: int) -> int:
    """A key that orders fp32 numbers, -0 below +0."""
    return ~(x & 0x7FFFFFFF) if x & F32.sign else x


def _extreme(a: int, b: int, largest: bool) -> int:
    for x in (a, b):
        if F32.is_nan(x) and not x & F32.quiet:
            return x | F32.quiet
    if F32.is_nan(b):
        return a
    if F32.is_nan(a):
        return b
    return max(a, b, key=_order) if largest else min(a, b, key=_order)


def _trunc(x: int) -> int:
    if F32.is_nan(x):
        return x | F32.quiet
    if F32.is_infinite(x):
        return x
    whole = exact.to_integer(F32, x, -(1 << 200), 1 << 200)
    return F32.round(Fraction(whole), zero_sign=x & F32.sign)


def _clamped(x: int) -> int:
    if F32.is_nan(x) or x & F32.sign:
        return 0
    return min(x, 0x3F800000)


def _less(a: int, b: int) -> bool:
    if F32.is_nan(a) or F32.is_nan(b):
        return False
    return _order(a if a != F32.sign else 0) < _order(b if b != F32.sign else 0)


def _bfe(x: int, offset: int, width: int) -> int:
    return x >> (offset & 31) & ((1 << (width & 31)) - 1)


def _perm(a: int, b: int, selectors: int) -> int:
    data = (a << 32 | b).to_bytes(8, "little")
    result = []
    for selector in selectors.to_bytes(4, "little"):
        if selector < 8:
            result.append(data[selector])
        elif selector < 12:
            result.append(0xFF if data[2 * selector - 15] & 0x80 else 0)
        else:
            result.append(0 if selector == 12 else 0xFF)
    return int.from_bytes(bytes(result), "little")


def _subtract(a: int, b: int) -> int:
    """a - b; a NaN keeps its sign."""
    nan = exact.first_nan(F32, a, b)
    return _add32(a, b ^ F32.sign) if nan is None else nan


def _bit(test: Callable[[int, int], bool]) -> Callable[[int, int, int], tuple[None, bool]]:
    """A comparison's result: no destination, and a lane's bit."""
    return lambda a, b, _: (None, test(a, b))


def _tests(convert: Callable[[int], int]) -> tuple[tuple[str, Callable[[int, int], bool]], ...]:
    """The six comparisons of integers."""
    return (
        ("lt", lambda a, b: convert(a) < convert(b)),
        ("eq", lambda a, b: a == b),
        ("le", lambda a, b: convert(a) <= convert(b)),
        ("gt", lambda a, b: convert(a) > convert(b)),
        ("ne", lambda a, b: a != b),
        ("ge", lambda a, b: convert(a) >= convert(b)),
    )


def _shift_and_add(n: int) -> Callable[[int, int], tuple[int, bool]]:
    return lambda a, b: ((a << n) + b & M32, (a << n) + b > M32)


def _scalar_field(x: int, where: int) -> int:
    return x >> (where & 31) & ((1 << (where >> 16 & 127)) - 1) & M32


def _equal(a: int, b: int) -> bool:
    if F32.is_nan(a) or F32.is_nan(b):
        return False
    return a == b or not (a | b) & 0x7FFFFFFF


def _between(bits: int, side: int) -> Fraction:
    """The point half way from a number to its neighbour below (-1) or above (1)."""
    value = _line(bits)
    return (value + _line(bits + (side if value > 0 else -side) if value else side)) / 2


def _line(bits: int) -> Fraction:
    return F32.value(bits & M32)


def _compared(x: Fraction, y: Fraction) -> int:
    return (x > y) - (x < y)


# Whether the true result for an operand is above (1), at (0) or below (-1) a point.
APPROXIMATED: dict[str, Callable[[Fraction, Fraction], int]] = {
    "v_rcp_f32_e32 v10, v0": lambda x, point: _compared(1 / x, point),
    "v_rcp_iflag_f32_e32 v10, v0": lambda x, point: _compared(1 / x, point),
    "v_rsq_f32_e32 v10, v0": lambda x, point: _compared(1 / x, point * point),
    "v_sqrt_f32_e32 v10, v0": lambda x, point: _compared(x, point * point),
    "v_log_f32_e32 v10, v0": lambda x, point: _compared_power(x, point),
}


def _compared_power(x: Fraction, point: Fraction) -> int:
    """x against 2 ** point, with 60 digits."""
    with decimal.localcontext(prec=60):
        exact_log = (decimal.Decimal(x.numerator) / x.denominator).ln() / decimal.Decimal(2).ln()
        return _compared(Fraction(exact_log), point)


DIVISION = (
    """v_div_scale_f32 v20, null, v2, v2, v0
    v_rcp_f32_e32 v21, v20
    v_div_scale_f32 v22, vcc_lo, v0, v2, v0
    v_fma_f32 v23, -v20, v21, 1.0
    v_fmac_f32_e32 v21, v23, v21
    v_mul_f32_e32 v24, v22, v21
    v_fma_f32 v25, -v20, v24, v22
    v_fmac_f32_e32 v24, v25, v21
    v_fma_f32 v26, -v20, v24, v22
    v_div_fmas_f32 v27, v26, v21, v24
    v_div_fixup_f32 v10, v27, v2, v0""",
)


U, UU, UUU = ("u32",), ("u32", "u32"), ("u32", "u32", "u32")
F, FF, FFF = ("f32",), ("f32", "f32"), ("f32", "f32", "f32")

VECTOR = (
    # Integers
    Case("v_mov_b32_e32 v10, v0", U, lambda a: a),
    Case("v_mov_b32_e32 v10, 0x12345678", (), lambda: 0x12345678),
    Case("v_mov_b32_e32 v10, -16", (), lambda: -16 & M32),
    Case("v_mov_b32_e32 v10, 0.15915494309189532", (), lambda: 0x3E22F983),
    Case("v_not_b32_e32 v10, v0", U, lambda a: ~a & M32),
    Case("v_add_nc_u32_e32 v10, v0, v2", UU, lambda a, b: a + b & M32),
    Case("v_sub_nc_u32_e32 v10, v0, v2", UU, lambda a, b: a - b & M32),
    Case("v_subrev_nc_u32_e32 v10, v0, v2", UU, lambda a, b: b - a & M32),
    Case("v_add3_u32 v10, v0, v2, v4", UUU, lambda a, b, c: a + b + c & M32),
    Case("v_add_lshl_u32 v10, v0, v2, v4", UUU, lambda a, b, c: (a + b << (c & 31)) & M32),
    Case("v_lshl_add_u32 v10, v0, v2, v4", UUU, lambda a, b, c: (a << (b & 31)) + c & M32),
    Case("v_lshl_or_b32 v10, v0, v2, v4", UUU, lambda a, b, c: (a << (b & 31)) & M32 | c),
    Case("v_and_or_b32 v10, v0, v2, v4", UUU, lambda a, b, c: a & b | c),
    Case("v_or3_b32 v10, v0, v2, v4", UUU, lambda a, b, c: a | b | c),
    Case("v_xor3_b32 v10, v0, v2, v4", UUU, lambda a, b, c: a ^ b ^ c),
    Case("v_xad_u32 v10, v0, v2, v4", UUU, lambda a, b, c: (a ^ b) + c & M32),
    Case("v_and_b32_e32 v10, v0, v2", UU, lambda a, b: a & b),
    Case("v_and_b32_e32 v10, 0xffff0000, v2", (None, "u32"), lambda b: b & 0xFFFF0000),
    Case("v_or_b32_e32 v10, v0, v2", UU, lambda a, b: a | b),
    Case("v_xor_b32_e32 v10, v0, v2", UU, lambda a, b: a ^ b),
    Case("v_bfi_b32 v10, v0, v2, v4", UUU, lambda a, b, c: a & b | ~a & c),
    Case("v_bfe_u32 v10, v0, v2, v4", UUU, _bfe),
    Case(
        "v_bfe_i32 v10, v0, v2, v4",
        UUU,
        lambda a, b, c: signed(signed(a) >> (b & 31), c & 31) & M32 if c & 31 else 0,
    ),
    Case("v_lshlrev_b32_e32 v10, v0, v2", UU, lambda a, b: b << (a & 31) & M32),
    Case("v_lshrrev_b32_e32 v10, v0, v2", UU, lambda a, b: b >> (a & 31)),
    Case("v_ashrrev_i32_e32 v10, v0, v2", UU, lambda a, b: signed(b) >> (a & 31) & M32),
    Case("v_lshlrev_b64 v[10:11], v0, v[2:3]", ("u32", "u64"), lambda a, b: b << (a & 63) & M64, 2),
    Case("v_lshrrev_b64 v[10:11], v0, v[2:3]", ("u32", "u64"), lambda a, b: b >> (a & 63), 2),
    Case(
        "v_ashrrev_i64 v[10:11], v0, v[2:3]",
        ("u32", "u64"),
        lambda a, b: signed(b, 64) >> (a & 63) & M64,
        2,
    ),
    Case("v_alignbit_b32 v10, v0, v2, v4", UUU, lambda a, b, c: (a << 32 | b) >> (c & 31) & M32),
    Case("v_perm_b32 v10, v0, v2, v4", UUU, _perm),
    Case("v_mul_lo_u32 v10, v0, v2", UU, lambda a, b: a * b & M32),
    Case("v_mul_hi_u32 v10, v0, v2", UU, lambda a, b: a * b >> 32),
    Case("v_mul_hi_i32 v10, v0, v2", UU, lambda a, b: signed(a) * signed(b) >> 32 & M32),
    Case("v_mul_u32_u24_e32 v10, v0, v2", UU, lambda a, b: (a % 2**24) * (b % 2**24) & M32),
    Case("v_mul_i32_i24_e32 v10, v0, v2", UU, lambda a, b: signed(a, 24) * signed(b, 24) & M32),
    Case("v_mad_u32_u24 v10, v0, v2, v4", UUU, lambda a, b, c: (a % 2**24) * (b % 2**24) + c & M32),
    Case(
        "v_mad_i32_i24 v10, v0, v2, v4",
        UUU,
        lambda a, b, c: signed(a, 24) * signed(b, 24) + c & M32,
    ),
    Case("v_min_u32_e32 v10, v0, v2", UU, min),
    Case("v_max_u32_e32 v10, v0, v2", UU, max),
    Case("v_min_i32_e32 v10, v0, v2", UU, lambda a, b: min(a, b, key=signed)),
    Case("v_max_i32_e32 v10, v0, v2", UU, lambda a, b: max(a, b, key=signed)),
    Case("v_min3_u32 v10, v0, v2, v4", UUU, min),
    Case("v_max3_i32 v10, v0, v2, v4", UUU, lambda *abc: max(abc, key=signed)),
    Case(
        "v_mad_u64_u32 v[10:11], s12, v0, v2, v[4:5]",
        ("u32", "u32", "u64"),
        lambda a, b, c, _: (a * b + c & M64, a * b + c > M64),
        2,
        carry=True,
    ),
    Case(
        "v_mad_i64_i32 v[10:11], null, v0, v2, v[4:5]",
        ("u32", "u32", "u64"),
        lambda a, b, c: signed(a) * signed(b) + signed(c, 64) & M64,
        2,
    ),
    Case(
        "v_add_co_u32 v10, s12, v0, v2", UU, lambda a, b, _: (a + b & M32, a + b > M32), carry=True
    ),
    Case(
        "v_add_co_ci_u32_e64 v10, s12, v0, v2, vcc_lo",
        UU,
        lambda a, b, c: (a + b + c & M32, a + b + c > M32),
        carry=True,
    ),
    Case(
        "v_add_co_ci_u32_e32 v10, vcc_lo, v0, v2, vcc_lo",
        UU,
        lambda a, b, c: (a + b + c & M32, a + b + c > M32),
        carry=True,
    ),
    Case("v_sub_co_u32 v10, s12, v0, v2", UU, lambda a, b, _: (a - b & M32, b > a), carry=True),
    Case(
        "v_sub_co_ci_u32_e64 v10, s12, v0, v2, vcc_lo",
        UU,
        lambda a, b, c: (a - b - c & M32, b + c > a),
        carry=True,
    ),
    Case(
        "v_cndmask_b32_e32 v10, v0, v2, vcc_lo",
        UU,
        lambda a, b, c: (b if c else a, None),
        carry=True,
    ),
    Case(
        "v_cndmask_b32_e64 v10, v0, v2, vcc_lo",
        UU,
        lambda a, b, c: (b if c else a, None),
        carry=True,
    ),
    Case(
        "v_cndmask_b32_e64 v10, -v0, |v2|, vcc_lo",
        UU,
        lambda a, b, c: (b & 0x7FFFFFFF if c else a ^ F32.sign, None),
        carry=True,
    ),
    # fp32
    Case("v_add_f32_e32 v10, v0, v2", FF, _add32),
    Case("v_sub_f32_e32 v10, v0, v2", FF, _subtract),
    Case("v_subrev_f32_e32 v10, v0, v2", FF, lambda a, b: _subtract(b, a)),
    Case("v_mul_f32_e32 v10, v0, v2", FF, _mul32),
    Case("v_mul_f32_e64 v10, -v0, |v2|", FF, lambda a, b: _mul32(a ^ F32.sign, b & 0x7FFFFFFF)),
    Case("v_add_f32_e64 v10, v0, v2 clamp", FF, lambda a, b: _clamped(_add32(a, b))),
    Case("v_mul_f32_e32 v10, 0x3f317218, v2", (None, "f32"), lambda b: _mul32(0x3F317218, b)),
    Case("v_fma_f32 v10, v0, v2, v4", FFF, _fma32),
    Case(
        "v_fma_f32 v10, -v0, v2, |v4|",
        FFF,
        lambda a, b, c: _fma32(a ^ F32.sign, b, c & 0x7FFFFFFF),
    ),
    Case("v_fmac_f32_e32 v10, v0, v2", FF, lambda d, a, b: _fma32(a, b, d), old=True),
    Case("v_fmac_f32_e64 v10, v0, -v2", FF, lambda d, a, b: _fma32(a, b ^ F32.sign, d), old=True),
    Case("v_fmamk_f32 v10, v0, 0x3f317218, v2", FF, lambda a, b: _fma32(a, 0x3F317218, b)),
    Case("v_fmaak_f32 v10, v0, v2, 0x40490fdb", FF, lambda a, b: _fma32(a, b, 0x40490FDB)),
    Case("v_min_f32_e32 v10, v0, v2", FF, lambda a, b: _extreme(a, b, False)),
    Case("v_max_f32_e32 v10, v0, v2", FF, lambda a, b: _extreme(a, b, True)),
    Case("v_trunc_f32_e32 v10, v0", F, _trunc),
    Case("v_ldexp_f32 v10, v0, v2", ("f32", "u32"), _ldexp),
    Case("v_cvt_f32_u32_e32 v10, v0", U, _from_integer),
    Case("v_cvt_f32_i32_e32 v10, v0", U, lambda a: _from_integer(signed(a))),
    Case("v_cvt_u32_f32_e32 v10, v0", F, lambda a: exact.to_integer(F32, a, 0, M32)),
    Case(
        "v_cvt_i32_f32_e32 v10, v0",
        F,
        lambda a: exact.to_integer(F32, a, -(1 << 31), (1 << 31) - 1) & M32,
    ),
    # fp16, in either half of a register; the other half stays
    Case("v_mov_b16_e32 v10.l, v0.l", U, lambda d, a: _put_low(d, a & M16), old=True),
    Case("v_mov_b16_e32 v10.h, v0.l", U, lambda d, a: _put_high(d, a & M16), old=True),
    Case("v_mov_b16_e32 v10.l, v0.h", U, lambda d, a: _put_low(d, a >> 16), old=True),
    Case("v_mov_b16_e64 v10.h, v0.h", U, lambda d, a: _put_high(d, a >> 16), old=True),
    Case("v_cvt_f16_f32_e32 v10.l, v0", F, lambda d, a: _put_low(d, _to_f16(a)), old=True),
    Case("v_cvt_f16_f32_e32 v10.h, v0", F, lambda d, a: _put_high(d, _to_f16(a)), old=True),
    Case("v_cvt_f32_f16_e32 v10, v0.l", ("f16",), _low),
    Case("v_cvt_f32_f16_e32 v10, v0.h", U, _high),
    Case(
        "v_mul_f16_e32 v10.l, v0.l, v2.l",
        ("f16", "f16"),
        lambda d, a, b: _put_low(d, exact.multiply(F16, a & M16, b & M16)),
        old=True,
    ),
    Case(
        "v_mul_f16_e32 v10.h, v0.h, v2.l",
        ("u32", "f16"),
        lambda d, a, b: _put_high(d, exact.multiply(F16, a >> 16, b & M16)),
        old=True,
    ),
    Case(
        "v_mul_f16_e64 v10.h, v0.l, v2.h",
        ("f16", "u32"),
        lambda d, a, b: _put_high(d, exact.multiply(F16, a & M16, b >> 16)),
        old=True,
    ),
    Case(
        "v_add_f16_e32 v10.l, v0.l, v2.h",
        ("f16", "u32"),
        lambda d, a, b: _put_low(d, exact.add(F16, a & M16, b >> 16)),
        old=True,
    ),
    Case(
        "v_fma_f16 v10.l, v0.l, v2.l, v4.l",
        ("f16", "f16", "f16"),
        lambda d, a, b, c: _put_low(d, exact.fma(F16, a & M16, b & M16, c & M16)),
        old=True,
    ),
    Case("v_and_b16 v10.l, v0.l, v2.h", UU, lambda d, a, b: _put_low(d, a & b >> 16), old=True),
    Case("v_or_b16 v10.h, v0.h, v2.h", UU, lambda d, a, b: _put_high(d, (a | b) >> 16), old=True),
    # Mixed precision
    Case("v_fma_mix_f32 v10, v0, v2, v4", FFF, _fma32),
    Case(
        "v_fma_mix_f32 v10, v0, v2, v4 op_sel_hi:[1,1,0]",
        ("f16", "f16", "f32"),
        lambda a, b, c: _fma32(_low(a), _low(b), c),
    ),
    Case(
        "v_fma_mix_f32 v10, v0, v2, v4 op_sel:[1,0,1] op_sel_hi:[1,0,1]",
        ("u32", "f32", "u32"),
        lambda a, b, c: _fma32(_high(a), b, _high(c)),
    ),
    Case(
        "v_fma_mix_f32 v10, -v0, |v2|, v4 op_sel_hi:[1,0,0]",
        ("f16", "f32", "f32"),
        lambda a, b, c: _fma32(_low(a) ^ F32.sign, b & 0x7FFFFFFF, c),
    ),
    Case(
        "v_fma_mixlo_f16 v10, v0, v2, 0 op_sel_hi:[0,1,0]",
        ("f32", "f16"),
        lambda d, a, b: _put_low(d, _to_f16(_fma32(a, _low(b), 0))),
        old=True,
    ),
    Case(
        "v_fma_mixhi_f16 v10, v0, v2, v4 op_sel:[0,1,0] op_sel_hi:[1,1,0]",
        ("f16", "u32", "f32"),
        lambda d, a, b, c: _put_high(d, _to_f16(_fma32(_low(a), _high(b), c))),
        old=True,
    ),
    # Packed
    Case(
        "v_pk_mul_f16 v10, v0, v2",
        UU,
        lambda a, b: exact.multiply(F16, a & M16, b & M16)
        | exact.multiply(F16, a >> 16, b >> 16) << 16,
    ),
    Case(
        "v_pk_add_f16 v10, v0, v2 op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[0,1]",
        UU,
        lambda a, b: exact.add(F16, a >> 16, b & M16 ^ 0x8000)
        | exact.add(F16, a & M16, b >> 16) << 16,
    ),
    # Pairs: both read before either writes
    Case(
        "v_dual_mul_f32 v10, v0, v2 :: v_dual_mov_b32 v11, v5",
        ("f32", "f32", "u32"),
        lambda a, b, c: _mul32(a, b) | c << 32,
        2,
    ),
    Case(
        "v_dual_add_f32 v10, v0, v2 :: v_dual_fmac_f32 v11, v5, v3",
        ("f32", "f32", "f32"),
        lambda d, a, b, c: _add32(a, b) | _fma32(c, b, d >> 32) << 32,
        2,
        old=True,
    ),
    Case(
        "v_dual_mov_b32 v10, v4 :: v_dual_mov_b32 v11, v10",
        (None, None, "u32"),
        lambda d, c: c | (d & M32) << 32,
        2,
        old=True,
    ),
    Case(
        "v_dual_fmac_f32 v10, v0, v4 :: v_dual_and_b32 v11, 0xffff0000, v2",
        ("f32", "u32", "f32"),
        lambda d, a, b, c: _fma32(a, c, d & M32) | (b & 0xFFFF0000) << 32,
        2,
        old=True,
    ),
    Case(
        "v_dual_cndmask_b32 v10, v0, v2 :: v_dual_lshlrev_b32 v11, v5, v3",
        ("u32", "u32", "u32"),
        lambda a, b, c, m: ((b if m else a) | (b << (c & 31) & M32) << 32, None),
        2,
        carry=True,
    ),
    Case(
        "v_dual_sub_f32 v10, v0, v2 :: v_dual_add_nc_u32 v11, v5, v5",
        ("f32", "f32", "u32"),
        lambda a, b, c: _subtract(a, b) | (2 * c & M32) << 32,
        2,
    ),
    # Comparisons: a bit of the mask for a lane
    *(
        Case(f"v_cmp_{name}_{kind}_e64 s12, {a}, {b}", kinds, _bit(test), 0, carry=True)
        for kind, kinds, a, b, convert in (
            ("u32", UU, "v0", "v2", int),
            ("i32", UU, "v0", "v2", signed),
            ("u64", ("u64", "u64"), "v[0:1]", "v[2:3]", int),
            ("i64", ("u64", "u64"), "v[0:1]", "v[2:3]", lambda x: signed(x, 64)),
        )
        for name, test in _tests(convert)
    ),
    Case("v_cmp_ne_u32_e32 vcc_lo, v0, v2", UU, _bit(lambda a, b: a != b), 0, carry=True),
    Case(
        "v_cmp_gt_i32_e32 vcc_lo, v0, v2",
        UU,
        _bit(lambda a, b: signed(a) > signed(b)),
        0,
        carry=True,
    ),
    Case(
        "v_cmp_ne_u16_e32 vcc_lo, v0.l, v2.h",
        UU,
        _bit(lambda a, b: a & M16 != b >> 16),
        0,
        carry=True,
    ),
    Case(
        "v_cmp_ne_u16_e64 s12, v0.h, v2.l",
        UU,
        _bit(lambda a, b: a >> 16 != b & M16),
        0,
        carry=True,
    ),
    Case("v_cmp_lt_f32_e64 s12, v0, v2", FF, _bit(_less), 0, carry=True),
    Case(
        "v_cmp_ngt_f32_e32 vcc_lo, v0, v2",
        FF,
        _bit(lambda a, b: not _less(b, a)),
        0,
        carry=True,
    ),
    Case(
        "v_cmp_gt_f32_e64 s12, v0, -v2",
        FF,
        _bit(lambda a, b: _less(b ^ F32.sign, a)),
        0,
        carry=True,
    ),
    Case(
        "v_cmp_o_f32_e32 vcc_lo, v0, v2",
        FF,
        _bit(lambda a, b: not (F32.is_nan(a) or F32.is_nan(b))),
        0,
        carry=True,
    ),
    Case(
        "v_cmp_u_f32_e64 s12, v0, v2",
        FF,
        _bit(lambda a, b: F32.is_nan(a) or F32.is_nan(b)),
        0,
        carry=True,
    ),
)


@dataclasses.dataclass(frozen=True)
class Scalar:
    """One scalar instruction: sources s0, s2 (or pairs), destination s10 (or a pair).

    expected: from the sources' bits to the destination's and SCC (None: left as it was). old: it
    gets the destination's bits first. scc: it gets SCC last.
    """

    text: str
    kinds: tuple[str, ...]
    expected: Callable[..., tuple[int | None, object]]
    words: int = 1
    old: bool = False
    scc: bool = False

    def __str__(self) -> str:
        return self.text


def _nonzero(x: int) -> tuple[int, bool]:
    return x, x != 0


def _overflow(x: int) -> tuple[int, bool]:
    return x & M32, not -(1 << 31) <= x < 1 << 31


def _only(test: Callable[[int, int], bool]) -> Callable[[int, int], tuple[None, bool]]:
    return lambda a, b: (None, test(a, b))


SCALAR = (
    Scalar("s_mov_b32 s10, s0", U, lambda a: (a, None)),
    Scalar("s_mov_b32 s10, 0xfedcba98", (), lambda: (0xFEDCBA98, None)),
    Scalar("s_mov_b64 s[10:11], s[0:1]", ("u64",), lambda a: (a, None), 2),
    Scalar("s_mov_b64 s[10:11], -3", (), lambda: (-3 & M64, None), 2),
    Scalar("s_movk_i32 s10, 0x8001", (), lambda: (0xFFFF8001, None)),
    Scalar("s_not_b32 s10, s0", U, lambda a: _nonzero(~a & M32)),
    Scalar("s_clz_i32_u32 s10, s0", U, lambda a: (32 - a.bit_length() if a else M32, None)),
    Scalar("s_ctz_i32_b32 s10, s0", U, lambda a: ((a & -a).bit_length() - 1 if a else M32, None)),
    Scalar("s_sext_i32_i16 s10, s0", U, lambda a: (signed(a, 16) & M32, None)),
    Scalar("s_sext_i32_i8 s10, s0", U, lambda a: (signed(a, 8) & M32, None)),
    Scalar("s_abs_i32 s10, s0", U, lambda a: _nonzero(abs(signed(a)) & M32)),
    Scalar("s_add_u32 s10, s0, s2", UU, lambda a, b: (a + b & M32, a + b > M32)),
    Scalar("s_sub_u32 s10, s0, s2", UU, lambda a, b: (a - b & M32, b > a)),
    Scalar(
        "s_addc_u32 s10, s0, s2", UU, lambda a, b, c: (a + b + c & M32, a + b + c > M32), scc=True
    ),
    Scalar("s_subb_u32 s10, s0, s2", UU, lambda a, b, c: (a - b - c & M32, b + c > a), scc=True),
    Scalar("s_add_i32 s10, s0, s2", UU, lambda a, b: _overflow(signed(a) + signed(b))),
    Scalar("s_sub_i32 s10, s0, s2", UU, lambda a, b: _overflow(signed(a) - signed(b))),
    Scalar("s_addk_i32 s10, 0x7ff0", (), lambda d: _overflow(signed(d) + 0x7FF0), old=True),
    Scalar("s_mulk_i32 s10, 0xfffe", (), lambda d: (signed(d) * -2 & M32, None), old=True),
    Scalar("s_mul_i32 s10, s0, s2", UU, lambda a, b: (a * b & M32, None)),
    Scalar("s_mul_hi_u32 s10, s0, s2", UU, lambda a, b: (a * b >> 32, None)),
    Scalar("s_mul_hi_i32 s10, s0, s2", UU, lambda a, b: (signed(a) * signed(b) >> 32 & M32, None)),
    Scalar("s_and_b32 s10, s0, s2", UU, lambda a, b: _nonzero(a & b)),
    Scalar("s_or_b32 s10, s0, s2", UU, lambda a, b: _nonzero(a | b)),
    Scalar("s_xor_b32 s10, s0, s2", UU, lambda a, b: _nonzero(a ^ b)),
    Scalar("s_and_not1_b32 s10, s0, s2", UU, lambda a, b: _nonzero(a & ~b)),
    Scalar("s_or_not1_b32 s10, s0, s2", UU, lambda a, b: _nonzero(a | ~b & M32)),
    Scalar("s_and_b64 s[10:11], s[0:1], s[2:3]", ("u64", "u64"), lambda a, b: _nonzero(a & b), 2),
    Scalar("s_or_b64 s[10:11], s[0:1], s[2:3]", ("u64", "u64"), lambda a, b: _nonzero(a | b), 2),
    Scalar("s_xor_b64 s[10:11], s[0:1], s[2:3]", ("u64", "u64"), lambda a, b: _nonzero(a ^ b), 2),
    Scalar("s_lshl_b32 s10, s0, s2", UU, lambda a, b: _nonzero(a << (b & 31) & M32)),
    Scalar("s_lshr_b32 s10, s0, s2", UU, lambda a, b: _nonzero(a >> (b & 31))),
    Scalar("s_ashr_i32 s10, s0, s2", UU, lambda a, b: _nonzero(signed(a) >> (b & 31) & M32)),
    Scalar(
        "s_lshl_b64 s[10:11], s[0:1], s2",
        ("u64", "u32"),
        lambda a, b: _nonzero(a << (b & 63) & M64),
        2,
    ),
    Scalar(
        "s_lshr_b64 s[10:11], s[0:1], s2", ("u64", "u32"), lambda a, b: _nonzero(a >> (b & 63)), 2
    ),
    Scalar(
        "s_ashr_i64 s[10:11], s[0:1], s2",
        ("u64", "u32"),
        lambda a, b: _nonzero(signed(a, 64) >> (b & 63) & M64),
        2,
    ),
    *(Scalar(f"s_lshl{n}_add_u32 s10, s0, s2", UU, _shift_and_add(n)) for n in (1, 2, 3, 4)),
    Scalar("s_bfe_u32 s10, s0, s2", UU, lambda a, b: _nonzero(_scalar_field(a, b))),
    Scalar(
        "s_bfm_b32 s10, s0, s2", UU, lambda a, b: (((1 << (a & 31)) - 1 << (b & 31)) & M32, None)
    ),
    Scalar("s_pack_ll_b32_b16 s10, s0, s2", UU, lambda a, b: (a & M16 | (b & M16) << 16, None)),
    Scalar("s_pack_hh_b32_b16 s10, s0, s2", UU, lambda a, b: (a >> 16 | b & 0xFFFF0000, None)),
    Scalar("s_cselect_b32 s10, s0, s2", UU, lambda a, b, c: (a if c else b, None), scc=True),
    Scalar(
        "s_cselect_b64 s[10:11], s[0:1], s[2:3]",
        ("u64", "u64"),
        lambda a, b, c: (a if c else b, None),
        2,
        scc=True,
    ),
    Scalar("s_cmov_b32 s10, s0", U, lambda d, a, c: (a if c else d, None), old=True, scc=True),
    Scalar("s_min_u32 s10, s0, s2", UU, lambda a, b: (min(a, b), a < b)),
    Scalar("s_max_u32 s10, s0, s2", UU, lambda a, b: (max(a, b), a >= b)),
    Scalar(
        "s_min_i32 s10, s0, s2", UU, lambda a, b: (min(a, b, key=signed), signed(a) < signed(b))
    ),
    Scalar(
        "s_max_i32 s10, s0, s2", UU, lambda a, b: (max(a, b, key=signed), signed(a) >= signed(b))
    ),
    *(
        Scalar(f"s_cmp_{name.replace('ne', 'lg')}_{kind} s0, s2", UU, _only(test))
        for kind, convert in (("u32", int), ("i32", signed))
        for name, test in _tests(convert)
    ),
    Scalar("s_cmp_eq_u64 s[0:1], s[2:3]", ("u64", "u64"), _only(lambda a, b: a == b)),
    Scalar("s_cmp_lg_u64 s[0:1], s[2:3]", ("u64", "u64"), _only(lambda a, b: a != b)),
    Scalar("s_cmpk_lg_u32 s0, 0xffff", U, lambda a: (None, a != 0xFFFF)),
    Scalar("s_cmpk_gt_i32 s0, 0x8000", U, lambda a: (None, signed(a) > -0x8000)),
    Scalar("s_bitcmp0_b32 s0, s2", UU, _only(lambda a, b: not a >> (b & 31) & 1)),
    Scalar("s_bitcmp1_b32 s0, s2", UU, _only(lambda a, b: bool(a >> (b & 31) & 1))),
    # RDNA 3.5's scalar floats
    Scalar("s_add_f32 s10, s0, s2", FF, lambda a, b: (_add32(a, b), None)),
    Scalar("s_sub_f32 s10, s0, s2", FF, lambda a, b: (_subtract(a, b), None)),
    Scalar("s_mul_f32 s10, s0, s2", FF, lambda a, b: (_mul32(a, b), None)),
    Scalar("s_fmac_f32 s10, s0, s2", FF, lambda d, a, b: (_fma32(a, b, d), None), old=True),
    Scalar(
        "s_fmamk_f32 s10, s0, 0x3f317218, s2", FF, lambda a, b: (_fma32(a, 0x3F317218, b), None)
    ),
    Scalar(
        "s_fmaak_f32 s10, s0, s2, 0x40490fdb", FF, lambda a, b: (_fma32(a, b, 0x40490FDB), None)
    ),
    Scalar("s_min_f32 s10, s0, s2", FF, lambda a, b: (_extreme(a, b, False), None)),
    Scalar("s_max_f32 s10, s0, s2", FF, lambda a, b: (_extreme(a, b, True), None)),
    Scalar("s_trunc_f32 s10, s0", F, lambda a: (_trunc(a), None)),
    Scalar("s_cvt_f32_u32 s10, s0", U, lambda a: (_from_integer(a), None)),
    Scalar("s_cvt_f32_i32 s10, s0", U, lambda a: (_from_integer(signed(a)), None)),
    Scalar("s_cvt_u32_f32 s10, s0", F, lambda a: (exact.to_integer(F32, a, 0, M32), None)),
    Scalar("s_cvt_f16_f32 s10, s0", F, lambda a: (_to_f16(a), None)),
    Scalar("s_cvt_f32_f16 s10, s0", ("f16",), lambda a: (_low(a), None)),
    Scalar("s_cmp_lt_f32 s0, s2", FF, _only(_less)),
    Scalar("s_cmp_eq_f32 s0, s2", FF, _only(lambda a, b: _equal(a, b))),
    Scalar("s_cmp_neq_f32 s0, s2", FF, _only(lambda a, b: not _equal(a, b))),
    Scalar("s_cmp_nge_f32 s0, s2", FF, _only(lambda a, b: not (_less(b, a) or _equal(a, b)))),
)


@pytest.fixture(scope="module")
def machine_code(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The machine code of every case here, by its text."""
    texts = [each.text for each in VECTOR] + [each.text for each in SCALAR]
    texts += [*APPROXIMATED, *DIVISION]
    made = programs.assemble(texts, tmp_path_factory.mktemp("instructions"))
    return dict(zip(texts, made, strict=True))


def inputs_of(kinds: Sequence[str | None], count: int, seed: str) -> list[tuple[int, ...]]:
    """Bits for each source: every combination of edge cases that fits, then random bits."""
    chosen = random.Random(seed)
    given = [kind for kind in kinds if kind is not None]
    combinations = list(itertools.product(*(EDGES[kind] for kind in given)))
    if len(combinations) > count // 2:
        combinations = chosen.sample(combinations, count // 2)
    widths = {"u64": 64}
    while len(combinations) < count:
        combinations.append(tuple(chosen.getrandbits(widths.get(kind, 32)) for kind in given))
    chosen.shuffle(combinations)
    return combinations


_WAVES = 12


@pytest.mark.parametrize("exec_mask", [M32, SOME, 0], ids=["all", "some", "none"])
@pytest.mark.parametrize("case", VECTOR, ids=str)
def test_vector_instruction(case: Case, exec_mask: int, machine_code: dict[str, bytes]) -> None:
    count = 32 * _WAVES
    combinations = inputs_of(case.kinds, count, case.text)
    vccs = [random.Random(wave).getrandbits(32) for wave in range(_WAVES)]
    waves = programs.start(_WAVES, exec_mask=exec_mask)
    places = [2 * i for i, kind in enumerate(case.kinds) if kind is not None]
    for at, place in enumerate(places):
        column = [values[at] for values in combinations]
        low = np.array([x & M32 for x in column], np.uint32)
        # The second register of a source that has one is used by pairs.
        wide = case.kinds[place // 2] == "u64"
        high = np.array([x >> 32 if wide else x for x in column], np.uint32)
        waves.vgpr[place] = low.reshape(_WAVES, 32)
        waves.vgpr[place + 1] = high.reshape(_WAVES, 32)
    waves.vgpr[10], waves.vgpr[11] = OLD, OLD_HIGH
    waves.sgpr[106, :, 0] = vccs
    waves.sgpr[12] = 0x33333333
    programs.run(machine_code[case.text], waves)

    old = OLD | OLD_HIGH << 32 if case.words == 2 else OLD
    results = programs.vector(waves, 10, max(1, case.words))
    mask_register = 12 if " s12" in case.text else 106
    for wave in range(_WAVES):
        bits = 0
        for lane in range(32):
            values = combinations[32 * wave + lane]
            active = exec_mask >> lane & 1
            arguments = (*((old,) if case.old else ()), *values)
            if case.carry:
                arguments += (vccs[wave] >> lane & 1,)
            expected, bit = case.expected(*arguments), None
            if case.carry:
                expected, bit = expected
                bits |= bool(bit and active) << lane
            if case.words == 0:
                continue
            wanted = expected if active else old
            got = results[wave][lane]
            assert got == wanted, (
                f"lane {lane} of wave {wave}, {'active' if active else 'inactive'}: got {got:#x}, "
                f"expected {wanted:#x} from {[hex(x) for x in arguments]}"
            )
        if case.carry and bit is not None:
            got = int(waves.sgpr[mask_register, wave, 0])
            assert got == bits, f"wave {wave}: mask {got:#010x}, expected {bits:#010x}"


@pytest.mark.parametrize("case", SCALAR, ids=str)
def test_scalar_instruction(case: Scalar, machine_code: dict[str, bytes]) -> None:
    count = 256
    combinations = inputs_of(case.kinds, count, case.text)
    # exec = 0: scalar instructions run whatever lanes are active.
    waves = programs.start(count, exec_mask=0)
    for at in range(len(case.kinds)):
        for word in range(2):
            column = [values[at] >> 32 * word & M32 for values in combinations]
            waves.sgpr[2 * at + word, :, 0] = column
    waves.sgpr[10], waves.sgpr[11] = OLD, OLD_HIGH
    conditions = [bool(random.Random(i).getrandbits(1)) for i in range(count)]
    waves.scc = np.array(conditions)[:, None]
    programs.run(machine_code[case.text], waves)
    for i, values in enumerate(combinations):
        arguments = (*((OLD,) if case.old else ()), *values)
        if case.scc:
            arguments += (conditions[i],)
        expected, scc = case.expected(*arguments)
        old = OLD | OLD_HIGH << 32
        got = int(waves.sgpr[10, i, 0]) | int(waves.sgpr[11, i, 0]) << 32
        wanted = old
        if expected is not None:
            wanted = expected if case.words == 2 else expected | OLD_HIGH << 32
        shown = f"from {[hex(x) for x in arguments]}"
        assert got == wanted, f"got {got:#x}, expected {wanted:#x} {shown}"
        assert bool(waves.scc[i, 0]) == (conditions[i] if scc is None else bool(scc)), shown


@pytest.mark.parametrize("ulps", [0, 1, -1])
@pytest.mark.parametrize("text", APPROXIMATED)
def test_approximation_is_the_nearest_fp32_and_moves_by_whole_ulps(
    text: str, ulps: int, machine_code: dict[str, bytes]
) -> None:
    combinations = inputs_of(("trans",), 256, text)
    operands = [x & 0x3FFFFFFF | 0x00800000 for (x,) in combinations]
    waves = programs.start(8, trans=Transcendentals(ulps))
    waves.vgpr[0] = np.array(operands, np.uint32).reshape(8, 32)
    programs.run(machine_code[text], waves)
    got = [bits for row in programs.vector(waves, 10) for bits in row]
    for operand, result in zip(operands, got, strict=True):
        if not result & 0x7FFFFFFF:  # the logarithm of 1: exact, and not moved
            assert operand == 0x3F800000
            continue
        low, high = (_between(result - ulps, side) for side in (-1, 1))
        assert APPROXIMATED[text](F32.value(operand), low) >= 0, (hex(operand), hex(result))
        assert APPROXIMATED[text](F32.value(operand), high) <= 0, (hex(operand), hex(result))


def test_approximations_of_special_values(machine_code: dict[str, bytes]) -> None:
    inf, nan, one = F32.infinity, F32.nan, 0x3F800000
    quiet = 0x7FC12345
    expected = {
        "v_rcp_f32_e32 v10, v0": {
            0: inf, F32.sign: F32.sign | inf, inf: 0, F32.sign | inf: F32.sign, quiet: quiet,
            one: one, 0xC0000000: 0xBF000000,
        },
        "v_rsq_f32_e32 v10, v0": {
            0: inf, F32.sign: F32.sign | inf, inf: 0, 0xBF800000: nan, quiet: quiet, one: one,
            0x40800000: 0x3F000000,
        },
        "v_log_f32_e32 v10, v0": {
            0: F32.sign | inf, inf: inf, 0xBF800000: nan, quiet: quiet, one: 0,
            0x41000000: 0x40400000, 0x3F000000: 0xBF800000,
        },
    }  # fmt: skip
    for text, cases in expected.items():
        waves = programs.start()
        operands = [*cases, *[one] * (32 - len(cases))]
        waves.vgpr[0] = np.array(operands, np.uint32)
        programs.run(machine_code[text], waves)
        got = programs.vector(waves, 10)[0][: len(cases)]
        assert [hex(x) for x in got] == [hex(x) for x in cases.values()], text


def test_approximation_of_a_denormal_is_refused(machine_code: dict[str, bytes]) -> None:
    waves = programs.start(exec_mask=0b100)
    waves.vgpr[0] = 0x3F800000
    waves.vgpr[0, 0, 1] = 1  # inactive: not looked at
    programs.run(machine_code["v_rsq_f32_e32 v10, v0"], waves)
    waves.vgpr[0, 0, 2] = 1
    waves.pc, waves.ended = 0, False
    with pytest.raises(Stopped, match="v_rsq_f32_e32 v10, v0: has a denormal operand"):
        programs.run(machine_code["v_rsq_f32_e32 v10, v0"], waves)


@pytest.mark.parametrize(("ulps", "denominator"), [(0, None), (1, 96), (-1, 96)])
def test_the_steps_of_a_division_round_it_correctly(
    ulps: int, denominator: int | None, machine_code: dict[str, bytes]
) -> None:
    # v_div_scale, v_rcp, fma steps, v_div_fmas and v_div_fixup, as compilers emit them. With a
    # reciprocal that is off they are not right for every denominator; for the kernel's they are.
    combinations = inputs_of(("f32", "f32"), 32 * 64, "division")
    if denominator is not None:
        combinations = [(a, F32.round(Fraction(denominator))) for a, _ in combinations]
    waves = programs.start(64, trans=Transcendentals(ulps))
    for at, register in enumerate((0, 2)):
        column = np.array([values[at] for values in combinations], np.uint32)
        waves.vgpr[register] = column.reshape(64, 32)
    programs.run(machine_code[DIVISION[0]], waves)
    got = [bits for row in programs.vector(waves, 10) for bits in row]
    for (a, b), result in zip(combinations, got, strict=True):
        if F32.is_nan(a) or F32.is_nan(b):
            assert F32.is_nan(result)
            continue
        sign = (a ^ b) & F32.sign
        a_inf, b_inf = F32.is_infinite(a), F32.is_infinite(b)
        a_zero, b_zero = not a & 0x7FFFFFFF, not b & 0x7FFFFFFF
        if (a_inf and b_inf) or (a_zero and b_zero):
            assert F32.is_nan(result)
        elif a_inf or b_zero:
            assert result == sign | F32.infinity
        elif b_inf or a_zero:
            assert result == sign
        else:
            quotient = F32.value(a) / F32.value(b)
            expected = F32.round(quotient, zero_sign=sign)
            # A denormal is rounded twice, by v_div_fmas's scaling. Of a quotient that stays
            # too large when scaled by 2 ** -64, AMD does not say what the steps give.
            if not F32.is_denormal(expected) and abs(quotient) < 2**190:
                assert result == expected, (hex(a), hex(b), hex(result), hex(expected))
