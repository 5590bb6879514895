"""Decoding, checked by LLVM: every instruction of the code object, decoded, written as assembly
and assembled by LLVM, gives the bytes it came from. A register, a constant, a modifier or an offset
that was decoded wrongly gives other bytes, or no instruction.
"""

from pathlib import Path

import pytest

from tests.gfx1151 import (
    programs,
    test_instructions,
    test_lanes,
    test_memory_instructions,
    test_program_flow,
)
from tests.gfx1151.emulator.assembly import text_of
from tests.gfx1151.emulator.code_object import CodeObject
from tests.gfx1151.emulator.decode import Instruction, decode

# Padding behind the kernels, which is not executed.
_PADDING = "S_CODE_END"


def instructions_of(code: bytes) -> list[Instruction]:
    """The instructions of some code, one after the other."""
    found, at = [], 0
    while at < len(code):
        found.append(decode(code, at))
        at += found[-1].size
    return found


def _names(instructions: list[Instruction]) -> set[str]:
    return {
        f"{each.encoding[:3]} {each.name}"
        for inst in instructions
        for each in (inst, inst.pair)
        if each is not None
    }


@pytest.fixture(scope="module")
def decoded(code: CodeObject) -> list[Instruction]:
    """The different instructions of the code object."""
    return list(dict.fromkeys(instructions_of(code.code)))


def test_every_instruction_assembles_to_its_own_bytes(
    decoded: list[Instruction], tmp_path: Path
) -> None:
    texts = [text_of(inst) for inst in decoded]
    for inst, text, made in zip(decoded, texts, programs.assemble(texts, tmp_path), strict=True):
        assert made == inst.raw.to_bytes(inst.size, "little"), f"{text} ({inst})"


def test_instruction_tests_assemble_to_their_own_bytes(tmp_path: Path) -> None:
    # The same of every program that the emulator is proved with.
    found = dict.fromkeys(_tested(tmp_path))
    texts = [text_of(inst) for inst in found]
    for inst, text, made in zip(found, texts, programs.assemble(texts, tmp_path), strict=True):
        assert made == inst.raw.to_bytes(inst.size, "little"), f"{text} ({inst})"


def test_every_instruction_of_the_code_object_has_a_test(
    decoded: list[Instruction], tmp_path: Path
) -> None:
    tested = _names(_tested(tmp_path)) | {f"SOP {_PADDING}"}
    untested = _names(decoded) - tested
    assert not untested, f"no instruction test for {', '.join(sorted(untested))}"


def test_kernels_begin_and_end_where_instructions_do(code: CodeObject) -> None:
    at, places, ends = 0, set(), set()
    for inst in instructions_of(code.code):
        places.add(at)
        at += inst.size
        if inst.name == "S_ENDPGM":
            ends.add(at)
    entries = sorted(kernel.entry for kernel in code.kernels.values())
    assert set(entries) <= places
    for begin, end in zip(entries, [*entries[1:], len(code.code)], strict=True):
        assert any(begin < each <= end for each in ends), hex(begin)


def _tested(folder: Path) -> list[Instruction]:
    texts = [
        *(case.text for case in test_instructions.VECTOR),
        *(case.text for case in test_instructions.SCALAR),
        *test_instructions.APPROXIMATED,
        *test_instructions.DIVISION,
        *test_lanes.TEXTS,
        *test_memory_instructions.TEXTS,
        *test_program_flow.TEXTS,
        "s_endpgm",  # behind every program
    ]
    return [inst for code in programs.assemble(texts, folder) for inst in instructions_of(code)]
