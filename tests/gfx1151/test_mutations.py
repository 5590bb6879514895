"""The proof that a wrong code object is found out: one instruction of it is changed, as a mistake
in a compiler or in inline assembly would, and the checks that pass for the right one must fail.
"""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.gfx1151 import programs
from tests.gfx1151.emulator.assembly import text_of
from tests.gfx1151.emulator.code_object import CodeObject, Kernel
from tests.gfx1151.emulator.decode import VGPR, Dpp, Instruction, Operand, decode
from tests.gfx1151.emulator.execute import class_of
from tests.gfx1151.emulator.floats import HostTranscendentals
from tests.gfx1151.emulator.launch import Stopped, run
from tests.gfx1151.launches import ONE_OF_EACH, Key, Packed
from tests.gfx1151.running import assert_same_as_host
from tests.kernel import op

Change = Callable[[Instruction], Instruction | None]


def _other_register(operand: Operand) -> Operand | None:
    """The neighbour of a 32-bit vector register."""
    if operand.code < VGPR or operand.words > 1:
        return None
    return dataclasses.replace(operand, code=VGPR + ((operand.code - VGPR) ^ 1))


def _offset(by: int) -> Change:
    return lambda inst: dataclasses.replace(inst, offset=inst.offset + by)


def _lane_control(inst: Instruction) -> Instruction | None:
    if inst.dpp is None:
        return None
    # Another partner: the sum of squares misses some lanes and has others twice.
    control = {0x161: 0x162, 0x162: 0x161, 0x164: 0x168, 0x168: 0x164}.get(inst.dpp.control, 0x161)
    return dataclasses.replace(inst, dpp=dataclasses.replace(inst.dpp, control=control))


def _rows(inst: Instruction) -> Instruction | None:
    if inst.dpp is None:
        return None
    dpp = Dpp(inst.dpp.control, 0x1, inst.dpp.bank_mask, inst.dpp.bound_control, False)
    return dataclasses.replace(inst, dpp=dpp)


def _constant(inst: Instruction) -> Instruction | None:
    """An inline integer constant, one more."""
    for i, source in enumerate(inst.srcs):
        if 129 <= source.code < 160:
            more = dataclasses.replace(source, code=source.code + 1)
            return dataclasses.replace(inst, srcs=(*inst.srcs[:i], more, *inst.srcs[i + 1 :]))
    return None


def _source(inst: Instruction) -> Instruction | None:
    other = _other_register(inst.srcs[0]) if inst.srcs else None
    return None if other is None else dataclasses.replace(inst, srcs=(other, *inst.srcs[1:]))


def _own_row(inst: Instruction) -> Instruction:
    return dataclasses.replace(inst, name="V_PERMLANE16_B32")


def _waits_for_scalars(inst: Instruction) -> bool:
    return inst.name == "S_WAITCNT" and not inst.simm16 >> 4 & 0x3F


def _no_wait(inst: Instruction) -> Instruction:
    return dataclasses.replace(inst, simm16=0xFFF7)


# Both have the norm; the second spreads a head over both rows of lanes.
MUTATED = [
    key
    for key in ONE_OF_EACH
    if (key.family.name, key.dtype) in (("qwen3", torch.bfloat16), ("gemma4-full", torch.float16))
]

# What is changed: the class or name of the instruction, and how.
MUTATIONS: dict[str, tuple[Callable[[Instruction], bool], Change]] = {
    "an argument's offset": (lambda inst: class_of(inst) == "smem", _offset(4)),
    "a load's offset by one": (lambda inst: class_of(inst) == "vmem load", _offset(1)),
    "a load's offset by an element": (lambda inst: class_of(inst) == "vmem load", _offset(2)),
    "a store's offset by one": (lambda inst: class_of(inst) == "vmem store", _offset(1)),
    "a DPP control": (lambda inst: inst.dpp is not None, _lane_control),
    "a DPP row mask": (lambda inst: inst.dpp is not None, _rows),
    "the row that a permlane reads": (lambda inst: inst.name == "V_PERMLANEX16_B32", _own_row),
    "a wait for scalar loads": (lambda inst: _waits_for_scalars(inst), _no_wait),
    "a multiplier's register": (
        lambda inst: inst.name in ("V_MUL_F32", "V_FMA_F32") and inst.pair is None,
        _source,
    ),
    "a shift": (lambda inst: inst.name in ("V_LSHLREV_B32", "S_LSHL_B64"), _constant),
}


