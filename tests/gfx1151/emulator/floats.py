"""Arithmetic of gfx11 on numpy arrays of lanes, in the mode of the kernels: round to nearest
even, denormals kept. What numpy warns of (overflow, a NaN made) is no fault here: the caller turns
its warnings off.

NaN: an operation on a NaN gives the first such operand, quiet; one that makes a NaN gives the
positive quiet NaN (x86 gives the negative one).
"""

import dataclasses
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_BITS = {np.dtype(np.float16): np.uint16, np.dtype(np.float32): np.uint32}
_BITS[np.dtype(np.float64)] = np.uint64
_QUIET = {np.dtype(np.float16): 1 << 9, np.dtype(np.float32): 1 << 22}
_QUIET[np.dtype(np.float64)] = 1 << 51
_NAN = {np.dtype(np.float16): 0x7E00, np.dtype(np.float32): 0x7FC00000}
_NAN[np.dtype(np.float64)] = 0x7FF8 << 48


@dataclasses.dataclass(frozen=True)
class Transcendentals:
    """v_rcp, v_rsq, v_sqrt, v_log and v_exp, which AMD promises to 1 ulp in fp32.

    Worked out in fp64 and rounded, which is the correctly rounded result but for a chance of about
    1 in 2**28; then `ulps` are added to it (not to NaN, infinity and zero).
    """

    ulps: int = 0

    def rcp(self, x: Array) -> Array:
        """1 / x."""
        return self._result(1.0 / x.astype(np.float64), x)

    def rsq(self, x: Array) -> Array:
        """1 / sqrt(x)."""
        return self._result(1.0 / np.sqrt(x.astype(np.float64)), x)

    def sqrt(self, x: Array) -> Array:
        """sqrt(x)."""
        return self._result(np.sqrt(x.astype(np.float64)), x)

    def log2(self, x: Array) -> Array:
        """The logarithm to base 2."""
        return self._result(np.log2(x.astype(np.float64)), x)

    def exp2(self, x: Array) -> Array:
        """2 to the power of x."""
        return self._result(np.exp2(x.astype(np.float64)), x)

    def _result(self, exact: Array, x: Array) -> Array:
        value = exact.astype(x.dtype)
        if self.ulps:
            moves = np.isfinite(value) & (value != 0)
            bits = _BITS[value.dtype]
            moved = (value.view(bits) + bits(self.ulps % 2**32)).view(value.dtype)
            value = np.where(moves, moved, value)
        return _settle(value, x)


class HostTranscendentals(Transcendentals):
    """v_rsq as the host build has it: a square root and a division, each rounded."""

    def rsq(self, x: Array) -> Array:
        """1 / sqrt(x), rounded twice."""
        return _settle(x.dtype.type(1) / np.sqrt(x), x)


def _settle(result: Array, *operands: Array) -> Array:
    """Puts AMD's NaN in place of the machine's."""
    if not (nan := np.isnan(result)).any():
        return result
    bits = _BITS[result.dtype]
    settled = np.full(result.shape, _NAN[result.dtype], bits)
    for operand in reversed(np.broadcast_arrays(*operands, result)[:-1]):
        quiet = operand.view(bits) | bits(_QUIET[result.dtype])
        settled = np.where(np.isnan(operand), quiet, settled)
    return np.where(nan, settled.view(result.dtype), result)


def add(a: Array, b: Array) -> Array:
    """a + b."""
    return _settle(a + b, a, b)


def subtract(a: Array, b: Array) -> Array:
    """a - b."""
    return _settle(a - b, a, b)


def multiply(a: Array, b: Array) -> Array:
    """a * b."""
    return _settle(a * b, a, b)


def divide(a: Array, b: Array) -> Array:
    """a / b."""
    return _settle(a / b, a, b)


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in fp16 or fp32, rounded once."""
    if a.dtype == np.float64:
        raise NotImplementedError("fma of fp64")
    x, y, z = a.astype(np.float64), b.astype(np.float64), c.astype(np.float64)
    product = x * y  # exact
    total = product + z
    # The error of the addition (two-sum). Where there is one, the last bit of the total is
    # made odd: then a second rounding, to fewer bits, cannot fall on a false tie.
    back = total - product
    error = (product - (total - back)) + (z - back)
    wrong = np.isfinite(total) & (error != 0)
    if wrong.any():
        bits = total.view(np.int64)
        even = (bits & 1) == 0
        towards_zero = (error > 0) != (total > 0)
        odd = np.where(towards_zero, bits - 1, bits + 1).view(np.float64)
        total = np.where(wrong & even, odd, total)
    result = total.astype(a.dtype)
    return _settle(result, a, b, c)


def convert(x: Array, dtype: type) -> Array:
    """A float in another format; NaN stays NaN, quiet, with the upper bits of its payload."""
    result: Array = x.astype(dtype)
    if not (nan := np.isnan(x)).any():
        return result
    source, target = _BITS[x.dtype], _BITS[result.dtype]
    places = {2: 10, 4: 23, 8: 52}
    shift = places[x.itemsize] - places[result.itemsize]
    payload = x.view(source) & source((1 << places[x.itemsize]) - 1)
    moved = payload >> source(shift) if shift > 0 else payload.astype(target) << target(-shift)
    sign = (x.view(source) >> source(8 * x.itemsize - 1)).astype(target)
    bits = moved.astype(target) | target(_NAN[result.dtype])
    bits |= sign << target(8 * result.itemsize - 1)
    return np.where(nan, bits.view(result.dtype), result)


def to_integer(x: Array, dtype: type) -> Array:
    """A float to an integer, towards zero; what is out of range is the nearest, NaN is 0."""
    limits = np.iinfo(dtype)
    wide = np.trunc(x.astype(np.float64))
    clipped = np.clip(np.where(np.isnan(wide), 0.0, wide), float(limits.min), float(limits.max))
    return clipped.astype(np.int64).astype(dtype)


def scale(x: Array, exponent: Array) -> Array:
    """x * 2 ** exponent, rounded once."""
    far = np.clip(exponent.astype(np.int64), -1000, 1000)
    return _settle(np.ldexp(x.astype(np.float64), far).astype(x.dtype), x)


def exponent_of(x: Array) -> Array:
    """The exponent field of an fp32."""
    return (x.view(np.uint32) >> np.uint32(23) & np.uint32(0xFF)).astype(np.int32)


def quiet(x: Array) -> Array:
    """A NaN, quiet; other values as they are."""
    bits = _BITS[x.dtype]
    return np.where(np.isnan(x), (x.view(bits) | bits(_QUIET[x.dtype])).view(x.dtype), x)


def is_denormal(x: Array) -> Array:
    """Whether values are denormal (zero is not)."""
    return (x != 0) & (np.abs(x) < np.finfo(x.dtype).tiny)


def extreme(a: Array, b: Array, largest: bool) -> Array:
    """The larger or smaller of two, in IEEE mode: a signalling NaN gives that NaN, quiet; of a
    quiet NaN and a number, the number; -0 is below +0."""
    if largest:
        first = (a > b) | ((a == b) & np.signbit(b) & ~np.signbit(a))
    else:
        first = (a < b) | ((a == b) & np.signbit(a) & ~np.signbit(b))
    cases = [is_signalling(a), is_signalling(b), np.isnan(b), np.isnan(a), first]
    return np.select(cases, [quiet(a), quiet(b), a, b, a], b)


def is_signalling(x: Array) -> Array:
    """Whether values are signalling NaNs."""
    bits = _BITS[x.dtype]
    return np.isnan(x) & ((x.view(bits) & bits(_QUIET[x.dtype])) == 0)
