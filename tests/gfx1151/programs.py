"""Small programs for the emulator: assembled by LLVM, run on chosen registers."""

import io
import itertools
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from tests.gfx1151.emulator.code_object import Kernel
from tests.gfx1151.emulator.decode import VCC
from tests.gfx1151.emulator.floats import Transcendentals
from tests.gfx1151.emulator.launch import run_until_parted
from tests.gfx1151.emulator.memory import Memory
from tests.gfx1151.emulator.wave import Waves

Array = np.ndarray[Any, Any]

_VGPRS = 64


def assemble(texts: Sequence[str], folder: Path) -> list[bytes]:
    """The machine code of each text, by LLVM's assembler for gfx1151."""
    source, made = folder / "programs.s", folder / "programs.o"
    lines = [f"program_{i}:\n{text}" for i, text in enumerate(texts)]
    source.write_text("\n".join([*lines, f"program_{len(texts)}:", ""]))
    command = [
        *(sys.executable, "-m", "ziglang", "clang", "-x", "assembler"),
        *("--target=amdgcn-amd-amdhsa", "-mcpu=gfx1151", "-c", str(source), "-o", str(made)),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    elf = ELFFile(io.BytesIO(made.read_bytes()))
    text, symbols = elf.get_section_by_name(".text"), elf.get_section_by_name(".symtab")
    assert text is not None and isinstance(symbols, SymbolTableSection)
    code = text.data()
    found = {symbol.name: symbol["st_value"] for symbol in symbols.iter_symbols()}
    places = [found[f"program_{i}"] for i in range(len(texts) + 1)]
    return [code[begin:end] for begin, end in itertools.pairwise(places)]


def start(
    count: int = 1,
    vgprs: dict[int, Array] | None = None,
    sgprs: dict[int, int] | None = None,
    exec_mask: int = 0xFFFFFFFF,
    vcc: int = 0,
    scc: bool = False,
    memory: Memory | None = None,
    trans: Transcendentals | None = None,
) -> Waves:
    """Waves with chosen registers; vgprs: arrays [lane] or [wave, lane] by number."""
    names = [f"wave {i}" for i in range(count)]
    waves = Waves(memory or Memory(), _VGPRS, names, trans or Transcendentals())
    for register, values in (vgprs or {}).items():
        waves.vgpr[register] = values
    for register, value in (sgprs or {}).items():
        waves.write_scalar(register, [value & 0xFFFFFFFF])
    waves.sgpr[VCC] = vcc
    waves.scc[:] = scc
    waves.set_exec(np.uint32(exec_mask))
    return waves


def run(code: bytes, waves: Waves) -> Waves:
    """Runs code, which need not end with s_endpgm, on waves that do not part."""
    assert run_until_parted(kernel_of(code), waves) == []
    return waves


def kernel_of(code: bytes) -> Kernel:
    """A kernel of some code, with s_endpgm behind it."""
    return Kernel(
        name="program",
        code=code + _ENDPGM,
        entry=0,
        kernarg_bytes=0,
        user_sgprs=0,
        kernarg_sgpr=0,
        workgroup_ids=(False, False, False),
        vgprs=_VGPRS,
    )


def vector(waves: Waves, register: int, words: int = 1) -> list[list[int]]:
    """A register's bits (or of a pair's) as integers, [wave][lane]."""
    low = waves.vgpr[register].tolist()
    if words == 1:
        return low
    high = waves.vgpr[register + 1].tolist()
    return [
        [a | b << 32 for a, b in zip(*rows, strict=True)] for rows in zip(low, high, strict=True)
    ]


def scalar(waves: Waves, register: int, words: int = 1) -> int:
    """A scalar register's bits (or of a pair's), of the first wave."""
    return sum(int(waves.sgpr[register + i, 0, 0]) << 32 * i for i in range(words))


_ENDPGM = (0xBFB00000).to_bytes(4, "little")
