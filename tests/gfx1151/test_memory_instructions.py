"""Loads, stores and waits: which bytes move, what is refused, and what is counted."""

import numpy as np
import pytest
import torch

from tests.gfx1151 import programs
from tests.gfx1151.emulator.launch import Stopped
from tests.gfx1151.emulator.memory import Given, Memory
from tests.gfx1151.emulator.wave import POISON

BASE = 0x5500_1234_5000
BYTES = 1024
WAIT = "s_waitcnt vmcnt(0) lgkmcnt(0)\n"
# Lanes in both rows of 16; lane 0 and lane 31 are not active.
SOME = 0x4001_8102
OLD = 0x89ABCDEF

LOADS = {
    "global_load_b32 v10, v0, s[4:5] offset:-4": (4, -4),
    "global_load_b64 v[10:11], v0, s[4:5] offset:8": (8, 8),
    "global_load_b96 v[10:12], v0, s[4:5]": (12, 0),
    "global_load_b128 v[10:13], v0, s[4:5] offset:16": (16, 16),
}
NARROW = {
    "global_load_u8 v10, v0, s[4:5]": lambda data, old: data[0],
    "global_load_i8 v10, v0, s[4:5]": lambda data, old: _signed(data[0], 8),
    "global_load_u16 v10, v0, s[4:5]": lambda data, old: data[0] | data[1] << 8,
    "global_load_i16 v10, v0, s[4:5]": lambda data, old: _signed(data[0] | data[1] << 8, 16),
    "global_load_d16_b16 v10, v0, s[4:5]": lambda data, old: old & 0xFFFF0000
    | data[0]
    | data[1] << 8,
    "global_load_d16_hi_b16 v10, v0, s[4:5]": lambda data, old: old & 0xFFFF
    | (data[0] | data[1] << 8) << 16,
}
FAR = "global_load_b32 v10, v[0:1], off offset:4"
STORES = {
    "global_store_b8 v0, v10, s[4:5]": (1, 0),
    "global_store_b16 v0, v10, s[4:5] offset:2": (2, 2),
    "global_store_d16_hi_b16 v0, v10, s[4:5]": (2, 0),
    "global_store_b32 v0, v10, s[4:5]": (4, 0),
    "global_store_b64 v0, v[10:11], s[4:5]": (8, 0),
    "global_store_b96 v0, v[10:12], s[4:5]": (12, 0),
    "global_store_b128 v0, v[10:13], s[4:5] offset:-16": (16, -16),
}
SCALAR = {
    "s_load_b32 s8, s[4:5], 0x10": (1, 0x10),
    "s_load_b64 s[8:9], s[4:5], null": (2, 0),
    "s_load_b64 s[8:9], s[4:5], s6 offset:0x8": (2, 8 + 12),
    "s_load_b128 s[8:11], s[4:5], -0x8": (4, -8),
    "s_load_b256 s[8:15], s[4:5], 0x0": (8, 0),
    "s_load_b512 s[8:23], s[4:5], 0x4": (16, 4),
}
PROGRAMS = {
    "halves": """global_load_d16_b16 v10, v0, s[4:5]
        global_load_d16_hi_b16 v10, v0, s[4:5] offset:2
        s_waitcnt vmcnt(0)""",
    "first of two": """global_load_b32 v10, v0, s[4:5]
        global_load_b32 v11, v0, s[4:5]
        s_waitcnt vmcnt(1)
        v_mov_b32 v12, v10""",
    "second of two": """global_load_b32 v10, v0, s[4:5]
        global_load_b32 v11, v0, s[4:5]
        s_waitcnt vmcnt(1)
        v_mov_b32 v12, v11""",
    "one scalar of two": """s_load_b32 s8, s[4:5], 0x0
        s_load_b32 s9, s[4:5], 0x4
        s_waitcnt lgkmcnt(1)
        s_mov_b32 s10, s8""",
    "no wait": "s_load_b32 s8, s[4:5], 0x0\ns_add_u32 s10, s8, s8",
    "the other counter": """global_load_b32 v10, v0, s[4:5]
        s_waitcnt lgkmcnt(0)
        v_mov_b32 v12, v10""",
    "overwritten on its way": "global_load_b32 v10, v0, s[4:5]\nv_mov_b32 v10, 0",
    "a mask by a scalar load": "s_load_b32 vcc_lo, s[4:5], 0x0\nv_cndmask_b32 v12, v0, v0, vcc_lo",
    "exec changed on its way": """global_load_b32 v10, v0, s[4:5]
        s_mov_b32 exec_lo, -1
        s_waitcnt_vmcnt null, 0x0""",
    "round trips": """s_load_b64 s[8:9], s[4:5], 0x0
        s_load_b64 s[10:11], s[4:5], 0x8
        s_waitcnt lgkmcnt(0)
        global_load_b32 v10, v0, s[4:5]
        global_load_b64 v[12:13], v0, s[4:5]
        s_waitcnt vmcnt(1)
        global_load_b32 v11, v0, s[4:5]
        s_waitcnt vmcnt(0)
        global_store_b32 v0, v11, s[6:7]
        s_load_b32 s8, s[4:5], 0x0
        s_waitcnt lgkmcnt(0)""",
    "waits for stores": "global_store_b32 v0, v10, s[6:7]\ns_waitcnt_vscnt null, 0x0",
}
TEXTS = [
    *(f"{text}\n{WAIT}" for text in (*LOADS, *NARROW, FAR, *SCALAR)),
    *STORES,
    *PROGRAMS.values(),
]


