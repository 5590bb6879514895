"""How many memory round trips a wave waits for, one after another, before its first store.

A clock that counts round trips: a load that is issued at n arrives at n + 1, and a wait for it sets
the clock to at least that. All else takes no time. So loads that are under way together cost one,
and a load behind a wait costs one more.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping

from scripts.budget.assembly import Instruction, Kernel
from scripts.budget.facts import Facts
from scripts.errors import Fault

_LONGEST = 99  # of the clock: a loop around a wait would not end
_MOST_STATES = 1_000_000
_OUTSTANDING = 63  # loads that the hardware counts


@dataclasses.dataclass(frozen=True)
class State:
    """The clock, and when each outstanding load arrives, the oldest first: vector loads, which
    arrive in order, and scalar loads, which do not."""

    clock: int = 0
    vector: tuple[int, ...] = ()
    scalar: tuple[int, ...] = ()

    def after(self, instruction: Instruction) -> "State":
        """The state behind an instruction."""
        if instruction.kind == "load":
            arrival = min(self.clock + 1, _LONGEST)
            if instruction.name.startswith("s_"):
                return dataclasses.replace(self, scalar=(*self.scalar, arrival)[-_OUTSTANDING:])
            vector = (*self.vector, arrival)[-_OUTSTANDING:]
            if instruction.name.startswith("flat_"):
                return State(self.clock, vector, (*self.scalar, arrival)[-_OUTSTANDING:])
            return dataclasses.replace(self, vector=vector)
        if instruction.name == "s_waitcnt":
            return self._waited(instruction.operands)
        return self

    def _waited(self, operands: str) -> "State":
        clock, vector, scalar = self.clock, self.vector, self.scalar
        if found := re.search(r"\bvmcnt\((\d+)\)", operands):
            arrived = vector[: max(0, len(vector) - int(found[1]))]
            vector = vector[len(arrived) :]
            clock = max((clock, *arrived))
        if found := re.search(r"\blgkmcnt\((\d+)\)", operands):
            # Out of order: some of more than are left must have arrived, and it may be the latest.
            if len(scalar) > int(found[1]):
                clock = max((clock, *scalar))
            if found[1] == "0":
                scalar = ()
        return State(clock, vector, scalar)


def round_trips(kernel: Kernel) -> int:
    """The most round trips that any path waits for before its first store.

    Every path that the branches allow is followed on its own, loops until nothing changes.
    """
    numbers = {block.label: number for number, block in enumerate(kernel.blocks)}
    left = [(0, State(), Facts())]
    seen = set(left)
    most = 0
    while left:
        for stored, there in _exits(kernel, *left.pop(), numbers):
            number, state, _ = there
            if stored:
                most = max(most, state.clock)
            elif number < len(kernel.blocks) and there not in seen:
                if len(seen) > _MOST_STATES:
                    raise Fault(f"{kernel.name} has too many paths to follow")
                seen.add(there)
                left.append(there)
    return most


def _exits(
    kernel: Kernel, number: int, state: State, facts: Facts, numbers: Mapping[str, int]
) -> Iterator[tuple[bool, tuple[int, State, Facts]]]:
    """Where a block leads: whether to a store in it, and the next block with what holds there."""
    for instruction in kernel.blocks[number].instructions:
        state = state.after(instruction)
        if instruction.kind == "store":
            yield True, (number, state, facts)
            return
        if instruction.kind == "branch":
            if (there := facts.taken(instruction)) is not None:
                yield False, (numbers[instruction.operands], state, there)
            if (here := facts.passed(instruction)) is None:
                return
            facts = here
        else:
            facts = facts.after(instruction)
        if instruction.name == "s_endpgm":
            return
    yield False, (number + 1, state, facts)
