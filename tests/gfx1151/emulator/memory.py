"""The memory that a kernel is given: tensors at the addresses that the kernel knows them by, and
nothing else. Which bytes may be read and written is known byte by byte."""

import dataclasses
from typing import Any

import numpy as np
import torch

from tests.gfx1151.emulator.errors import Violation

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Given:
    """A tensor that a kernel is given: at an address, to read, to write, or both.

    At `address` is the tensor's first element, whatever its own address is in this process.
    """

    name: str
    tensor: torch.Tensor
    address: int
    read: bool = True
    written: bool = False


@dataclasses.dataclass
class _Region:
    """Bytes from `begin` on; masks are None where all may be read, or written."""

    name: str
    begin: int
    data: Array
    readable: Array | None
    writable: Array | None

    @property
    def end(self) -> int:
        return self.begin + self.data.size


class Memory:
    """Regions by address; every access is checked."""

    def __init__(self) -> None:
        self._regions: list[_Region] = []

    def add_bytes(self, name: str, address: int, data: bytes) -> None:
        """Bytes that may be read."""
        array = np.frombuffer(bytearray(data), np.uint8)
        self._insert(_Region(name, address, array, None, np.zeros(array.size, bool)))

    def add_tensors(self, tensors: list[Given]) -> None:
        """Tensors; those of one storage share a region, in which each has its own elements."""
        storages: dict[int, list[Given]] = {}
        for given in tensors:
            if given.tensor.numel():
                storage = given.tensor.untyped_storage().data_ptr()
                storages.setdefault(storage, []).append(given)
        for together in storages.values():
            self._insert(_region(together))

    def _insert(self, region: _Region) -> None:
        for other in self._regions:
            if region.begin < other.end and other.begin < region.end:
                raise ValueError(f"{region.name} overlaps {other.name}")
        self._regions.append(region)

    def load(self, addresses: Array, size: int) -> Array:
        """Bytes [lanes, size] at addresses (uint64). Violation for one outside."""
        found = np.empty((addresses.size, size), np.uint8)
        for region, lanes, at in self._find(addresses, size, "reads"):
            if region.readable is not None:
                self._check(region, region.readable[at], addresses, lanes, "reads")
            found[lanes] = region.data[at]
        return found

    def store(self, addresses: Array, values: Array) -> None:
        """Writes bytes [lanes, size]. Violation for one outside."""
        size = values.shape[1]
        for region, lanes, at in self._find(addresses, size, "writes"):
            if region.writable is not None:
                self._check(region, region.writable[at], addresses, lanes, "writes")
            region.data[at] = values[lanes]

    def _find(self, addresses: Array, size: int, verb: str) -> list[tuple[_Region, Array, Array]]:
        """Regions, which accesses they serve, and where: indices [accesses, size] of bytes."""
        found = []
        left = np.ones(addresses.size, bool)
        for region in self._regions:
            offsets = (addresses - np.uint64(region.begin)).view(np.int64)
            inside = left & (offsets >= 0) & (offsets + size <= region.data.size)
            if inside.any():
                found.append((region, inside, offsets[inside][:, None] + np.arange(size)))
                left &= ~inside
                if not left.any():
                    break
        if left.any():
            access = int(np.flatnonzero(left)[0])
            address = int(addresses[access])
            raise Violation(
                f"{verb} {size} bytes at {address:#x}, outside of everything given: "
                f"{self._nearest(address)}",
                access,
            )
        return found

    def _nearest(self, address: int) -> str:
        def distance(region: _Region) -> int:
            return max(region.begin - address, address - region.end + 1, 0)

        region = min(self._regions, key=distance)
        if address < region.begin:
            return f"{region.begin - address} bytes before {region.name}"
        return (
            f"{address - region.begin} bytes past the start of {region.name}, which has "
            f"{region.data.size}"
        )

    @staticmethod
    def _check(region: _Region, allowed: Array, addresses: Array, served: Array, verb: str) -> None:
        if not allowed.all():
            access = int(np.flatnonzero(served)[~allowed.all(axis=1)][0])
            address = int(addresses[access])
            raise Violation(
                f"{verb} {allowed.shape[1]} bytes at {address:#x}, byte {address - region.begin} "
                f"of {region.name}, which it may not",
                access,
            )


def _region(together: list[Given]) -> _Region:
    """One region for tensors of one storage."""
    storage = together[0].tensor.untyped_storage()
    # Byte by byte, whatever the dtype is.
    whole = torch.empty(0, dtype=torch.uint8).set_(storage)
    begins, ends = [], []
    for given in together:
        tensor = given.tensor
        begin = int(tensor.storage_offset()) * tensor.element_size()
        extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        begins.append(begin)
        ends.append(begin + extent * tensor.element_size())
    low, high = min(begins), max(ends)
    bases = {given.address - begin for given, begin in zip(together, begins, strict=True)}
    if len(bases) != 1:
        raise ValueError(f"{together[0].name} and others of its storage are at unrelated addresses")
    masks: list[Array | None] = []
    for wanted in ("read", "written"):
        chosen = [given for given in together if getattr(given, wanted)]
        if any(
            given.tensor.is_contiguous() and given.tensor.nbytes == high - low for given in chosen
        ):
            masks.append(None)
            continue
        allowed = torch.zeros(high, dtype=torch.bool)
        for given in chosen:
            tensor, size = given.tensor, given.tensor.element_size()
            begin = int(tensor.storage_offset()) * size
            allowed.as_strided(
                (*tensor.shape, size), (*(s * size for s in tensor.stride()), 1), begin
            ).fill_(True)
        masks.append(allowed.numpy()[low:])
    return _Region(
        "/".join(given.name for given in together),
        bases.pop() + low,
        whole.numpy()[low:high],
        masks[0],
        masks[1],
    )
