"""Moves between lanes: what each lane gets, with lanes inactive and at the ends of rows."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.gfx1151 import programs

M32 = 0xFFFFFFFF
# Lanes that are active: lane 3 and lane 16 are not.
SOME = M32 & ~(1 << 3 | 1 << 16)
OLD = 0x77777777

# A control with the lane that a lane of a row of 16 reads, None where there is none.
CONTROLS: dict[str, Callable[[int], int | None]] = {
    "quad_perm:[1,2,3,0]": lambda i: i // 4 * 4 + (1, 2, 3, 0)[i % 4],
    "row_shl:3": lambda i: i + 3 if i + 3 < 16 else None,
    "row_shr:15": lambda i: i - 15 if i >= 15 else None,
    "row_ror:5": lambda i: (i + 11) % 16,
    "row_mirror": lambda i: 15 - i,
    "row_half_mirror": lambda i: i // 8 * 8 + 7 - i % 8,
    "row_share:9": lambda i: 9,
    "row_xmask:1": lambda i: i ^ 1,
    "row_xmask:2": lambda i: i ^ 2,
    "row_xmask:4": lambda i: i ^ 4,
    "row_xmask:8": lambda i: i ^ 8,
    "row_xmask:15": lambda i: 15 - i,
}
_ALL = "row_mask:0xf bank_mask:0xf"
# Modifiers with: bound_ctrl, fi, and whether a lane is chosen.
MODIFIERS: dict[str, tuple[bool, bool, Callable[[int], bool]]] = {
    _ALL: (False, False, lambda lane: True),
    f"{_ALL} bound_ctrl:1": (True, False, lambda lane: True),
    f"{_ALL} fi:1": (False, True, lambda lane: True),
    f"{_ALL} bound_ctrl:1 fi:1": (True, True, lambda lane: True),
    "row_mask:0x2 bank_mask:0xf": (False, False, lambda lane: lane >= 16),
    "row_mask:0xf bank_mask:0x5 bound_ctrl:1": (True, False, lambda lane: lane // 4 % 2 == 0),
}
DPP_TEXTS = [
    f"v_add_nc_u32_dpp v10, v0, v1 {control} {modifiers}"
    for control in CONTROLS
    for modifiers in MODIFIERS
]
MOVE = "v_mov_b32_dpp v10, v0 row_xmask:4 row_mask:0xf bank_mask:0xf bound_ctrl:1"
ADD = "v_add_f32_dpp v10, -v0, |v1| row_xmask:1 row_mask:0xf bank_mask:0xf bound_ctrl:1"
PERMLANE_TEXTS = [
    f"v_permlane{kind}_b32 v10, v0, s4, s5{modifiers}"
    for kind in ("16", "x16")
    for modifiers in ("", " op_sel:[1,0]", " op_sel:[0,1]")
]
SINGLE = [
    "v_readfirstlane_b32 s10, v0",
    "v_readlane_b32 s10, v0, s4",
    "v_writelane_b32 v10, s6, s4",
]
TEXTS = [*DPP_TEXTS, MOVE, ADD, *PERMLANE_TEXTS, *SINGLE]

_random = np.random.default_rng(11)
SOURCE = _random.integers(0, 1 << 31, 32, np.uint32)
OTHER = _random.integers(0, 1 << 31, 32, np.uint32)


@pytest.fixture(scope="module")
def machine_code(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The machine code of every case here, by its text."""
    made = programs.assemble(TEXTS, tmp_path_factory.mktemp("lanes"))
    return dict(zip(TEXTS, made, strict=True))


def _run(code: bytes, exec_mask: int, **sgprs: int) -> tuple[list[int], int]:
    """v10 of each lane and s10 after a program on SOURCE, OTHER and OLD."""
    waves = programs.start(
        vgprs={0: SOURCE, 1: OTHER, 10: np.full(32, OLD, np.uint32)},
        sgprs={int(name[1:]): value for name, value in sgprs.items()},
        exec_mask=exec_mask,
    )
    programs.run(code, waves)
    return programs.vector(waves, 10)[0], programs.scalar(waves, 10)


