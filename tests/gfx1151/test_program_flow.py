"""Branches, masks in scalar registers, and what a wave starts and ends with."""

from collections.abc import Sequence

import numpy as np
import pytest

from tests.gfx1151 import programs
from tests.gfx1151.emulator.code_object import CodeObject
from tests.gfx1151.emulator.launch import Launch, Stopped, run, run_until_parted
from tests.gfx1151.emulator.memory import Given, Memory
from tests.gfx1151.emulator.wave import Waves

M32 = 0xFFFFFFFF

# Each writes 1 to s10 where the branch is taken, 2 where not.
_BRANCHES = {
    name: f"""s_mov_b32 s10, 1
        {name} .L{name}
        s_mov_b32 s10, 2
        .L{name}:
        s_nop 0"""
    for name in (
        "s_branch",
        "s_cbranch_scc0",
        "s_cbranch_scc1",
        "s_cbranch_vccz",
        "s_cbranch_vccnz",
        "s_cbranch_execz",
        "s_cbranch_execnz",
    )
}
LOOP = """s_mov_b32 s10, 0
    .Lagain:
    s_add_u32 s10, s10, 3
    s_sub_i32 s11, s11, 1
    s_cmp_lg_u32 s11, 0
    s_cbranch_scc1 .Lagain"""
ENDLESS = ".Lhere:\ns_branch .Lhere"
MASKS = {
    "s_and_saveexec_b32 s10, s0": lambda exec_mask, s0: (exec_mask & s0, exec_mask),
    "s_or_saveexec_b32 s10, s0": lambda exec_mask, s0: (exec_mask | s0, exec_mask),
    "s_xor_saveexec_b32 s10, s0": lambda exec_mask, s0: (exec_mask ^ s0, exec_mask),
    "s_and_not1_saveexec_b32 s10, s0": lambda exec_mask, s0: (s0 & ~exec_mask, exec_mask),
    "s_or_b32 exec_lo, exec_lo, s0": lambda exec_mask, s0: (exec_mask | s0, 7),
    "s_mov_b32 exec_lo, s0": lambda exec_mask, s0: (s0, 7),
    "s_mov_b32 s10, exec_lo": lambda exec_mask, s0: (exec_mask, exec_mask),
}
_VCMPX = {
    "v_cmpx_gt_i32_e64 s2, v0": lambda lane: lane < 9,
    "v_cmpx_lt_u32_e32 20, v0": lambda lane: lane > 20,
    "v_cmpx_ne_u32_e64 v0, 3": lambda lane: lane != 3,
}
NOTHING = """s_nop 3
    s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(SALU_CYCLE_1)
    s_clause 0x1
    s_waitcnt_depctr 0xfffe
    s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)
    s_set_inst_prefetch_distance 0x3"""
PARTED = """v_readfirstlane_b32 s10, v0
    s_cmp_lt_u32 s10, 64
    s_cbranch_scc1 .Lother
    v_mov_b32 v10, 5
    s_endpgm
    .Lother:
    v_mov_b32 v10, 6"""
REFUSED = ("s_barrier", "s_sleep 1\ns_getpc_b64 s[2:3]", "s_setreg_imm32_b32 hwreg(1), 3")
TEXTS = [*_BRANCHES.values(), LOOP, ENDLESS, *MASKS, *_VCMPX, NOTHING, PARTED, *REFUSED]


