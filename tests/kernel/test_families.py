"""Every model family against the reference, and a token's independence of the
batch that it comes in."""

import pytest
import torch

from tests.kernel import cases, compare, op
from tests.kernel.cases import Options
from tests.kernel.compare import Tally
from tests.kernel.families import FAMILIES, Family
from tests.kernel.memory import Memory
from tests.kernel.op import Arguments
from tests.kernel.rope_tables import Rope
from tests.kernel.test_memory import virtual_memory

ALL_OUTPUTS = frozenset("qkv")
# One sequence, 4 sequences of 8 tokens, 32 of 8.
TOKENS = (1, 4 * 8, 32 * 8)

of_every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
of_both_dtypes = pytest.mark.parametrize("dtype", op.DTYPES, ids=str)


@of_both_dtypes
@of_every_family
def test_family_in_place(family: Family, dtype: torch.dtype) -> None:
    """sglang 19636: K is rotated both in the cache and in the tensor that attention gets."""
    tally = Tally()
    for tokens in TOKENS:
        cases.build(family, tokens, dtype, seed=tokens).run_and_check(tally)
    tally.assert_rare()


@of_both_dtypes
@of_every_family
def test_family_to_outputs(family: Family, dtype: torch.dtype) -> None:
    tally = Tally()
    for tokens in TOKENS:
        options = Options(outputs=ALL_OUTPUTS, skip_slots=True, layout="LBHNC")
        case = cases.build(family, tokens, dtype, options, seed=1000 + tokens)
        case.run_and_check(tally)
    tally.assert_rare()


@pytest.mark.parametrize("weight_offset", [0.0, 1.0, -0.25])
@of_both_dtypes
def test_fp32_norm_weights(dtype: torch.dtype, weight_offset: float) -> None:
    tally = Tally()
    for family in FAMILIES:
        if family.norm:
            case = cases.build(family, 64, dtype, Options(weights=torch.float32), seed=5)
            case.arguments = case.arguments.replace(weight_offset=weight_offset)
            case.run_and_check(tally)
    tally.assert_rare()


def results(a: Arguments) -> dict[str, torch.Tensor]:
    """Runs the op into fresh outputs; q, k, v_out and the cache rows [T, Hkv,
    2 * D] it wrote."""
    memory = Memory(a.q.device)
    for name, x in (("q_out", a.q), ("k_out", a.k), ("v_out", a.v)):
        if x is not None:
            out = memory.allocate(name, tuple(x.shape), x.dtype)
            a = a.replace(**{name: out})
    return results_in(a)


def results_in(a: Arguments) -> dict[str, torch.Tensor]:
    """Runs the op as the arguments say; what it wrote, as copies."""
    op.run(a)
    found = {"q": cases.q_of(a).clone()}
    if a.k is not None:
        found["k"] = cases.k_of(a).clone()
    if a.v_out is not None:
        found["v"] = a.v_out.clone()
    rows = cases.cache_rows(a)
    if rows:
        found["cache"] = torch.stack([row for _, row in rows])
    return found


def some_tokens(a: Arguments, tokens: list[int]) -> Arguments:
    """The same call with these tokens only, in this order, as copies."""
    return a.replace(
        positions=a.positions[..., tokens].contiguous(),
        q=a.q[tokens],
        k=None if a.k is None else a.k[tokens],
        v=None if a.v is None else a.v[tokens],
        slot_mapping=None if a.slot_mapping is None else a.slot_mapping[tokens],
    )


def moved(a: Arguments, shift: int, pad: int) -> Arguments:
    """The same call from memory that is shifted by elements and whose strides
    are padded, its table and weights and outputs too."""
    memory = Memory(a.q.device)
    changes = {}
    for name in ("q", "k", "v", "cos_sin_cache", "q_weight", "k_weight"):
        x = getattr(a, name)
        if x is None:
            continue
        shape, strides = tuple(x.shape), None
        if x.dim() == 3:
            head = x.shape[2] + pad
            strides = (x.shape[1] * head + 3 * pad, head, 1)
        copy = memory.allocate(name, shape, x.dtype, strides, shift)
        changes[name] = copy.copy_(x)
        if x.dim() == 3:
            out = memory.allocate(f"{name}_out", shape, x.dtype, strides, shift)
            changes[f"{name}_out"] = out
    return a.replace(**changes)


