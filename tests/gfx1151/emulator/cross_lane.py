"""Moves between lanes: DPP, permlane, and reads and writes of single lanes."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.gfx1151.emulator.decode import VGPR, Dpp, Instruction, Operand
from tests.gfx1151.emulator.errors import Unknown
from tests.gfx1151.emulator.wave import Waves

Array = np.ndarray[Any, Any]
Step = Callable[[Waves], None]
Read = Callable[[Waves], Array]
MakeReader = Callable[[Operand], Read]

_LANES = np.arange(32)
_ROW, _IN_ROW = _LANES // 16 * 16, _LANES % 16
_SELECTOR = (4 * _IN_ROW).astype(np.uint64)


def dpp_lanes(control: int) -> tuple[Array, Array]:
    """The lane that each lane reads, and whether there is one (rows are of 16 lanes)."""
    exists = np.ones(32, bool)
    amount = control & 0xF
    if control <= 0xFF:  # quad_perm
        source = _LANES // 4 * 4 + (control >> 2 * (_LANES % 4) & 3)
    elif 0x101 <= control <= 0x10F:  # row_shl
        source, exists = _ROW + (_IN_ROW + amount) % 16, _IN_ROW + amount < 16
    elif 0x111 <= control <= 0x11F:  # row_shr
        source, exists = _ROW + (_IN_ROW - amount) % 16, amount <= _IN_ROW
    elif 0x121 <= control <= 0x12F:  # row_ror
        source = _ROW + (_IN_ROW - amount) % 16
    elif control == 0x140:  # row_mirror
        source = _ROW + 15 - _IN_ROW
    elif control == 0x141:  # row_half_mirror
        source = _LANES // 8 * 8 + 7 - _LANES % 8
    elif 0x150 <= control <= 0x15F:  # row_share
        source = _ROW + amount
    elif 0x160 <= control <= 0x16F:  # row_xmask
        source = _LANES ^ amount
    else:
        raise Unknown(f"the DPP control {control:#x}")
    return source, exists


def dpp_source(dpp: Dpp) -> Callable[[Waves, Array], tuple[Array, Array]]:
    """Moves a source between lanes; also gives the lanes that must not be written.

    A lane reads a valid source if there is one and it is active (or inactive ones are fetched).
    Without one it takes 0 with bound_control, else it is not written.
    """
    source, exists = dpp_lanes(dpp.control)
    row = np.array([dpp.row_mask >> lane // 16 & 1 for lane in range(32)], bool)
    bank = np.array([dpp.bank_mask >> lane % 16 // 4 & 1 for lane in range(32)], bool)
    chosen = row & bank

    def move(waves: Waves, value: Array) -> tuple[Array, Array]:
        valid = exists if dpp.fetch_inactive else exists & waves.active[:, source]
        moved = np.where(valid, value[:, source], value.dtype.type(0))
        return moved, ~chosen if dpp.bound_control else ~(chosen & valid)

    return move


def _permlane(inst: Instruction, make: MakeReader, other_row: bool) -> Step:
    """V_PERMLANE16 and V_PERMLANEX16: 16 selectors of 4 bits, in this row or in the other.

    op_sel[0] fetches inactive lanes too, op_sel[1] is the bound control, as in DPP.
    """
    low, high = make(inst.srcs[1]), make(inst.srcs[2])
    fetch_inactive, bound_control = bool(inst.op_sel & 1), bool(inst.op_sel & 2)
    source_register = inst.srcs[0].code - VGPR
    assert inst.dst is not None
    target = inst.dst.code

    def step(waves: Waves) -> None:
        selectors = low(waves).astype(np.uint64) | high(waves).astype(np.uint64) << np.uint64(32)
        chosen = (selectors >> _SELECTOR & np.uint64(15)).astype(np.int64)
        row = (_ROW ^ 16) if other_row else _ROW
        source = np.broadcast_to(row + chosen, waves.active.shape)
        moved = np.take_along_axis(waves.vgpr[source_register], source, 1)
        if not fetch_inactive:
            valid = np.take_along_axis(waves.active, source, 1)
            left = np.uint32(0) if bound_control else waves.vgpr[target - VGPR]
            moved = np.where(valid, moved, left)
        waves.write_vector(target, moved)

    return step


def _read_first_lane(inst: Instruction, make: MakeReader) -> Step:
    source = make(inst.srcs[0])
    assert inst.dst is not None
    target = inst.dst.code

    def step(waves: Waves) -> None:
        lane = waves.active.argmax(axis=1)[:, None]  # 0 where none is active
        value = np.broadcast_to(source(waves), waves.active.shape)
        waves.write_scalar(target, [np.take_along_axis(value, lane, 1)])

    return step


def _lane(waves: Waves, lane: Read) -> Array:
    return np.broadcast_to(lane(waves) % np.uint32(32), (len(waves), 1)).astype(np.int64)


def _read_lane(inst: Instruction, make: MakeReader) -> Step:
    source, lane = make(inst.srcs[0]), make(inst.srcs[1])
    assert inst.dst is not None
    target = inst.dst.code

    def step(waves: Waves) -> None:  # whatever lanes are active
        value = np.take_along_axis(source(waves), _lane(waves, lane), 1)
        waves.write_scalar(target, [value])

    return step


def _write_lane(inst: Instruction, make: MakeReader) -> Step:
    source, lane = make(inst.srcs[0]), make(inst.srcs[1])
    assert inst.dst is not None
    target = inst.dst.code - VGPR

    def step(waves: Waves) -> None:  # whatever lanes are active
        value = np.broadcast_to(source(waves), (len(waves), 1))
        np.put_along_axis(waves.vgpr[target], _lane(waves, lane), value, 1)

    return step


CROSS_LANE: dict[str, Callable[[Instruction, MakeReader], Step]] = {
    "V_PERMLANE16_B32": lambda inst, make: _permlane(inst, make, other_row=False),
    "V_PERMLANEX16_B32": lambda inst, make: _permlane(inst, make, other_row=True),
    "V_READFIRSTLANE_B32": _read_first_lane,
    "V_READLANE_B32": _read_lane,
    "V_WRITELANE_B32": _write_lane,
}
