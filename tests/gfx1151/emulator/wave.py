"""The state of waves that run in step: their registers, their masks, and the loads under way."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from tests.gfx1151.emulator.decode import EXEC, M0, NULL, VGPR
from tests.gfx1151.emulator.errors import Violation
from tests.gfx1151.emulator.floats import Transcendentals
from tests.gfx1151.emulator.measure import Measured
from tests.gfx1151.emulator.memory import Memory

Array = np.ndarray[Any, Any]

LANES = 32
ALL = 0xFFFFFFFF
# What registers hold before anything is written, and while a load is under way: bits that are a
# NaN in fp32 and in both halves in fp16 and bf16, and an address that nothing is at.
POISON = 0x7FD17FD1

_BIT = np.arange(LANES, dtype=np.uint32)


@dataclasses.dataclass(frozen=True)
class _Load:
    """A load under way. mask: the bits of its registers that it writes. level: how many loads in a
    row it is the last of."""

    counter: str
    registers: tuple[int, ...]
    values: Array  # [registers, waves, lanes] or [registers, waves, 1]
    mask: np.uint32
    lanes: Array | None  # [waves, lanes]
    level: int


class Waves:
    """Some waves that have executed the same instructions so far; mostly there are many, and numpy
    executes an instruction for all of them at once. Where they part, there are two of this.

    vgpr: [register, wave, lane]; sgpr: [register, wave, 1]; scc: [wave, 1]; active: [wave, lane].
    names: of the waves, for messages.

    A load's registers get their values when a wait covers it, at the last moment that the hardware
    may take; to touch one before that is an error.
    """

    def __init__(
        self, memory: Memory, vgprs: int, names: list[str], trans: Transcendentals
    ) -> None:
        count = len(names)
        self.memory = memory
        self.names = names
        self.trans = trans
        self.vgpr = np.full((vgprs, count, LANES), POISON, np.uint32)
        self.sgpr = np.full((128, count, 1), POISON, np.uint32)
        self.scc = np.zeros((count, 1), bool)
        self.measured = Measured()
        self.pc = 0
        self.ended = False
        self.pending: frozenset[int] = frozenset()
        self._loads: list[_Load] = []
        self.level = 0
        self.level_at_store: int | None = None
        self.set_exec(np.uint32(ALL))

    def __len__(self) -> int:
        return len(self.names)

    def split(self, chosen: Array) -> "Waves":
        """Takes the chosen waves (bool [wave]) out; returns them."""
        apart = object.__new__(Waves)
        apart.__dict__.update(self.__dict__)
        apart.measured = Measured()
        for waves, taken in ((apart, chosen), (self, ~chosen)):
            waves.names = [n for n, t in zip(waves.names, taken.tolist(), strict=True) if t]
            waves.vgpr, waves.sgpr = waves.vgpr[:, taken], waves.sgpr[:, taken]
            waves.scc = waves.scc[taken]
            waves._loads = [
                dataclasses.replace(
                    load,
                    values=load.values[:, taken],
                    lanes=None if load.lanes is None else load.lanes[taken],
                )
                for load in waves._loads
            ]
            waves.set_exec(waves.sgpr[EXEC])
        return apart

    # Masks

    def set_exec(self, mask: Array | np.uint32) -> None:
        """Makes exactly these lanes active: a mask for each wave [wave, 1], or one for all."""
        self.sgpr[EXEC] = mask
        self.active = lanes_of(self.sgpr[EXEC])
        self.all_active = bool(self.active.all())

    # Registers, by the numbers of operands

    def write_scalar(self, code: int, words: Iterable[Array | int]) -> None:
        """Writes words ([wave, 1], or one for all) to scalar registers from `code` on."""
        for i, word in enumerate(words):
            register = code + i
            if register == NULL:
                continue
            if register == EXEC:
                self.set_exec(np.asarray(word, np.uint32))
            elif register > EXEC or NULL < register < M0:
                raise Violation(f"writes the scalar register {register}")
            else:
                self.sgpr[register] = word

    def write_vector(self, register: int, value: Array) -> None:
        """Writes a register's active lanes."""
        row = self.vgpr[register - VGPR]
        if self.all_active:
            row[:] = value
        else:
            np.copyto(row, value, where=self.active)

    # Loads

    def issue_load(
        self, counter: str, registers: tuple[int, ...], values: Array, mask: int = ALL
    ) -> None:
        """A load into registers is under way; it writes the bits of the mask alone."""
        lanes = self.active if counter == "vm" else None
        load = _Load(counter, registers, values, np.uint32(mask), lanes, self.level + 1)
        self._loads.append(load)
        self.pending |= frozenset(registers)
        poison = np.uint32(POISON)
        self._arrive(dataclasses.replace(load, values=np.broadcast_to(poison, values.shape)))

    def _arrive(self, load: _Load) -> None:
        for register, value in zip(load.registers, load.values, strict=True):
            if register < VGPR:
                self.write_scalar(register, [value])
                continue
            row = self.vgpr[register - VGPR]
            if load.mask != ALL:
                value = value & load.mask | row & ~load.mask
            np.copyto(row, value, where=load.lanes)

    def wait(self, counter: str, left: int) -> None:
        """Waits until at most `left` loads of the counter are under way.

        Vector loads return in the order of their issue. Scalar loads return in any order, so that
        only a wait for all of them says anything.
        """
        waiting = [load for load in self._loads if load.counter == counter]
        if counter == "lgkm" and left > 0:
            return
        for load in waiting[: max(0, len(waiting) - left)]:
            self._loads.remove(load)
            self.level = max(self.level, load.level)
            self._arrive(load)
        self.pending = frozenset(r for load in self._loads for r in load.registers)

    def stores(self) -> None:
        """A store is issued."""
        if self.level_at_store is None:
            self.level_at_store = self.level

    def end(self) -> None:
        """The waves' last instruction."""
        self.ended = True
        self.measured.waves = len(self)
        self.measured.round_trips = self.level
        self.measured.round_trips_to_store = self.level_at_store or 0


def lanes_of(masks: Array) -> Array:
    """Masks [wave, 1] as bool [wave, lane]."""
    return (masks >> _BIT & np.uint32(1)).astype(bool)


def masks_of(lanes: Array, count: int) -> Array:
    """Bool [wave, lane], or an element for all lanes or for all waves, as masks [wave, 1]."""
    whole = np.broadcast_to(lanes, (count, LANES))
    return np.packbits(whole, axis=1, bitorder="little").view("<u4")
