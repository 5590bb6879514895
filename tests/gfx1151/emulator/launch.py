"""Runs a kernel's grid."""

import dataclasses
import functools
from collections.abc import Collection

import numpy as np

from tests.gfx1151.emulator.assembly import text_of
from tests.gfx1151.emulator.code_object import Kernel
from tests.gfx1151.emulator.decode import VGPR, Instruction, decode
from tests.gfx1151.emulator.errors import Unknown, Violation
from tests.gfx1151.emulator.execute import Step, step_of
from tests.gfx1151.emulator.floats import Transcendentals
from tests.gfx1151.emulator.measure import Measured
from tests.gfx1151.emulator.memory import Given, Memory
from tests.gfx1151.emulator.wave import LANES, Waves

# Where the arguments are: 64-byte aligned as the runtime has them, away from any tensor.
KERNARG_ADDRESS = 0x6000_0000_0000
# A wave of a kernel without long loops ends long before.
_MOST_INSTRUCTIONS = 100_000


@dataclasses.dataclass(frozen=True)
class Launch:
    """One launch. grid: workgroups in x, y, z; threads: of a workgroup, in x alone."""

    kernel: str
    grid: tuple[int, int, int]
    threads: int
    params: bytes


class Stopped(Exception):
    """An execution that stopped at an instruction; says at which, in which wave, and why."""


@dataclasses.dataclass(frozen=True)
class Start:
    """What tells one wave from another at its start."""

    workgroup: tuple[int, int, int]
    first_thread: int

    def __str__(self) -> str:
        return f"workgroup {self.workgroup}, threads from {self.first_thread} on"


def run(
    kernel: Kernel,
    launch: Launch,
    tensors: list[Given],
    trans: Transcendentals | None = None,
    at_once: int = 1024,
    only_x: Collection[int] | None = None,
) -> Measured:
    """Executes the waves of a launch on the tensors.

    at_once: how many waves may run in step; 1 runs them one after the other. only_x: the
    workgroups, by x, that are executed (default: all).

    Raises Stopped for an unknown instruction, an access outside the tensors, a register that is
    used before its load has arrived.
    """
    if len(launch.params) != kernel.kernarg_bytes:
        raise ValueError(
            f"{kernel.name} takes {kernel.kernarg_bytes} bytes of arguments, got "
            f"{len(launch.params)}"
        )
    memory = Memory()
    memory.add_bytes("the arguments", KERNARG_ADDRESS, launch.params)
    memory.add_tensors(tensors)
    x, y, z = launch.grid
    starts = [
        Start((gx, gy, gz), first)
        for gz, gy, gx in np.ndindex(z, y, x)
        if only_x is None or gx in only_x
        for first in range(0, launch.threads, LANES)
    ]
    total = Measured()
    for begin in range(0, len(starts), at_once):
        chosen = starts[begin : begin + at_once]
        left = [start(kernel, memory, trans or Transcendentals(), chosen, launch.threads)]
        while left:
            waves = left.pop()
            left += run_until_parted(kernel, waves)
            total.add(waves.measured)
    return total


def start(
    kernel: Kernel, memory: Memory, trans: Transcendentals, starts: list[Start], threads: int
) -> Waves:
    """Waves as the hardware starts them, by the kernel's descriptor."""
    waves = Waves(memory, kernel.vgprs, [str(start) for start in starts], trans)
    waves.pc = kernel.entry
    waves.write_scalar(kernel.kernarg_sgpr, [KERNARG_ADDRESS & 0xFFFFFFFF, KERNARG_ADDRESS >> 32])
    ids = np.array([start.workgroup for start in starts], np.uint32)
    given = [ids[:, axis : axis + 1] for axis in range(3) if kernel.workgroup_ids[axis]]
    waves.write_scalar(kernel.user_sgprs, given)
    first = np.array([[start.first_thread] for start in starts], np.uint32)
    thread = first + np.arange(LANES, dtype=np.uint32)
    # y and z of the thread are packed above x: 0.
    waves.write_vector(VGPR, thread)
    waves.set_exec(np.packbits(thread < threads, axis=1, bitorder="little").view("<u4"))
    return waves


@np.errstate(all="ignore")  # overflow and the like are results, not faults
def run_until_parted(kernel: Kernel, waves: Waves) -> list[Waves]:
    """Runs waves to their end; returns those that parted from them on the way."""
    steps = _steps(kernel.code)
    parted = []
    for _ in range(_MOST_INSTRUCTIONS):
        pc = waves.pc
        step = steps.get(pc)
        try:
            if step is None:
                step = steps[pc] = step_of(instruction_at(kernel, pc))
            apart = step(waves)
        except (Unknown, Violation) as error:
            raise _stopped(kernel, waves, pc, error) from error
        if apart is not None:
            parted.append(apart)
        if waves.ended:
            return parted
    raise Stopped(
        f"{kernel.name}: {_MOST_INSTRUCTIONS} instructions without an end ({waves.names[0]})"
    )


def instruction_at(kernel: Kernel, pc: int) -> Instruction:
    """The instruction at a place of the code. Raises Unknown outside of it."""
    if not 0 <= pc < len(kernel.code):
        raise Unknown(f"the code has no instruction at {pc:#x}")
    return decode(kernel.code, pc)


@functools.cache
def _steps(code: bytes) -> dict[int, Step]:
    """What has been decoded of a code object, by place."""
    return {}


def _stopped(kernel: Kernel, waves: Waves, pc: int, error: Exception) -> Stopped:
    where = waves.names[0] + (f" and {len(waves) - 1} more" if len(waves) > 1 else "")
    try:
        inst = instruction_at(kernel, pc)
    except Unknown:
        return Stopped(f"{kernel.name}+{pc - kernel.entry:#x}: {error} ({where})")
    access = getattr(error, "access", None)
    if access is not None and inst.encoding == "SMEM":
        where = waves.names[access]
    elif access is not None:
        wave, lane = np.argwhere(waves.active)[access].tolist()
        where = f"{waves.names[wave]}, lane {lane}"
    try:
        text = text_of(inst)
    except Unknown:
        text = inst.name
    return Stopped(f"{kernel.name}+{pc - kernel.entry:#x} {text}: {error} ({where})")
