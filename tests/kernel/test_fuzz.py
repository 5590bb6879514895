"""Random calls over shapes, strides, dtypes and options, against the reference.

RDNA35_FUZZ_EXAMPLES sets their number (default 2000), RDNA35_FUZZ_SEED which they
are; Hypothesis also draws numbers that it finds in the modules imported so far, so a
run of this file alone makes other calls than one of all tests. A long run, without
the time limit of a test:

    RDNA35_FUZZ_EXAMPLES=50000 python -m pytest --timeout=0 tests/kernel/test_fuzz.py
"""

import os

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from tests.kernel import cases, compare, op
from tests.kernel.cases import Case, Options
from tests.kernel.families import Family
from tests.kernel.rope_tables import Rope

EXAMPLES = int(os.environ.get("RDNA35_FUZZ_EXAMPLES", "2000"))
SEED = int(os.environ.get("RDNA35_FUZZ_SEED", "0"))
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)

int64 = st.integers(INT64_MIN, INT64_MAX)
# Around every power of two, where widths end.
edges = st.builds(
    lambda bit, sign, near: max(min(sign * 2**bit + near, INT64_MAX), INT64_MIN),
    st.integers(0, 63),
    st.sampled_from((1, -1)),
    st.integers(-3, 3),
)
# A context length of any size.
large = edges.map(lambda n: min(max(1, abs(n)), INT64_MAX))


@st.composite
def families(draw: st.DrawFn) -> Family:
    """Any legal layer, not the models' alone."""
    head_dim = draw(st.sampled_from(op.HEAD_DIMS))
    max_rows = draw(st.sampled_from((1, 2, 7, 64, 300)))
    rope = None
    if draw(st.booleans()) or draw(st.booleans()):
        eighths = st.integers(1, head_dim // 16).map(lambda n: 8 * n)
        half = draw(st.one_of(st.just(head_dim // 2), eighths, st.integers(1, head_dim // 2)))
        rope = Rope(2 * half, base=draw(st.sampled_from((1e4, 1e6))), rows=max_rows)
    num_kv_heads = draw(st.integers(0, 4))
    position_rows = draw(st.sampled_from((1, 1, 1, 3)))
    section = None
    if rope is not None and position_rows == 3 and draw(st.booleans()):
        ends = sorted(draw(st.lists(st.integers(0, half), min_size=2, max_size=2)))
        section = (ends[0], ends[1] - ends[0], half - ends[1])
    scaled = draw(st.integers(0, 3)) == 0
    return Family(
        "fuzz",
        num_q_heads=draw(st.integers(0, 9)),
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rope=rope,
        norm=draw(st.sampled_from(("", "rms", "gemma"))),
        eps=draw(st.sampled_from((1e-6, 1e-5, 0.1))),
        v_norm=num_kv_heads > 0 and draw(st.booleans()),
        gated=draw(st.integers(0, 4)) == 0,
        position_rows=position_rows,
        max_position=draw(st.sampled_from((1, max_rows, 2 * max_rows))),
        pos_offset=draw(st.one_of(st.just(0), st.integers(-5, 40), edges, int64)),
        q_scale_beta=draw(st.sampled_from((0.1, -0.3, 2.0))) if scaled else 0.0,
        q_scale_orig_max=draw(st.one_of(st.integers(1, 100), large))
        if scaled
        else draw(st.integers(-1, 3)),
        is_neox=draw(st.booleans()),
        mrope_section=section,
        mrope_interleaved=section is not None and draw(st.booleans()),
    )


@st.composite
def layouts(draw: st.DrawFn) -> Options:
    """Any legal arrangement in memory."""
    aligned = draw(st.booleans())
    small = st.sampled_from((0, 0, 8, 24) if aligned else (0, 0, 1, 2, 3, 8, 24))
    v = draw(st.integers(0, 5)) > 0
    return Options(
        block_size=draw(st.one_of(st.sampled_from((1, 16, 32, 544)), st.integers(1, 70))),
        layout=draw(st.sampled_from(cases.LAYOUTS)),
        block_pad=draw(small if aligned else st.one_of(small, st.integers(0, 300))),
        joined=draw(st.booleans()),
        outputs=draw(st.frozensets(st.sampled_from(("q", "k", "v")))),
        cache=draw(st.integers(0, 4)) > 0,
        cache_dtype=draw(st.sampled_from((None, None, torch.float8_e4m3fn, torch.float8_e5m2))),
        v=v,
        weights=draw(st.sampled_from((None, None, torch.float32))),
        skip_slots=draw(st.booleans()),
        row_pad=draw(small),
        head_pad=draw(small),
        shift=draw(small),
    )


@st.composite
def calls(draw: st.DrawFn) -> Case:
    """One legal call, its slots and positions wild."""
    family, options = draw(families()), draw(layouts())
    tokens = draw(st.one_of(st.integers(0, 5), st.integers(0, 40)))
    heads = family.num_q_heads + 2 * family.num_kv_heads
    if heads and draw(st.integers(0, 9)) == 0:  # a batch for the wider kernels
        tokens = draw(st.sampled_from((1024, 4096))) // heads + draw(st.integers(0, 2))
    options = options.replace(slots_mapped=draw(st.integers(0, tokens)))
    dtype = draw(st.sampled_from(op.DTYPES))
    case = cases.build(family, tokens, dtype, options, seed=draw(st.integers(0, 2**32)))
    a = case.arguments
    if family.norm and draw(st.integers(0, 3)) == 0:
        offset = draw(st.sampled_from((-0.5, 0.0, 0.125, 1.0)))
        case.arguments = a = a.replace(weight_offset=offset)
    if tokens:
        for token in draw(st.lists(st.integers(0, tokens - 1), max_size=4)):
            a.positions[..., token] = draw(st.one_of(edges, int64))
    slots = a.slot_mapping
    if slots is not None and len(slots) and a.kv_cache is not None:
        # Not one of the cache's own: two tokens with one slot have no one result.
        size = a.kv_cache.shape[0] * a.kv_cache.shape[2]
        wild = st.one_of(edges, int64, st.integers(size, size + 3))
        outside = wild.filter(lambda slot: not 0 <= slot < size)
        for token in draw(st.lists(st.integers(0, len(slots) - 1), max_size=4)):
            slots[token] = draw(outside)
    return case


@pytest.mark.slow
@pytest.mark.skipif(not EXAMPLES, reason="RDNA35_FUZZ_EXAMPLES is 0")
@hypothesis.seed(SEED)
@hypothesis.settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(hypothesis.HealthCheck),
)
@hypothesis.given(calls())
def test_random_calls(case: Case) -> None:
    a = case.arguments
    rounded_twice = a.q_weight is not None and a.q_weight.dtype == a.q.dtype and not a.weight_offset
    if rounded_twice and a.q_scale_beta:
        case.run_and_check(q_ulps=compare.REFERENCE_ULPS_NORM_AND_SCALE)
    else:
        case.run_and_check()
