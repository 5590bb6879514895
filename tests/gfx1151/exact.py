"""Floating point from its definition, on integers and fractions: what instruction tests expect.

Shares nothing with the emulator: a float is taken apart by its bits, worked with as a fraction, and
rounded to nearest even by comparing fractions.
"""

import dataclasses
from fractions import Fraction


@dataclasses.dataclass(frozen=True)
class Format:
    """A binary format of IEEE 754: bits of the exponent and of the significand after the point."""

    exponent_bits: int
    fraction_bits: int

    @property
    def bits(self) -> int:
        """Width in bits."""
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bias(self) -> int:
        """What is added to an exponent."""
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def infinity(self) -> int:
        """The bits of +infinity."""
        return ((1 << self.exponent_bits) - 1) << self.fraction_bits

    @property
    def quiet(self) -> int:
        """The bit that makes a NaN quiet."""
        return 1 << (self.fraction_bits - 1)

    @property
    def nan(self) -> int:
        """The NaN that an operation makes on this GPU: quiet, positive."""
        return self.infinity | self.quiet

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << (self.bits - 1)

    def is_nan(self, bits: int) -> bool:
        """Whether these bits are a NaN."""
        return bits & ~self.sign > self.infinity

    def is_infinite(self, bits: int) -> bool:
        """Whether these bits are an infinity."""
        return bits & ~self.sign == self.infinity

    def is_denormal(self, bits: int) -> bool:
        """Whether these bits are a denormal (zero is not)."""
        return 0 < bits & ~self.sign < 1 << self.fraction_bits

    def value(self, bits: int) -> Fraction:
        """The value of a finite number."""
        exponent = bits >> self.fraction_bits & ((1 << self.exponent_bits) - 1)
        fraction = bits & ((1 << self.fraction_bits) - 1)
        assert exponent != (1 << self.exponent_bits) - 1, hex(bits)
        if exponent:
            fraction |= 1 << self.fraction_bits
        power = max(exponent, 1) - self.bias - self.fraction_bits
        magnitude = Fraction(fraction) * Fraction(2) ** power
        return -magnitude if bits & self.sign else magnitude

    def round(self, value: Fraction, zero_sign: int = 0) -> int:
        """The bits of the nearest number, ties to even; zero_sign: of a result that is 0."""
        if value == 0:
            return self.sign if zero_sign else 0
        sign, magnitude = (self.sign, -value) if value < 0 else (0, value)
        # The exponent e with 2**e <= magnitude < 2**(e + 1).
        exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
        if Fraction(2) ** exponent > magnitude:
            exponent -= 1
        exponent = max(exponent, 1 - self.bias)
        scaled = magnitude / Fraction(2) ** (exponent - self.fraction_bits)
        whole, rest = divmod(scaled.numerator, scaled.denominator)
        twice = 2 * rest
        if twice > scaled.denominator or (twice == scaled.denominator and whole & 1):
            whole += 1
        # whole counts units of the last place: adding it to the exponent's field carries right.
        bits = whole + ((exponent + self.bias - 1) << self.fraction_bits)
        return sign | min(bits, self.infinity)


F16, F32 = Format(5, 10), Format(8, 23)


def first_nan(f: Format, *operands: int) -> int | None:
    """The result that a NaN among the operands gives: the first, made quiet."""
    return next((x | f.quiet for x in operands if f.is_nan(x)), None)


def add(f: Format, a: int, b: int) -> int:
    """a + b."""
    return fma(f, a, f.round(Fraction(1)), b, nans=(a, b))


def multiply(f: Format, a: int, b: int) -> int:
    """a * b."""
    if (nan := first_nan(f, a, b)) is not None:
        return nan
    sign = (a ^ b) & f.sign
    if f.is_infinite(a) or f.is_infinite(b):
        zero = not (f.is_infinite(a) or f.value(a)) or not (f.is_infinite(b) or f.value(b))
        return f.nan if zero else sign | f.infinity
    return f.round(f.value(a) * f.value(b), zero_sign=sign)


def fma(f: Format, a: int, b: int, c: int, nans: tuple[int, ...] | None = None) -> int:
    """a * b + c, rounded once."""
    if (nan := first_nan(f, *(nans if nans is not None else (a, b, c)))) is not None:
        return nan
    product_sign = (a ^ b) & f.sign
    if f.is_infinite(a) or f.is_infinite(b):
        product = multiply(f, a, b)
        if f.is_nan(product) or (f.is_infinite(c) and (c ^ product) & f.sign):
            return f.nan
        return product
    if f.is_infinite(c):
        return c
    total = f.value(a) * f.value(b) + f.value(c)
    # The sum of zeros of one sign has that sign; an exact cancellation is +0.
    both_negative = bool(product_sign and c & f.sign)
    return f.round(total, zero_sign=both_negative)


def convert(source: Format, target: Format, a: int) -> int:
    """A number in another format; a NaN keeps the upper bits of its payload."""
    if source.is_nan(a):
        payload = a & ((1 << source.fraction_bits) - 1)
        shift = source.fraction_bits - target.fraction_bits
        payload = payload >> shift if shift >= 0 else payload << -shift
        sign = target.sign if a & source.sign else 0
        return sign | target.nan | payload
    if source.is_infinite(a):
        return target.infinity | (target.sign if a & source.sign else 0)
    return target.round(source.value(a), zero_sign=a & source.sign)


def to_integer(f: Format, a: int, low: int, high: int) -> int:
    """Towards zero, the nearest of [low, high]; NaN is 0."""
    if f.is_nan(a):
        return 0
    if f.is_infinite(a):
        return low if a & f.sign else high
    value = f.value(a)
    whole = abs(value.numerator) // value.denominator
    return max(low, min(high, -whole if value < 0 else whole))
