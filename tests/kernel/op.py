"""The op under test: its arguments by name, its library, its device.

Two environment variables choose what is tested, so that the same tests serve
the host build, the sanitizer build and a GPU:

  RDNA35_TEST_DEVICE   cpu (default) or cuda
  RDNA35_TEST_LIBRARY  the op library (default: build/op's, built where needed)
"""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable

import torch

from scripts import op as op_build

# The contract's schema, character for character but for line breaks.
SCHEMA = (
    "_rocm_C::rdna35_rope_cache("
    "Tensor positions, Tensor(a!) q, Tensor(b!)? k, Tensor? v, "
    "Tensor? cos_sin_cache, Tensor? q_weight, Tensor? k_weight, "
    "bool v_norm, float eps, int pos_offset, "
    "float q_scale_beta, int q_scale_orig_max, "
    "Tensor(c!)? kv_cache, Tensor? slot_mapping, "
    "Tensor(d!)? q_out, Tensor(e!)? k_out, Tensor(f!)? v_out, "
    "float weight_offset=0.0, "
    "bool is_neox=True, int[]? mrope_section=None, "
    "bool mrope_interleaved=False, "
    "Tensor? k_scale=None, Tensor? v_scale=None) -> ()"
)

HEAD_DIMS = (64, 96, 128, 256, 512)
DTYPES = (torch.float16, torch.bfloat16)


@dataclasses.dataclass(frozen=True, repr=False)
class Arguments:
    """The op's arguments, in the schema's order; shapes are the contract's."""

    positions: torch.Tensor
    q: torch.Tensor
    k: torch.Tensor | None = None
    v: torch.Tensor | None = None
    cos_sin_cache: torch.Tensor | None = None
    q_weight: torch.Tensor | None = None
    k_weight: torch.Tensor | None = None
    v_norm: bool = False
    eps: float = 1e-6
    pos_offset: int = 0
    q_scale_beta: float = 0.0
    q_scale_orig_max: int = 0
    kv_cache: torch.Tensor | None = None
    slot_mapping: torch.Tensor | None = None
    q_out: torch.Tensor | None = None
    k_out: torch.Tensor | None = None
    v_out: torch.Tensor | None = None
    weight_offset: float = 0.0
    is_neox: bool = True
    mrope_section: list[int] | None = None
    mrope_interleaved: bool = False
    k_scale: torch.Tensor | None = None
    v_scale: torch.Tensor | None = None

    def __repr__(self) -> str:
        values = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return f"Arguments({', '.join(f'{n}={_short(v)}' for n, v in values)})"

    def replace(self, **changes: object) -> "Arguments":
        """These arguments with some of them changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def map_tensors(self, function: Callable[[torch.Tensor], torch.Tensor]) -> "Arguments":
        """These arguments with each tensor replaced by what the function makes of it."""
        changes = {
            f.name: function(value)
            for f in dataclasses.fields(self)
            if isinstance(value := getattr(self, f.name), torch.Tensor)
        }
        return self.replace(**changes)

    def as_tuple(self) -> tuple[object, ...]:
        """The values in the schema's order; tensors as they are, not copied."""
        return tuple(getattr(self, f.name) for f in dataclasses.fields(self))


def _short(value: object) -> str:
    """A tensor's values where they decide (positions, slots), else its shape."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    if value.dtype == torch.int64 and value.numel() <= 64:
        return str(value.tolist())
    return f"{value.dtype}{list(value.shape)} strides {list(value.stride())}"


def device() -> torch.device:
    """The device that this run tests."""
    return torch.device(os.environ.get("RDNA35_TEST_DEVICE", "cpu"))


@functools.cache
def library() -> pathlib.Path:
    """The op library that this run tests."""
    if named := os.environ.get("RDNA35_TEST_LIBRARY"):
        return pathlib.Path(named)
    return op_build.build()


@functools.cache
def load() -> torch._ops.OpOverload:
    """Loads the library once and returns the op."""
    torch.ops.load_library(str(library()))
    return torch.ops._rocm_C.rdna35_rope_cache.default


def run(arguments: Arguments) -> None:
    """Calls the op and waits until the device has finished."""
    load()(*arguments.as_tuple())
    if arguments.q.is_cuda:
        torch.cuda.synchronize()
