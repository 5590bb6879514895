"""A cache of 8-bit floats: bit for bit what torch makes of the fp32 quotient."""

import itertools

import pytest
import torch

from tests.kernel import cases, compare, op
from tests.kernel.cases import Options
from tests.kernel.compare import Tally
from tests.kernel.families import FAMILIES, Family
from tests.kernel.op import Arguments
from tests.kernel.reference import quantize

FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
HEAD_DIM = 64

of_both_dtypes = pytest.mark.parametrize("dtype", op.DTYPES, ids=str)
of_both_fp8 = pytest.mark.parametrize("fp8", FP8, ids=str)


@of_both_fp8
@of_both_dtypes
@pytest.mark.parametrize("family", [f for f in FAMILIES if f.num_kv_heads], ids=lambda f: f.name)
def test_family_with_a_quantized_cache(
    family: Family, dtype: torch.dtype, fp8: torch.dtype
) -> None:
    """The other outputs stay in the activations' dtype, and what they are without."""
    tally = Tally()
    for tokens, options in (
        (1, Options(cache_dtype=fp8)),
        (24, Options(cache_dtype=fp8, outputs=frozenset("qkv"), layout="LBHNC", skip_slots=True)),
        (5, Options(cache_dtype=fp8, outputs=frozenset("v"), block_size=1, head_pad=3, shift=1)),
    ):
        cases.build(family, tokens, dtype, options, seed=tokens).run_and_check(tally)
    tally.assert_rare()


def quantized(values: torch.Tensor, scale: float, fp8: torch.dtype) -> tuple[torch.Tensor, ...]:
    """What the op stores of values [N], as K and as V."""
    device = op.device()
    x = values.reshape(-1, 1, HEAD_DIM).to(device)
    tokens = x.shape[0]
    cache = torch.full((tokens, 1, 1, 2 * HEAD_DIM), float("nan")).to(fp8).to(device)
    scales = [torch.tensor(scale, device=device), torch.tensor([1.0], device=device)]
    for k_scale, v_scale in (scales, scales[::-1]):
        op.run(
            Arguments(
                positions=torch.zeros(tokens, dtype=torch.int64, device=device),
                q=x[:, :0],
                k=x,
                v=x.clone(),
                kv_cache=cache,
                slot_mapping=torch.arange(tokens, device=device),
                k_scale=k_scale,
                v_scale=v_scale,
            )
        )
        if k_scale is scales[0]:
            k = cache[:, 0, 0, :HEAD_DIM].clone()
    return k, cache[:, 0, 0, HEAD_DIM:]


def every(dtype: torch.dtype) -> torch.Tensor:
    """Every value of a 16-bit float."""
    return torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)


def scales() -> list[float]:
    """Usual ones, and those at which some step of the division leaves fp32's range."""
    random = torch.Generator().manual_seed(20)
    usual = torch.rand(20, generator=random).exp() * torch.logspace(-6, 3, 20)
    edges = (2.0**-149, 2.0**-126, 2.0**-61, 2.0**-60, 2.0**60, 2.0**61, 2.0**126)
    near = [edge * by for edge in edges for by in (1.0, 1.3, 1.9999999)]
    special = [1.0, 0.5, 448.0, 0.0, float("inf"), float("nan"), -0.7, 3.4028234663852886e38]
    return [*usual.tolist(), *near, *special]


@of_both_fp8
@of_both_dtypes
def test_every_value_at_many_scales(dtype: torch.dtype, fp8: torch.dtype) -> None:
    values = every(dtype)
    for scale in scales():
        expected = quantize(values, torch.tensor(scale), fp8).reshape(-1, HEAD_DIM)
        for name, actual in zip("KV", quantized(values, scale, fp8), strict=True):
            compare.assert_same_fp8(f"{name} / {scale!r}", actual, expected)


@of_both_fp8
def test_quotients_that_almost_tie(fp8: torch.dtype) -> None:
    """Scales for which a quotient is a last bit of fp32 from the middle of two codes."""
    codes = torch.arange(1, 0x7B, dtype=torch.uint8)
    low, high = (code.view(fp8).float() for code in (codes, codes + 1))
    middle = (low + high) / 2
    values = torch.tensor([1.0, 1.2109375, 1.9921875, 1.3359375]).to(torch.bfloat16)
    for value, step in itertools.product(values, (-2, -1, 0, 1, 2)):
        for scale in (value.float() / middle).view(torch.int32).add(step).view(torch.float32):
            x = value.repeat(HEAD_DIM)
            expected = quantize(x, scale, fp8)[None]
            for actual in quantized(x, float(scale), fp8):
                compare.assert_same_fp8(f"{float(value)} / {float(scale)!r}", actual, expected)


def test_what_is_past_the_range_is_stored_as_its_ends() -> None:
    values = torch.tensor([1e4, -1e4, torch.inf, -torch.inf, torch.nan, 500.0, 0.0, -0.0])
    x = values.repeat(HEAD_DIM // 8).to(torch.bfloat16)
    k, _ = quantized(x, 1.0, torch.float8_e4m3fn)
    stored = k[0, :8].float().cpu()
    assert stored[:4].tolist() == [448, -448, 448, -448]
    assert stored[4].isnan() and stored[5] == 448
    assert stored[6:].signbit().tolist() == [False, True]
