"""The op against vLLM's own modules, from the checkout, for every family."""

import concurrent.futures
import multiprocessing
from collections.abc import Callable, Iterator

import pytest
import torch

from scripts import paths
from tests.kernel import cases, compare, op, vllm_native
from tests.kernel.families import FAMILIES, Family
from tests.kernel.rope_tables import cos_sin_table
from tests.kernel.vllm_native import Native

Run = Callable[[Family, int, torch.dtype, int], Native]


@pytest.fixture(scope="module")
def native() -> Iterator[Run]:
    """vLLM's modules in a process of their own.

    A GPU machine need not have vLLM's requirements: there, and only there, the
    comparison is skipped with the reason.
    """
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            if not paths.CHECKOUT.exists():
                where = paths.CHECKOUT.relative_to(paths.ROOT)
                raise ImportError(f"no {where}; run `make checkout`")
            pool.submit(vllm_native.import_vllm, paths.CHECKOUT).result()
        except ImportError as error:
            if op.device().type != "cuda":
                raise
            pytest.skip(f"vLLM cannot be imported here: {error}")

        def run(family: Family, tokens: int, dtype: torch.dtype, seed: int) -> Native:
            arguments = (paths.CHECKOUT, family.name, tokens, dtype, seed)
            return pool.submit(vllm_native.run, *arguments).result()

        yield run


@pytest.mark.parametrize("dtype", op.DTYPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_family_agrees_with_vllms_modules(native: Run, family: Family, dtype: torch.dtype) -> None:
    bound = compare.NATIVE_ULPS
    if dtype == torch.float16 and family.norm and family.q_scale_beta:
        bound = compare.NATIVE_ULPS_FP16_NORM_AND_SCALE
    for tokens in (1, 4 * 8, 32 * 8):
        wanted = native(family, tokens, dtype, tokens)
        case = cases.build(family, tokens, dtype, seed=tokens, table=wanted.table)
        a = case.arguments
        op.run(a)
        compare.assert_close("q", cases.q_of(a), wanted.q, bound=bound)
        rows = cases.cache_rows(a)
        if wanted.k is None or wanted.v is None:
            assert not rows
            continue
        compare.assert_close("k", cases.k_of(a), wanted.k, bound=bound)
        assert len(rows) == tokens
        cached = torch.stack([row for _, row in rows])
        k_cached, v_cached = cached.split(family.head_dim, dim=-1)
        compare.assert_close("K half of the cache", k_cached, wanted.k, bound=bound)
        if family.v_norm:
            compare.assert_close("V half of the cache", v_cached, wanted.v, bound=bound)
        else:
            compare.assert_same_bits("V half of the cache", v_cached, wanted.v)


@pytest.mark.parametrize("dtype", op.DTYPES, ids=str)
@pytest.mark.parametrize("family", [f for f in FAMILIES if f.rope], ids=lambda f: f.name)
def test_tables_of_the_families_are_vllms(native: Run, family: Family, dtype: torch.dtype) -> None:
    """Our own formulas, which stand in for vLLM's where it is not at hand."""
    assert family.rope is not None
    theirs = native(family, 1, dtype, 1).table
    assert theirs is not None
    ours = cos_sin_table(family.rope, dtype)
    assert ours.shape == theirs.shape
    # fp32 angles of thousands of radians: their last bits are 1e-3 apart where
    # the frequency's product is taken in another order.
    difference = (ours.float() - theirs.float()).abs().max().item()
    assert difference <= 2e-3 + torch.finfo(dtype).eps, difference