def _signed(x: int, bits: int) -> int:
    return (x ^ 1 << bits - 1) - (1 << bits - 1) & 0xFFFFFFFF


@pytest.fixture(scope="module")
def machine_code(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The machine code of every program here, by its text."""
    made = programs.assemble(TEXTS, tmp_path_factory.mktemp("memory"))
    return dict(zip(TEXTS, made, strict=True))


@pytest.fixture
def data() -> torch.Tensor:
    """Bytes for a program to read and write; every byte differs from those near it."""
    return (torch.arange(BYTES) * 167 % 251).to(torch.uint8)


def _memory(data: torch.Tensor, read: bool = True, written: bool = True) -> Memory:
    memory = Memory()
    memory.add_tensors([Given("data", data, BASE, read, written)])
    return memory


OFFSETS = np.array([64 + 24 * lane for lane in range(32)], np.uint32)


def _start(memory: Memory, exec_mask: int = SOME) -> programs.Waves:
    registers = {10 + i: np.full(32, OLD + i, np.uint32) for i in range(4)}
    waves = programs.start(vgprs={0: OFFSETS, **registers}, exec_mask=exec_mask, memory=memory)
    waves.write_scalar(4, [BASE & 0xFFFFFFFF, BASE >> 32])
    waves.write_scalar(6, [12])
    return waves


def _active(exec_mask: int) -> list[int]:
    return [lane for lane in range(32) if exec_mask >> lane & 1]


@pytest.mark.parametrize("text", LOADS)
def test_load(text: str, data: torch.Tensor, machine_code: dict[str, bytes]) -> None:
    size, offset = LOADS[text]
    waves = programs.run(machine_code[f"{text}\n{WAIT}"], _start(_memory(data)))
    for lane in range(32):
        for word in range(size // 4):
            at = int(OFFSETS[lane]) + offset + 4 * word
            wanted = int.from_bytes(bytes(data[at : at + 4].tolist()), "little")
            if lane not in _active(SOME):
                wanted = OLD + word
            assert int(waves.vgpr[10 + word, 0, lane]) == wanted, (lane, word)
    assert waves.measured.bytes == {"vector load": size * len(_active(SOME))}


@pytest.mark.parametrize("text", NARROW)
def test_narrow_load(text: str, data: torch.Tensor, machine_code: dict[str, bytes]) -> None:
    waves = programs.run(machine_code[f"{text}\n{WAIT}"], _start(_memory(data)))
    for lane in range(32):
        at = int(OFFSETS[lane])
        wanted = NARROW[text](data[at : at + 2].tolist(), OLD)
        assert int(waves.vgpr[10, 0, lane]) == (wanted if lane in _active(SOME) else OLD), lane


def test_load_from_64_bit_addresses(data: torch.Tensor, machine_code: dict[str, bytes]) -> None:
    waves = _start(_memory(data))
    waves.vgpr[0], waves.vgpr[1] = (BASE & 0xFFFFFFFF) + OFFSETS, BASE >> 32
    programs.run(machine_code[f"{FAR}\n{WAIT}"], waves)
    for lane in _active(SOME):
        at = int(OFFSETS[lane]) + 4
        wanted = int.from_bytes(bytes(data[at : at + 4].tolist()), "little")
        assert int(waves.vgpr[10, 0, lane]) == wanted


@pytest.mark.parametrize("text", STORES)
def test_store(text: str, data: torch.Tensor, machine_code: dict[str, bytes]) -> None:
    size, offset = STORES[text]
    expected = data.tolist()
    for lane in _active(SOME):
        value = b"".join((OLD + i).to_bytes(4, "little") for i in range(4))
        value = value[2:4] if "hi" in text else value[:size]
        at = int(OFFSETS[lane]) + offset
        expected[at : at + size] = list(value)
    programs.run(machine_code[text], _start(_memory(data)))
    assert data.tolist() == expected


@pytest.mark.parametrize("text", SCALAR)
@pytest.mark.parametrize("exec_mask", [SOME, 0])
def test_scalar_load(
    text: str, exec_mask: int, data: torch.Tensor, machine_code: dict[str, bytes]
) -> None:
    words, offset = SCALAR[text]
    waves = _start(_memory(data), exec_mask)
    waves.write_scalar(4, [(BASE & 0xFFFFFFFF) + 100])
    programs.run(machine_code[f"{text}\n{WAIT}"], waves)
    for word in range(words):
        at = 100 + offset + 4 * word
        wanted = int.from_bytes(bytes(data[at : at + 4].tolist()), "little")
        assert programs.scalar(waves, 8 + word) == wanted, word
    assert programs.scalar(waves, 8 + words) == POISON


@pytest.mark.parametrize("text", [*LOADS, *NARROW, *STORES])
def test_without_active_lanes_nothing_is_touched(
    text: str, data: torch.Tensor, machine_code: dict[str, bytes]
) -> None:
    before = data.clone()
    memory = _memory(data, read=False, written=False)
    code = machine_code.get(text) or machine_code[f"{text}\n{WAIT}"]
    waves = programs.run(code, _start(memory, exec_mask=0))
    assert (waves.vgpr[10] == OLD).all()
    assert torch.equal(data, before)
    assert not waves.measured.bytes


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("second of two", "touches v11 while a load into it is under way"),
        ("one scalar of two", "touches s8 while"),
        ("no wait", "touches s8 while"),
        ("the other counter", "touches v10 while"),
        ("overwritten on its way", "touches v10 while"),
        ("a mask by a scalar load", "touches s106 while"),
    ],
)
def test_a_register_that_a_load_is_on_its_way_to_is_not_touched(
    name: str, message: str, data: torch.Tensor, machine_code: dict[str, bytes]
) -> None:
    with pytest.raises(Stopped, match=message):
        programs.run(machine_code[PROGRAMS[name]], _start(_memory(data)))


def test_vector_loads_arrive_in_order(data: torch.Tensor, machine_code: dict[str, bytes]) -> None:
    waves = programs.run(machine_code[PROGRAMS["first of two"]], _start(_memory(data)))
    lane = _active(SOME)[0]
    at = int(OFFSETS[lane])
    wanted = int.from_bytes(bytes(data[at : at + 4].tolist()), "little")
    assert int(waves.vgpr[12, 0, lane]) == wanted
    assert int(waves.vgpr[11, 0, lane]) == POISON, "not arrived yet"


def test_halves_of_a_register_may_be_on_their_way_together(
    data: torch.Tensor, machine_code: dict[str, bytes]
) -> None:
    waves = programs.run(machine_code[PROGRAMS["halves"]], _start(_memory(data)))
    for lane in _active(SOME):
        at = int(OFFSETS[lane])
        wanted = int.from_bytes(bytes(data[at : at + 4].tolist()), "little")
        assert int(waves.vgpr[10, 0, lane]) == wanted


def test_a_load_writes_the_lanes_active_at_its_issue(
    data: torch.Tensor, machine_code: dict[str, bytes]
) -> None:
    waves = programs.run(machine_code[PROGRAMS["exec changed on its way"]], _start(_memory(data)))
    changed = [lane for lane in range(32) if int(waves.vgpr[10, 0, lane]) != OLD]
    assert changed == _active(SOME)


def test_round_trips_are_counted_by_what_waits_cover(
    data: torch.Tensor, machine_code: dict[str, bytes]
) -> None:
    # Two scalar loads at once; a vector load after them; one that waits for the first of two of
    # those; the store; and a load after it.
    waves = _start(_memory(data))
    waves.write_scalar(6, [BASE & 0xFFFFFFFF, BASE >> 32])
    programs.run(machine_code[PROGRAMS["round trips"]], waves)
    assert waves.measured.round_trips_to_store == 3
    assert waves.measured.round_trips == 4


def test_instructions_and_lines_are_counted(
    data: torch.Tensor, machine_code: dict[str, bytes]
) -> None:
    waves = _start(_memory(data), exec_mask=0xFFFFFFFF)
    waves.write_scalar(6, [BASE & 0xFFFFFFFF, BASE >> 32])
    # Lanes 24 bytes apart from byte 64 on: 32 * 24 bytes touch lines 0 to 6 of 128 bytes.
    programs.run(machine_code[PROGRAMS["waits for stores"]], waves)
    assert waves.measured.instructions == {"vmem store": 1, "wait": 1, "other": 1}
    assert waves.measured.transactions == {"vector store": 7}
    assert waves.measured.bytes == {"vector store": 128}


@pytest.mark.parametrize(("begin", "end"), [(64, BYTES), (0, 64 + 24 * 30), (0, 64 + 24 * 30 + 3)])
def test_an_access_outside_of_the_tensors_names_instruction_and_address(
    begin: int, end: int, data: torch.Tensor, machine_code: dict[str, bytes]
) -> None:
    # The lowest active lane is 1, the highest 30.
    text = "global_load_b32 v10, v0, s[4:5] offset:-4"
    offsets = OFFSETS.copy()
    offsets[1] = 64
    memory = Memory()
    memory.add_tensors([Given("the middle", data[begin:end], BASE + begin)])
    waves = _start(memory)
    waves.vgpr[0] = offsets
    lane = 1 if begin else 30
    if not begin:
        waves.vgpr[0, 0, 30] = end
    address = BASE + int(waves.vgpr[0, 0, lane]) - 4
    if begin == 0 and address + 4 <= BASE + end:
        waves.vgpr[0, 0, 30] = end + 1
        address += 1
    with pytest.raises(Stopped) as stopped:
        programs.run(machine_code[f"{text}\n{WAIT}"], waves)
    message = str(stopped.value)
    assert "global_load_b32 v10, v0, s[4:5] offset:-4" in message
    assert f"reads 4 bytes at {address:#x}" in message
    assert f"lane {lane}" in message and "the middle" in message


def test_only_a_tensors_own_elements_may_be_touched(
    data: torch.Tensor, machine_code: dict[str, bytes]
) -> None:
    # Every other 24 bytes, as heads with gates between them: lane 1 is in a gap.
    view = data[64:832].as_strided((16, 24), (48, 1), 64)
    for text, verb in (
        ("global_load_b64 v[10:11], v0, s[4:5] offset:8", "reads"),
        ("global_store_b64 v0, v[10:11], s[4:5]", "writes"),
    ):
        memory = Memory()
        memory.add_tensors([Given("heads", view, BASE + 64, True, True)])
        code = machine_code.get(text) or machine_code[f"{text}\n{WAIT}"]
        programs.run(code, _start(memory, exec_mask=0x55555555 & 0x7FFFFFFF))
        with pytest.raises(Stopped, match=f"{verb} 8 bytes.* of heads, which it may not .*lane 1"):
            programs.run(code, _start(memory, exec_mask=0b10))


@pytest.mark.parametrize(("read", "written"), [(True, False), (False, True)])
def test_reading_and_writing_are_allowed_apart(
    read: bool, written: bool, data: torch.Tensor, machine_code: dict[str, bytes]
) -> None:
    refused = "global_store_b32 v0, v10, s[4:5]"
    allowed = "global_load_b32 v10, v0, s[4:5] offset:-4"
    if written:
        refused, allowed = allowed, refused
    for text in (allowed, refused):
        code = machine_code.get(text) or machine_code[f"{text}\n{WAIT}"]
        waves = _start(_memory(data, read, written))
        if text == refused:
            with pytest.raises(Stopped, match="which it may not"):
                programs.run(code, waves)
        else:
            programs.run(code, waves)


def test_a_scalar_load_of_an_unaligned_address_is_refused(
    data: torch.Tensor, machine_code: dict[str, bytes]
) -> None:
    waves = _start(_memory(data))
    waves.write_scalar(4, [(BASE & 0xFFFFFFFF) + 2])
    with pytest.raises(Stopped, match="no multiple of 4"):
        programs.run(machine_code[f"s_load_b64 s[8:9], s[4:5], null\n{WAIT}"], waves)