_MOST_SITES = 3


def _mutants(
    key: Key, name: str, code: CodeObject, packed: Packed, folder: Path
) -> list[tuple[str, Kernel]]:
    """The kernel of a case with one executed instruction changed: at the first places, the last,
    and some between, each with a text that says what was changed."""
    kernel = code.kernel(packed.launch.kernel)
    measured = run(kernel, packed.launch, packed.tensors(key.build().arguments))
    applies, change = MUTATIONS[name]
    changed = []
    for place in sorted(measured.places):
        inst = decode(kernel.code, place)
        new = change(inst) if applies(inst) else None
        if new is not None and new != inst:
            changed.append((place, inst, text_of(new)))
    step = max(1, -(-len(changed) // _MOST_SITES))
    changed = changed[::step]
    mutants = []
    made = programs.assemble([text for _, _, text in changed], folder)
    for (place, inst, text), new_bytes in zip(changed, made, strict=True):
        assert len(new_bytes) == inst.size, text
        bytes_ = kernel.code[:place] + new_bytes + kernel.code[place + inst.size :]
        what = f"{text_of(inst)} changed to {text}"
        mutants.append((what, dataclasses.replace(kernel, code=bytes_)))
    return mutants


def _fault(kernel: Kernel, key: Key, packed: Packed) -> str:
    """Runs a case on some code: "" where it does what the host build does, else the first fault."""
    case, on_host = key.build().arguments, _on_host(key)
    try:
        run(kernel, packed.launch, packed.tensors(case), HostTranscendentals())
        assert_same_as_host(case, on_host, packed)
    except (Stopped, AssertionError) as error:
        return str(error)
    return ""


@functools.cache
def _on_host(key: Key) -> op.Arguments:
    arguments = key.build().arguments
    op.load()(*arguments.as_tuple())
    return arguments


@pytest.mark.parametrize("name", MUTATIONS)
@pytest.mark.parametrize("key", MUTATED, ids=str)
def test_a_changed_instruction_is_found_out(
    key: Key, name: str, code: CodeObject, packed: dict[Key, Packed], tmp_path: Path
) -> None:
    mutants = _mutants(key, name, code, packed[key], tmp_path)
    if not mutants:
        pytest.skip(f"{packed[key].launch.kernel} has no such instruction")
    for what, kernel in mutants:
        fault = _fault(kernel, key, packed[key])
        assert fault, f"{what} goes unnoticed"


def test_every_mutation_has_a_place(
    code: CodeObject, packed: dict[Key, Packed], tmp_path: Path
) -> None:
    for name in MUTATIONS:
        assert any(_mutants(key, name, code, packed[key], tmp_path) for key in MUTATED), name


def test_a_vector_load_that_is_not_waited_for_is_found_out(
    code: CodeObject, packed: dict[Key, Packed]
) -> None:
    # All waits for vector loads at once: where paths meet, compilers wait twice for one load.
    key = MUTATED[0]
    kernel = code.kernel(packed[key].launch.kernel)
    changed, at = bytearray(kernel.code), 0
    while at < len(changed):
        inst = decode(kernel.code, at)
        if inst.name == "S_WAITCNT":
            changed[at : at + 2] = (inst.simm16 | 0x3F << 10).to_bytes(2, "little")
        at += inst.size
    fault = _fault(dataclasses.replace(kernel, code=bytes(changed)), key, packed[key])
    assert "while a load into it is under way" in fault