@pytest.mark.parametrize("exec_mask", [M32, SOME, 0], ids=["all", "some", "none"])
@pytest.mark.parametrize("modifiers", MODIFIERS)
@pytest.mark.parametrize("control", CONTROLS)
def test_dpp(control: str, modifiers: str, exec_mask: int, machine_code: dict[str, bytes]) -> None:
    bound_control, fetch_inactive, chosen = MODIFIERS[modifiers]
    got, _ = _run(machine_code[f"v_add_nc_u32_dpp v10, v0, v1 {control} {modifiers}"], exec_mask)
    for lane in range(32):
        source = CONTROLS[control](lane % 16)
        active = exec_mask >> lane & 1
        from_lane = None if source is None else lane // 16 * 16 + source
        if from_lane is not None and not (fetch_inactive or exec_mask >> from_lane & 1):
            from_lane = None
        if not active or not chosen(lane) or (from_lane is None and not bound_control):
            wanted = OLD
        else:
            moved = 0 if from_lane is None else int(SOURCE[from_lane])
            wanted = moved + int(OTHER[lane]) & M32
        assert got[lane] == wanted, f"lane {lane}"


def test_dpp_moves_and_adds_floats(machine_code: dict[str, bytes]) -> None:
    assert _run(machine_code[MOVE], M32)[0] == [int(SOURCE[lane ^ 4]) for lane in range(32)]
    got, _ = _run(machine_code[ADD], M32)
    for lane in range(32):
        a = -SOURCE[lane ^ 1 : (lane ^ 1) + 1].view(np.float32)
        b = np.abs(OTHER[lane : lane + 1].view(np.float32))
        assert got[lane] == int((a + b).view(np.uint32)[0]), f"lane {lane}"


@pytest.mark.parametrize("exec_mask", [M32, SOME, 0], ids=["all", "some", "none"])
@pytest.mark.parametrize("modifiers", ["", " op_sel:[1,0]", " op_sel:[0,1]"])
@pytest.mark.parametrize("kind", ["16", "x16"])
def test_permlane(
    kind: str, modifiers: str, exec_mask: int, machine_code: dict[str, bytes]
) -> None:
    # Lane i of a row reads lane (5 * i + 3) % 16 of its row, or of the other.
    selectors = sum((5 * i + 3) % 16 << 4 * i for i in range(16))
    got, _ = _run(
        machine_code[f"v_permlane{kind}_b32 v10, v0, s4, s5{modifiers}"],
        exec_mask,
        s4=selectors & M32,
        s5=selectors >> 32,
    )
    for lane in range(32):
        row = lane // 16 if kind == "16" else 1 - lane // 16
        source = 16 * row + (5 * lane + 3) % 16
        fetched = modifiers == " op_sel:[1,0]" or exec_mask >> source & 1
        if not exec_mask >> lane & 1:
            wanted = OLD
        elif fetched:
            wanted = int(SOURCE[source])
        else:
            wanted = 0 if modifiers == " op_sel:[0,1]" else OLD
        assert got[lane] == wanted, f"lane {lane}"


@pytest.mark.parametrize(("exec_mask", "lane"), [(M32, 0), (0b101000, 3), (1 << 31, 31), (0, 0)])
def test_readfirstlane_reads_the_first_active_lane(
    exec_mask: int, lane: int, machine_code: dict[str, bytes]
) -> None:
    assert _run(machine_code[SINGLE[0]], exec_mask)[1] == SOURCE[lane]


@pytest.mark.parametrize("exec_mask", [M32, 1])
def test_one_lane_is_read_and_written_whatever_is_active(
    exec_mask: int, machine_code: dict[str, bytes]
) -> None:
    assert _run(machine_code[SINGLE[1]], exec_mask, s4=21)[1] == SOURCE[21]
    got, _ = _run(machine_code[SINGLE[2]], exec_mask, s4=21, s6=99)
    assert got == [99 if lane == 21 else OLD for lane in range(32)]
