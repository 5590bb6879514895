"""What the code of one architecture may cost, and what of it is over that."""

import dataclasses
from collections.abc import Iterator, Sequence

from scripts.budget.assembly import Kernel

MAX_KERNELS = 64
MAX_OBJECT_BYTES = 400 * 1024
MAX_COMPILE_SECONDS = 60.0
MAX_ROUND_TRIPS = 3  # the argument; position, slot, activations and weights; cos and sin


def max_vgprs(head_dim: int) -> int:
    """Of a kernel for heads of this size."""
    return 64 if head_dim <= 256 else 96


@dataclasses.dataclass(frozen=True)
class Measured:
    """The code object of one architecture. round_trips: of each kernel, before its first store.
    compile_seconds: of processor time; None: not measured."""

    architecture: str
    kernels: Sequence[Kernel]
    round_trips: Sequence[int]
    object_bytes: int
    compile_seconds: float | None = None


def over(measured: Measured) -> Iterator[str]:
    """What is over the budget, one line each."""
    arch = measured.architecture
    if len(measured.kernels) > MAX_KERNELS:
        yield f"{arch}: {len(measured.kernels)} kernels, at most {MAX_KERNELS}"
    if measured.object_bytes > MAX_OBJECT_BYTES:
        yield f"{arch}: {measured.object_bytes} bytes, at most {MAX_OBJECT_BYTES}"
    seconds = measured.compile_seconds
    if seconds is not None and seconds > MAX_COMPILE_SECONDS:
        yield f"{arch}: compiled in {seconds:.0f} s, at most {MAX_COMPILE_SECONDS:.0f} s"
    for kernel, trips in zip(measured.kernels, measured.round_trips, strict=True):
        most = {
            "VGPRs": (kernel.vgprs, max_vgprs(kernel.head_dim)),
            "VGPR spills": (kernel.vgpr_spills, 0),
            "SGPR spills": (kernel.sgpr_spills, 0),
            "bytes of scratch": (kernel.scratch_bytes, 0),
            "bytes of LDS": (kernel.lds_bytes, 0),
            "memory round trips before the first store": (trips, MAX_ROUND_TRIPS),
        }
        for what, (found, allowed) in most.items():
            if found > allowed:
                yield f"{arch}: {kernel.name}: {found} {what}, at most {allowed}"
