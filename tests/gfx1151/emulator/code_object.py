"""A code object: its kernels, their descriptors, and what a wave starts with."""

import dataclasses
import io
import struct
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

from tests.gfx1151.emulator.errors import Unknown

_EM_AMDGPU = 224
_GFX1151 = 0x4A  # e_flags, the machine
_DESCRIPTOR_BYTES = 64


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One kernel. entry: offset of its first instruction in `code`, in bytes.

    kernarg_bytes: size of its arguments. user_sgprs: those that the hardware fills before the
    workgroup's id; kernarg_sgpr: the first of the two with the arguments' address. workgroup_ids:
    which of x, y, z follow. vgprs, sgprs: what a wave is given.
    """

    name: str
    code: bytes
    entry: int
    kernarg_bytes: int
    user_sgprs: int
    kernarg_sgpr: int
    workgroup_ids: tuple[bool, bool, bool]
    vgprs: int


@dataclasses.dataclass(frozen=True)
class CodeObject:
    """The code and the kernels of an ELF file for gfx1151."""

    code: bytes
    kernels: dict[str, Kernel]

    def kernel(self, name: str) -> Kernel:
        """A kernel by its symbol; KeyError names those that there are."""
        if name not in self.kernels:
            raise KeyError(f"no kernel {name}; there are {', '.join(sorted(self.kernels))}")
        return self.kernels[name]


def load(path: Path) -> CodeObject:
    """Reads a code object. Raises Unknown for another machine or a mode that is not executed."""
    return parse(path.read_bytes())


def parse(image: bytes) -> CodeObject:
    """The code object of an ELF image."""
    elf = ELFFile(io.BytesIO(image))
    if elf["e_machine"] not in ("EM_AMDGPU", _EM_AMDGPU):
        raise Unknown(f"a code object of the machine {elf['e_machine']}, expected AMDGPU")
    if elf["e_flags"] & 0xFF != _GFX1151:
        raise Unknown(f"a code object of the GPU {elf['e_flags'] & 0xFF:#x}, expected gfx1151")
    text, symbols = elf.get_section_by_name(".text"), elf.get_section_by_name(".dynsym")
    if text is None or not isinstance(symbols, SymbolTableSection):
        raise Unknown("a code object without code or dynamic symbols")
    if _relocations(elf):
        raise Unknown("a code object with relocations")
    code, begin = text.data(), text["sh_addr"]
    kernels = {}
    for symbol in symbols.iter_symbols():
        if symbol.name.endswith(".kd"):
            address = symbol["st_value"]
            descriptor = _read(elf, address, _DESCRIPTOR_BYTES)
            kernel = _kernel(symbol.name.removesuffix(".kd"), descriptor, address, code, begin)
            kernels[kernel.name] = kernel
    return CodeObject(code, kernels)


def _relocations(elf: ELFFile) -> list[object]:
    return [
        relocation
        for section in elf.iter_sections()
        if isinstance(section, RelocationSection)
        for relocation in section.iter_relocations()
    ]


def _read(elf: ELFFile, address: int, size: int) -> bytes:
    for segment in elf.iter_segments("PT_LOAD"):
        at = address - segment["p_vaddr"]
        if at >= 0 and at + size <= segment["p_filesz"]:
            return bytes(segment.data()[at : at + size])
    raise Unknown(f"a kernel descriptor at {address:#x}, where the file has nothing")


def _kernel(name: str, descriptor: bytes, address: int, code: bytes, begin: int) -> Kernel:
    group, private, kernarg, _, entry = struct.unpack_from("<IIIIq", descriptor)
    rsrc3, rsrc1, rsrc2, properties = struct.unpack_from("<IIIH", descriptor, 44)
    del rsrc3

    def bits(word: int, low: int, count: int) -> int:
        return word >> low & ((1 << count) - 1)

    def require(what: str, got: int, expected: int) -> None:
        if got != expected:
            raise Unknown(f"{name}: {what} is {got}, executed is {expected}")

    require("the group segment's size", group, 0)
    require("the private segment's size", private, 0)
    require("float_round_mode_32", bits(rsrc1, 12, 2), 0)
    require("float_round_mode_16_64", bits(rsrc1, 14, 2), 0)
    require("float_denorm_mode_32", bits(rsrc1, 16, 2), 3)
    require("float_denorm_mode_16_64", bits(rsrc1, 18, 2), 3)
    require("fp16_overflow", bits(rsrc1, 26, 1), 0)
    require("enable_private_segment", bits(rsrc2, 0, 1), 0)
    require("exceptions", bits(rsrc2, 24, 7), 0)
    require("workitem ids beyond x", bits(rsrc2, 11, 2), 0)
    require("workgroup_info", bits(rsrc2, 10, 1), 0)
    require("wavefront_size32", bits(properties, 10, 1), 1)

    # User SGPRs in the order in which the hardware fills them, with their number.
    first, kernarg_sgpr = 0, -1
    for bit, count in ((0, 4), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 1)):
        if bits(properties, bit, 1):
            if bit == 3:
                kernarg_sgpr = first
            else:
                raise Unknown(f"{name}: user SGPRs of kind {bit} (kernel_code_properties)")
            first += count
    if kernarg_sgpr < 0:
        raise Unknown(f"{name}: no SGPRs with the arguments' address")
    user_sgprs = bits(rsrc2, 1, 5)
    if first > user_sgprs:
        raise Unknown(f"{name}: {user_sgprs} user SGPRs for {first} registers of values")
    return Kernel(
        name=name,
        code=code,
        entry=address + entry - begin,
        kernarg_bytes=kernarg,
        user_sgprs=user_sgprs,
        kernarg_sgpr=kernarg_sgpr,
        workgroup_ids=(bool(bits(rsrc2, 7, 1)), bool(bits(rsrc2, 8, 1)), bool(bits(rsrc2, 9, 1))),
        vgprs=8 * (bits(rsrc1, 0, 6) + 1),
    )