@pytest.fixture(scope="module")
def machine_code(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The machine code of every program here, by its text."""
    made = programs.assemble(TEXTS, tmp_path_factory.mktemp("flow"))
    return dict(zip(TEXTS, made, strict=True))


@pytest.mark.parametrize(
    ("name", "taken", "not_taken"),
    [
        ("s_branch", {}, None),
        ("s_cbranch_scc0", {"scc": False}, {"scc": True}),
        ("s_cbranch_scc1", {"scc": True}, {"scc": False}),
        ("s_cbranch_vccz", {"vcc": 0}, {"vcc": 1 << 31}),
        ("s_cbranch_vccnz", {"vcc": 8}, {"vcc": 0}),
        ("s_cbranch_execz", {"exec_mask": 0}, {"exec_mask": 1 << 31}),
        ("s_cbranch_execnz", {"exec_mask": 2}, {"exec_mask": 0}),
    ],
)
def test_branch(
    name: str,
    taken: dict[str, int],
    not_taken: dict[str, int] | None,
    machine_code: dict[str, bytes],
) -> None:
    code = machine_code[_BRANCHES[name]]
    for state, expected in ((taken, 1), (not_taken, 2)):
        if state is not None:
            waves = programs.run(code, programs.start(**state))  # type: ignore[arg-type]
            assert programs.scalar(waves, 10) == expected


def test_loop(machine_code: dict[str, bytes]) -> None:
    waves = programs.run(machine_code[LOOP], programs.start(sgprs={11: 7}))
    assert programs.scalar(waves, 10) == 21


def test_a_wave_without_an_end_is_stopped(machine_code: dict[str, bytes]) -> None:
    with pytest.raises(Stopped, match="instructions without an end"):
        programs.run(machine_code[ENDLESS], programs.start())


@pytest.mark.parametrize("exec_mask", [M32, 0x80010F0F, 0])
@pytest.mark.parametrize("text", MASKS)
def test_exec_is_written_by_scalar_instructions(
    text: str, exec_mask: int, machine_code: dict[str, bytes]
) -> None:
    for s0 in (0, M32, 0x0001F001):
        waves = programs.start(sgprs={0: s0, 10: 7}, exec_mask=exec_mask)
        programs.run(machine_code[text], waves)
        wanted_exec, wanted_s10 = MASKS[text](exec_mask, s0)
        assert programs.scalar(waves, 126) == wanted_exec & M32
        assert programs.scalar(waves, 10) == wanted_s10
        assert waves.active[0].tolist() == [bool(wanted_exec >> i & 1) for i in range(32)]
        if "saveexec" in text:
            assert bool(waves.scc[0, 0]) == bool(wanted_exec)


@pytest.mark.parametrize("text", _VCMPX)
def test_exec_is_written_by_comparisons(text: str, machine_code: dict[str, bytes]) -> None:
    exec_mask = 0xF0F0FF0F
    waves = programs.start(
        vgprs={0: np.arange(32, dtype=np.uint32)}, sgprs={2: 9}, exec_mask=exec_mask
    )
    programs.run(machine_code[text], waves)
    wanted = sum(1 << i for i in range(32) if _VCMPX[text](i)) & exec_mask
    assert programs.scalar(waves, 126) == wanted


def test_hints_change_nothing(machine_code: dict[str, bytes]) -> None:
    waves = programs.start(sgprs={3: 4})
    before = waves.sgpr.copy(), waves.vgpr.copy()
    programs.run(machine_code[NOTHING], waves)
    assert (waves.sgpr == before[0]).all() and (waves.vgpr == before[1]).all()


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_executed_is_named(text: str, machine_code: dict[str, bytes]) -> None:
    name = text.split("\n")[-1].split(" ")[0].upper()
    with pytest.raises(Stopped, match=f"{name} is not executed"):
        programs.run(machine_code[text], programs.start())


def test_words_that_are_no_instruction_are_shown() -> None:
    with pytest.raises(Stopped, match=r"no RDNA 3\.5 instruction is encoded by be80ff00"):
        programs.run(bytes.fromhex("00ff80be"), programs.start())


def test_more_registers_than_the_wave_has_are_refused(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    (code,) = programs.assemble(["v_mov_b32 v64, 0"], tmp_path_factory.mktemp("registers"))
    with pytest.raises(Stopped, match="uses v64; a wave has 64 vector registers"):
        programs.run(code, programs.start())


def test_waves_part_where_a_branch_differs(machine_code: dict[str, bytes]) -> None:
    waves = programs.start(4, vgprs={0: np.arange(128, dtype=np.uint32).reshape(4, 32)})
    kernel = programs.kernel_of(machine_code[PARTED])
    apart = run_until_parted(kernel, waves)
    assert waves.names == ["wave 2", "wave 3"] and (waves.vgpr[10] == 5).all()
    assert len(apart) == 1 and apart[0].names == ["wave 0", "wave 1"]
    assert run_until_parted(kernel, apart[0]) == [] and (apart[0].vgpr[10] == 6).all()
    assert waves.measured.places[0] == 4, "the first instruction, in step"


def _first_registers(kernel_name: str, code: CodeObject) -> Sequence[Waves]:
    from tests.gfx1151.emulator import launch

    kernel = code.kernel(kernel_name)
    starts = [
        launch.Start((gx, gy, 0), first) for gx in (0, 5) for gy in (0, 2) for first in (0, 32)
    ]
    return [launch.start(kernel, Memory(), launch.Transcendentals(), starts, 40)]


def test_a_wave_starts_with_arguments_ids_and_threads(code: CodeObject) -> None:
    name, kernel = next(iter(code.kernels.items()))
    (waves,) = _first_registers(name, code)
    address = waves.sgpr[kernel.kernarg_sgpr, :, 0].astype(np.uint64)
    address |= waves.sgpr[kernel.kernarg_sgpr + 1, :, 0].astype(np.uint64) << np.uint64(32)
    assert set(address.tolist()) == {0x6000_0000_0000}
    assert kernel.workgroup_ids == (True, True, False)
    assert waves.sgpr[kernel.user_sgprs, :, 0].tolist() == [0, 0, 0, 0, 5, 5, 5, 5]
    assert waves.sgpr[kernel.user_sgprs + 1, :, 0].tolist() == [0, 0, 2, 2, 0, 0, 2, 2]
    assert waves.vgpr[0, 0].tolist() == list(range(32))
    assert waves.vgpr[0, 1, :8].tolist() == list(range(32, 40))
    assert waves.sgpr[126, :2, 0].tolist() == [M32, 0xFF], "threads past the group's are inactive"


def test_arguments_of_another_size_are_refused(code: CodeObject) -> None:
    kernel = next(iter(code.kernels.values()))
    launch = Launch(kernel.name, (1, 1, 1), 32, bytes(kernel.kernarg_bytes - 8))
    no_tensors: list[Given] = []
    with pytest.raises(ValueError, match="bytes of arguments, got"):
        run(kernel, launch, no_tensors)