def assert_rows_equal(
    what: str,
    actual: dict[str, torch.Tensor],
    expected: dict[str, torch.Tensor],
    tokens: list[int],
) -> None:
    assert actual.keys() == expected.keys()
    for name, x in actual.items():
        compare.assert_same_bits(f"{name} {what}", x, expected[name][tokens])


@of_both_dtypes
@of_every_family
def test_tokens_bits_do_not_depend_on_the_batch(family: Family, dtype: torch.dtype) -> None:
    a = cases.build(family, 256, dtype, seed=3).arguments
    batch = results(a)
    for token in (0, 1, 2, 7, 31, 32, 100, 255):
        alone = results(some_tokens(a, [token]))
        assert_rows_equal(f"of token {token} alone", alone, batch, [token])
    backwards = list(range(255, -1, -3))
    assert_rows_equal("in another order", results(some_tokens(a, backwards)), batch, backwards)


@pytest.mark.parametrize(
    ("shift", "pad"), [(0, 0), (1, 0), (0, 1), (2, 6), (4, 4), (7, 9), (8, 8), (0, 64)]
)
@of_both_dtypes
@of_every_family
def test_tokens_bits_do_not_depend_on_alignment_and_strides(
    family: Family, dtype: torch.dtype, shift: int, pad: int
) -> None:
    a = cases.build(family, 9, dtype, seed=4).arguments
    expected = results(a)
    tokens = list(range(9))
    assert_rows_equal("moved", results_in(moved(a, shift, pad)), expected, tokens)


@of_both_dtypes
@of_every_family
def test_in_place_and_outputs_are_the_same_bits(family: Family, dtype: torch.dtype) -> None:
    a = cases.build(family, 33, dtype, seed=6).arguments
    expected = results(a)
    expected.pop("v", None)
    assert_rows_equal("in place", results_in(a), expected, list(range(33)))


@of_every_family
def test_repeated_runs_are_the_same_bits(family: Family) -> None:
    a = cases.build(family, 64, torch.bfloat16, seed=8).arguments
    expected = results(a)
    for _ in range(3):
        assert_rows_equal("again", results(a), expected, list(range(64)))


@pytest.mark.parametrize("dtype", op.DTYPES, ids=str)
@pytest.mark.parametrize("norm", ["", "rms", "gemma"])
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize(
    ("head_dim", "heads"), [(64, 4096), (96, 4096), (128, 1024), (128, 4096), (256, 4096)]
)
def test_batches_large_enough_for_wider_lanes(
    head_dim: int, heads: int, partial: bool, norm: str, dtype: torch.dtype
) -> None:
    """From so many heads on, aligned, a lane moves 8 or 16 bytes at once: other kernels."""
    rope = Rope(head_dim // 2 if partial else head_dim)
    family = Family("wide", 5, 3, head_dim, rope, norm, v_norm=bool(norm))
    tokens = heads // 11 + 1
    cases.build(family, tokens, dtype, Options(outputs=frozenset("v"))).run_and_check()


def test_heads_as_far_apart_as_may_be() -> None:
    """Eight heads of a wave 2**27 elements apart: the largest offset of a lane."""
    if op.device().type != "cpu":
        pytest.skip("virtual memory of the CPU")
    tokens, heads, head_dim, far = 512, 8, 64, 2**27
    flat = torch.frombuffer(virtual_memory(2 * heads * far), dtype=torch.bfloat16)
    q = flat.as_strided((tokens, heads, head_dim), (head_dim, far, 1))
    near = torch.randn(tokens, heads, head_dim).to(torch.bfloat16)
    q.copy_(near)
    table = torch.randn(512, head_dim).to(torch.bfloat16)
    positions = torch.randperm(512)[:tokens]
    for x in (q, near):
        op.run(Arguments(positions=positions, q=x, cos_sin_cache=table))
    compare.assert_same_bits("q", q, near)
