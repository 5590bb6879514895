"""Slots and positions that no tensor has: the machine code touches nothing outside of its tensors
(the emulator checks every address) and does what the contract says, as the host build does."""

import pytest
import torch

from tests.gfx1151.emulator.code_object import CodeObject
from tests.gfx1151.emulator.floats import HostTranscendentals
from tests.gfx1151.launches import ONE_OF_EACH, Key, Packed
from tests.gfx1151.running import assert_same_as_host, execute, execute_and_check
from tests.kernel import op
from tests.kernel.cases import Case
from tests.kernel.compare import Tally

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1

SLOTS = {
    "past the cache": lambda slots: (slots, slots + 1, HIGHEST),
    "a multiple of 2**32 away": lambda slots: (1 << 32, (1 << 32) + 1, (3 << 40) + 5),
    "negative": lambda slots: (-1, -slots, LOWEST),
    "the ends of what 31 and 32 bits hold": lambda slots: ((1 << 31) - 1, 1 << 31, (1 << 32) - 1),
    "the cache's ends": lambda slots: (slots - 1, 0, slots - 2),
}
POSITIONS = {
    "past the table": lambda rows: (rows, rows + 1, HIGHEST),
    "negative": lambda rows: (-1, -rows, LOWEST),
    "a multiple of 2**32 away": lambda rows: (1 << 32, (1 << 32) + 7, -(1 << 32) + 3),
}


def _check(case: Case, other: Case, code: CodeObject, packed: Packed) -> None:
    """Executes one case and runs the other, which is the same, on the host."""
    execute_and_check(code, packed, case, HostTranscendentals(), Tally())
    op.load()(*other.arguments.as_tuple())
    assert_same_as_host(case.arguments, other.arguments, packed)


@pytest.mark.parametrize("name", SLOTS)
@pytest.mark.parametrize("key", ONE_OF_EACH, ids=str)
def test_slots(name: str, key: Key, code: CodeObject, packed: dict[Key, Packed]) -> None:
    """vLLM 43810: a negative slot among them."""
    case, other = key.build(), key.build()
    for each in (case, other):
        cache, slots = each.arguments.kv_cache, each.arguments.slot_mapping
        assert cache is not None and slots is not None
        slots.copy_(torch.tensor(SLOTS[name](cache.shape[0] * cache.shape[2])))
    _check(case, other, code, packed[key])


@pytest.mark.parametrize("name", POSITIONS)
@pytest.mark.parametrize("key", ONE_OF_EACH, ids=str)
def test_positions(name: str, key: Key, code: CodeObject, packed: dict[Key, Packed]) -> None:
    case, other = key.build(), key.build()
    for each in (case, other):
        table = each.arguments.cos_sin_cache
        assert table is not None
        each.arguments.positions.copy_(torch.tensor(POSITIONS[name](table.shape[0])))
    _check(case, other, code, packed[key])


def test_positions_and_slots_alone_decide_addresses(
    code: CodeObject, packed: dict[Key, Packed]
) -> None:
    # Activations of any bits, NaN and infinity among them, change no address.
    key = ONE_OF_EACH[2]
    case = key.build()
    arguments = case.arguments
    assert arguments.k is not None and arguments.v is not None
    random = torch.Generator().manual_seed(5)
    for tensor in (arguments.q, arguments.k, arguments.v):
        bits = torch.randint(-(1 << 15), 1 << 15, tensor.shape, generator=random)
        tensor.view(torch.int16).copy_(bits)
    case.memory.snapshot()
    execute(code, packed[key], arguments, HostTranscendentals())
    case.memory.assert_untouched_but(case.written())
