"""The host build against the GPU, bit for bit.

Their instructions differ in the reciprocal square root (of the norms) and the
logarithm (of the scaling) alone. So what has neither is the same bits; for the
rest, how many elements differ goes into the report.
"""

from collections.abc import Callable

import pytest
import torch

from tests.kernel import cases, compare, op
from tests.kernel.cases import Options
from tests.kernel.compare import Tally
from tests.kernel.families import FAMILIES, Family

pytestmark = pytest.mark.skipif(op.device().type != "cuda", reason="needs a GPU")

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", op.DTYPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_host_and_gpu_agree(
    family: Family, dtype: torch.dtype, record_property: Callable[[str, object], None]
) -> None:
    options = Options(outputs=frozenset("qkv"))
    host = cases.build(family, 256, dtype, options, seed=11, device=CPU)
    gpu = host.to(op.device())
    op.run(host.arguments)
    op.run(gpu.arguments)
    tally, elements, different = Tally(), 0, 0
    for name in ("q_out", "k_out", "v_out", "kv_cache"):
        on_host, on_gpu = getattr(host.arguments, name), getattr(gpu.arguments, name)
        if on_host is None:
            continue
        if name != "kv_cache":
            compare.assert_close(name, on_gpu, on_host, tally)
        elements += on_host.numel()
        different += int((compare.bits_of(on_gpu) != compare.bits_of(on_host)).sum())
        if not (family.norm or family.v_norm or family.q_scale_beta):
            compare.assert_same_bits(name, on_gpu, on_host)
    tally.assert_rare()
    record_property(
        "host-agreement",
        f"{family.name} {str(dtype).removeprefix('torch.')}: {different} of {elements} "
        f"elements differ, by {tally.worst:.2f} ulps at most",
    )
