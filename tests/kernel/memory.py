"""Guarded memory: every tensor of a case lies inside a larger allocation of its
own (or shares one, as the views of a qkv row do), and everything around and
between its elements is filled and checked.
"""

import math
import os

import torch

# A NaN in fp16 and in bf16, and a pattern that no computation produces.
POISON = 0x7FD1
# Elements before and after the tensors of an allocation; 0 under AddressSanitizer,
# which guards the allocations themselves, against reading too.
GUARD = int(os.environ.get("RDNA35_TEST_GUARD", "272"))


class Memory:
    """The allocations of one case."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._allocations: dict[str, torch.Tensor] = {}
        self._before: dict[str, torch.Tensor] = {}

    def allocate(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        strides: tuple[int, ...] | None = None,
        shift: int = 0,
        fill: int = POISON,
    ) -> torch.Tensor:
        """A tensor surrounded by guards, all of it filled.

        strides are in elements (default: contiguous); shift moves the first
        element off the alignment that GUARD gives (at least 32 bytes).
        16-bit floats are filled with the bits `fill`, other floats with NaN,
        integers with the value.
        """
        if strides is None:
            strides = contiguous_strides(shape)
        extent = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        if 0 in shape:
            extent = 0
        flat = torch.empty(GUARD + shift + extent + GUARD, dtype=dtype)
        if dtype in (torch.float16, torch.bfloat16):
            flat.view(torch.int16).fill_(fill)
        elif dtype.is_floating_point:
            flat.fill_(math.nan)
        else:
            flat.fill_(fill)
        assert name not in self._allocations, name
        flat = self._allocations[name] = flat.to(self.device)
        return flat.as_strided(shape, strides, GUARD + shift)

    def to(self, device: torch.device) -> "Memory":
        """Copies of the allocations, guards and all, on another device."""
        moved = Memory(device)
        moved._allocations = {n: f.to(device, copy=True) for n, f in self._allocations.items()}
        return moved

    def same_view(self, other: "Memory", view: torch.Tensor) -> torch.Tensor:
        """The view of this memory that is where `view` is in the other."""
        name = other._name_of(view)
        assert name is not None, "the view is of no allocation of that memory"
        return self._allocations[name].as_strided(view.shape, view.stride(), view.storage_offset())

    def snapshot(self) -> None:
        """Remembers every byte as it is now."""
        self._before = {n: _bits(f) for n, f in self._allocations.items()}

    def assert_untouched_but(self, written: list[torch.Tensor]) -> None:
        """Asserts that every byte is as it was, but for those of these tensors."""
        views: dict[str | None, list[torch.Tensor]] = {}
        for view in written:
            views.setdefault(self._name_of(view), []).append(view)
        for name, flat in self._allocations.items():
            changed = _bits(flat) != self._before[name]
            for view in views.get(name, []):
                place = (view.shape, view.stride(), view.storage_offset())
                changed.as_strided(*place).fill_(False)
            if changed.any():
                first = int(changed.nonzero()[0])
                raise AssertionError(
                    f"{int(changed.sum())} elements of the memory of {name} outside "
                    f"what may be written have changed, first number {first} "
                    f"(the tensor's begin at {GUARD})"
                )

    def _name_of(self, view: torch.Tensor) -> str | None:
        storage = view.untyped_storage().data_ptr()
        for name, flat in self._allocations.items():
            if flat.untyped_storage().data_ptr() == storage:
                return name
        return None


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor, in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _bits(flat: torch.Tensor) -> torch.Tensor:
    """A copy of the bits on the CPU."""
    integer = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    return flat.view(integer).to("cpu", copy=True)
