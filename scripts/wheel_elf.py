"""What the op library and the code objects in it promise, read from their ELF files."""

import io
import re
from collections.abc import Iterator

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection

EM_AMDGPU = 224

# EF_AMDGPU_MACH of e_flags (LLVM's User Guide for AMDGPU Backend, "ELF Header").
_MACH_MASK = 0xFF
_MACH = {"gfx1150": 0x43, "gfx1151": 0x4A, "gfx1152": 0x55, "gfx1153": 0x58}

# The newest symbol versions of the oldest system that the wheels are for: glibc 2.35 and GCC 12's
# run-time libraries (Ubuntu 22.04).
_NEWEST = {
    "GLIBC": (2, 35),
    "GLIBCXX": (3, 4, 30),
    "CXXABI": (1, 3, 13),
    "GCC": (12, 0, 0),
}
_VERSION = re.compile(r"([A-Z]+)_([0-9.]+)")

# What the library may be linked to: the C and C++ run time, and torch without any vendor's part.
_LINKED = re.compile(
    r"(ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|libc10|libtorch|libtorch_cpu)\.so[.0-9]*"
)


def read_library(data: bytes) -> ELFFile:
    """The op library, opened; raises ValueError where it is no shared library for x86-64."""
    try:
        elf = ELFFile(io.BytesIO(data))
        # The section headers are an ELF file's end: reading them finds one cut short.
        elf.get_section(elf.num_sections() - 1)
    except ELFError as error:
        raise ValueError(f"not a whole ELF file ({error})") from None
    if elf["e_machine"] != "EM_X86_64" or elf["e_type"] != "ET_DYN":
        machine, kind = elf["e_machine"], elf["e_type"]
        raise ValueError(f"not a shared library for x86_64 ({machine}, {kind})")
    return elf


def library_problems(elf: ELFFile) -> list[str]:
    """What keeps the op library from loading on the systems that the wheels are for."""
    return [*_symbol_problems(elf), *_link_problems(elf)]


def _symbol_problems(elf: ELFFile) -> Iterator[str]:
    for section in elf.iter_sections():
        if not isinstance(section, GNUVerNeedSection):
            continue
        for library, auxiliaries in section.iter_versions():
            for auxiliary in auxiliaries:
                match = _VERSION.fullmatch(auxiliary.name)
                newest = _NEWEST.get(match[1]) if match else None
                if match is None or newest is None:
                    yield f"needs {auxiliary.name} of {library.name}, not in glibc 2.35 or GCC 12"
                elif tuple(map(int, match[2].split("."))) > newest:
                    limit = ".".join(map(str, newest))
                    yield f"needs {auxiliary.name} of {library.name}, newer than {match[1]}_{limit}"


def _link_problems(elf: ELFFile) -> Iterator[str]:
    for section in elf.iter_sections():
        if not isinstance(section, DynamicSection):
            continue
        for tag in section.iter_tags():
            # pyelftools gives a tag that holds a string an attribute of the tag's name.
            needed = getattr(tag, "needed", None)
            if needed is not None and not _LINKED.fullmatch(needed):
                yield f"is linked to {needed}"
            elif tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH"):
                yield f"has a search path for libraries ({tag.entry.d_tag})"


def sections(elf: ELFFile, prefix: str) -> dict[str, bytes]:
    """The sections whose names start with `prefix`."""
    return {s.name: s.data() for s in elf.iter_sections() if s.name.startswith(prefix)}


def code_object_problems(image: bytes, architecture: str) -> list[str]:
    """What keeps a code object from loading on `architecture`."""
    try:
        elf = ELFFile(io.BytesIO(image))
        mach = elf["e_flags"] & _MACH_MASK
        if elf["e_machine"] not in ("EM_AMDGPU", EM_AMDGPU) or elf["e_type"] != "ET_DYN":
            return [f"not loadable code for an AMD GPU ({elf['e_machine']}, {elf['e_type']})"]
        if architecture not in _MACH:
            return [f"no machine number for it in {__name__}; add it from LLVM's AMDGPU guide"]
        if mach != _MACH[architecture]:
            made_for = next((name for name, number in _MACH.items() if number == mach), hex(mach))
            return [f"code for {made_for}"]
        loads = [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_LOAD"]
        if not loads or any(load["p_offset"] + load["p_filesz"] > len(image) for load in loads):
            return ["nothing to load in it, or cut short"]
        symbols = elf.get_section_by_name(".dynsym")
        if not isinstance(symbols, SymbolTableSection) or not any(
            s.name.endswith(".kd") for s in symbols.iter_symbols()
        ):
            return ["no kernel in it"]
        return []
    except ELFError as error:
        return [f"not a whole ELF file ({error})"]
