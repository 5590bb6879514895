"""The rounding between norm and RoPE, shown on heads of which all else is exact: one result is
right, bit for bit, whatever the order of a sum and the last bit of a reciprocal root."""

import pytest
import torch

from tests.kernel import cases, compare, op
from tests.kernel.cases import Case
from tests.kernel.families import Family
from tests.kernel.rope_tables import Rope
from tests.kernel.test_reference import no_rounding_between_norm_and_rope


def with_exact_norms(case: Case) -> Case:
    """The same call on heads whose mean square, with eps, is 64 squared.

    Every head has the same 32 integers, each as often as any other, in an order and with signs of
    its own; they and their squares' sums are exact, and the norm divides by 64.
    """
    random = torch.Generator().manual_seed(7)
    integers = torch.randint(1, 90, (32,), generator=random)
    a = case.arguments
    assert a.k is not None
    for x in (a.q, a.k):
        order = torch.rand(x.shape, generator=random).argsort(-1)
        sign = torch.randint(0, 2, x.shape, generator=random) * 2 - 1
        x.copy_(integers.repeat(x.shape[-1] // 32)[order] * sign)
    mean_square = float(integers.square().sum()) / 32
    assert mean_square < 64**2
    return Case(a.replace(eps=64**2 - mean_square), case.memory)


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("head_dim", op.HEAD_DIMS)
@pytest.mark.parametrize("dtype", op.DTYPES, ids=str)
def test_normed_heads_are_rounded_before_they_are_rotated(
    dtype: torch.dtype, head_dim: int, partial: bool
) -> None:
    """vLLM 53115: a kernel that keeps fp32 from the norm to RoPE gives other bits than the model,
    in every fifth element and more, all of them within 2 ulps."""
    rot = head_dim // 2 if partial else head_dim
    rope = Rope(rot, rows=64)
    family = Family("exact", 5, 3, head_dim, rope, norm="rms", max_position=64)
    case = with_exact_norms(cases.build(family, 20, dtype, seed=3))
    unrounded = no_rounding_between_norm_and_rope(case.arguments)
    expected = case.run()
    assert expected.k is not None and unrounded.k is not None
    compare.assert_same_bits("q", cases.q_of(case.arguments), expected.q)
    compare.assert_same_bits("k", cases.k_of(case.arguments), expected.k)
    for other, right in ((unrounded.q, expected.q), (unrounded.k, expected.k)):
        compare.assert_close("unrounded", other, right)
        different = compare.bits_of(other[..., :rot]) != compare.bits_of(right[..., :rot])
        assert different.float().mean() > 1 / 5
