"""The contract's measure of equality, and messages that show where it fails.

A difference is measured per head, in units of the last place (ulps) of the
head's largest value.
"""

import dataclasses

import torch

# What the contract grants against an fp32 model with the same rounding points,
# and against vLLM's native modules.
REFERENCE_ULPS = 2.0
# Of Q that is normed, rounded, weighted, rounded and scaled: more than the contract grants.
# The last bit of a reciprocal root may round a normed element the other way (in fp16, -2.0879
# or -2.0898); a weight of 1.427 makes two ulps of that (-2.9785, -2.9824), and a scale of
# 1.179 three (-3.5117, -3.5176). A random call has come to that.
REFERENCE_ULPS_NORM_AND_SCALE = 3.0
NATIVE_ULPS = 2.0
NATIVE_ULPS_FP16_NORM_AND_SCALE = 3.0

# Bits of the significand after the point, and the smallest exponent of an ulp.
_PRECISION = {torch.float16: (10, -24), torch.bfloat16: (7, -133)}

_AXES = {
    3: ("token", "head", "element"),
    4: ("block", "head", "slot", "element"),
}


@dataclasses.dataclass
class Tally:
    """What was compared so far, for what must be rare: a head more than one ulp away
    (the contract's "one head in a thousand"), and an element of other bits at all. A
    different order of a sum or a reciprocal root's last bit changes few elements; a
    missing or an additional rounding changes most, if by less than an ulp.
    """

    heads: int = 0
    above_one: int = 0
    worst: float = 0.0
    elements: int = 0
    different: int = 0

    def assert_rare(self) -> None:
        """At most one head in a thousand is above one ulp (one head is granted
        to a sample of fewer), and one element in a hundred differs."""
        allowed = max(1, self.heads // 1000)
        assert self.above_one <= allowed, (
            f"{self.above_one} of {self.heads} heads differ by more than 1 ulp, "
            f"at most {allowed} may (worst: {self.worst:.2f} ulps)"
        )
        assert self.different <= max(1, self.elements // 100), (
            f"{self.different} of {self.elements} elements are of other bits, more than one in "
            "a hundred: something is rounded where it must not be, or not where it must be"
        )


def assert_close(
    name: str,
    actual: torch.Tensor,
    expected: torch.Tensor,
    tally: Tally | None = None,
    bound: float = REFERENCE_ULPS,
) -> None:
    """Asserts that every head of actual is within bound ulps of expected.

    Both [T, H, D] of one fp16 or bf16 dtype. NaN must be NaN in both, infinity
    the same infinity. Adds the heads to the tally.
    """
    ulps = element_ulps(actual, expected)
    if tally is not None and ulps.numel():
        worst = ulps.amax(-1)
        tally.heads += worst.numel()
        tally.above_one += int((worst > 1).sum())
        tally.worst = max(tally.worst, float(worst.max()))
        tally.elements += ulps.numel()
        tally.different += int((ulps > 0).sum())
    bad = ulps > bound
    if bad.any():
        raise AssertionError(
            _first_difference(name, actual, expected, bad)
            + f", {float(ulps[_first(bad)]):.2f} ulps of the head's largest value"
            f" (at most {bound:g}); {int(bad.sum())} of {bad.numel()} elements differ"
        )


def element_ulps(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """|actual - expected| in ulps of the head's largest finite expected value,
    fp64, on the CPU; infinite where one is NaN or infinite and the other is
    not the same."""
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
    bits, smallest = _PRECISION[expected.dtype]
    a, e = actual.detach().cpu().double(), expected.detach().cpu().double()
    if not e.numel():
        return torch.zeros_like(e)
    largest = torch.where(e.isfinite(), e.abs(), 0.0).amax(-1, keepdim=True)
    # frexp: largest = m * 2**exponent with 0.5 <= m < 1, so its ulp is
    # 2**(exponent - 1 - bits).
    exponent = (torch.frexp(largest).exponent - 1 - bits).clamp(min=smallest)
    exponent = torch.where(largest == 0, smallest, exponent)
    finite = a.isfinite() & e.isfinite()
    same = (a.isnan() & e.isnan()) | (a == e)
    difference = torch.where(finite, (a - e).abs(), 0.0)
    ulps = torch.ldexp(difference, -exponent)
    return torch.where(finite | same, ulps, torch.inf)


def assert_same_bits(name: str, actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Asserts that two tensors of one shape and dtype are bit for bit equal."""
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
    bad = bits_of(actual) != bits_of(expected)
    if bad.any():
        raise AssertionError(
            _first_difference(name, actual, expected, bad)
            + f"; {int(bad.sum())} of {bad.numel()} elements differ"
        )


def assert_same_fp8(name: str, actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Asserts that two tensors of 8-bit floats are bit for bit equal, any NaN equal to any."""
    nan = actual.isnan().cpu() & expected.isnan().cpu()
    assert_same_bits(
        name,
        actual.cpu().view(torch.int8).masked_fill(nan, 0).view(actual.dtype),
        expected.cpu().view(torch.int8).masked_fill(nan, 0).view(expected.dtype),
    )


def bits_of(x: torch.Tensor) -> torch.Tensor:
    """The bits of a tensor as integers of the same width, on the CPU."""
    integer = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return x.detach().cpu().contiguous().view(integer)


def _first(bad: torch.Tensor) -> tuple[int, ...]:
    return tuple(bad.nonzero()[0].tolist())


def _first_difference(
    name: str, actual: torch.Tensor, expected: torch.Tensor, bad: torch.Tensor
) -> str:
    index = _first(bad)
    axes = _AXES.get(len(index), tuple(f"axis {i}" for i in range(len(index))))
    place = ", ".join(f"{axis} {i}" for axis, i in zip(axes, index, strict=True))
    return (
        f"{name} differs first at {place}: got {_describe(actual, index)}, "
        f"expected {_describe(expected, index)}"
    )


def _describe(x: torch.Tensor, index: tuple[int, ...]) -> str:
    mask = (1 << 8 * x.element_size()) - 1
    width = 2 * x.element_size()
    return f"{x[index].item():.6g} ({int(bits_of(x)[index]) & mask:#0{width + 2}x})"
