"""The gfx11 code against its budget, and the measure of its memory round trips."""

import dataclasses
from pathlib import Path

import pytest

from scripts.budget import __main__ as budget
from scripts.budget import assembly, chain
from scripts.budget.limits import Measured, over
from scripts.pin import load_pin

ARCHITECTURES = load_pin().architectures


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_code_is_within_its_budget(op_library: Path, architecture: str) -> None:
    measured = budget.measure(op_library.parent, architecture)
    assert list(over(measured)) == []
    # Fewer than three would be a measure that misses paths: cos and sin wait for the position, and
    # that for the argument.
    assert set(measured.round_trips) == {3}


@pytest.mark.slow
def test_code_of_one_architecture_compiles_in_time(op_library: Path) -> None:
    build = op_library.parent
    seconds = budget.compile_seconds(build, "gfx1151")
    assert seconds > 0.5, "nothing was compiled"
    assert list(over(budget.measure(build, "gfx1151", seconds))) == []


def test_instructions_are_counted_by_kind(op_library: Path) -> None:
    for kernel in assembly.read(op_library.parent / "gfx1151" / "rdna35_rope_cache.s"):
        counts = kernel.counts()
        instructions = [i.name for block in kernel.blocks for i in block.instructions]
        assert sum(counts.values()) == len(instructions)
        assert counts["store"] == sum("_store_" in name for name in instructions) > 0
        assert counts["load"] == sum("_load_" in name for name in instructions) > 0
        assert counts["valu"] == sum(name.startswith("v_") for name in instructions)
        # 4 or 8 bytes each, two words more at most; the end is padded.
        assert 4 * len(instructions) <= kernel.code_bytes <= 16 * len(instructions) + 256


def kernel(code: str) -> assembly.Kernel:
    """A kernel with this code: a line an instruction, labels with a colon."""
    blocks: list[assembly.Block] = []
    label, instructions = "start", list[assembly.Instruction]()
    for line in filter(None, map(str.strip, code.splitlines())):
        if line.endswith(":"):
            blocks.append(assembly.Block(label, tuple(instructions)))
            label, instructions = line[:-1], []
        else:
            name, _, operands = line.partition(" ")
            instructions.append(assembly.Instruction(name, operands))
    blocks.append(assembly.Block(label, tuple(instructions)))
    return assembly.Kernel("rdna35_rope_cache_bf16_64_rope", tuple(blocks), 9, 9, 0, 0, 0, 0, 99)


def test_loads_under_way_together_are_one_round_trip() -> None:
    together = kernel("""
        global_load_b64 v[0:1], v9, s[0:1]
        s_load_b64 s[4:5], s[0:1], 0x0
        global_load_b64 v[2:3], v9, s[2:3]
        s_waitcnt vmcnt(1)
        s_waitcnt vmcnt(0) lgkmcnt(0)
        global_store_b64 v9, v[0:1], s[6:7]
    """)
    assert chain.round_trips(together) == 1


def test_a_load_behind_a_wait_is_one_more_round_trip() -> None:
    one_by_one = kernel("""
        s_load_b64 s[4:5], s[0:1], 0x0
        s_waitcnt lgkmcnt(0)
        global_load_b64 v[0:1], v9, s[4:5]
        s_waitcnt vmcnt(0)
        global_load_b64 v[2:3], v0, s[4:5]
        s_waitcnt vmcnt(0)
        global_store_b64 v9, v[2:3], s[6:7]
        global_load_b64 v[2:3], v0, s[4:5]
        s_waitcnt vmcnt(0)
        global_store_b64 v9, v[2:3], s[6:7]
    """)
    assert chain.round_trips(one_by_one) == 3, "and none behind the first store counts"


def test_a_wait_for_the_older_of_two_loads_does_not_wait_for_the_younger() -> None:
    older = kernel("""
        global_load_b64 v[0:1], v9, s[0:1]
        s_load_b64 s[4:5], s[0:1], 0x0
        s_waitcnt lgkmcnt(0)
        global_load_b64 v[2:3], v9, s[4:5]
        s_waitcnt vmcnt(1)
        global_store_b64 v9, v[0:1], s[6:7]
    """)
    assert chain.round_trips(older) == 1


def test_scalar_loads_arrive_in_any_order() -> None:
    either = kernel("""
        s_load_b64 s[4:5], s[0:1], 0x0
        global_load_b64 v[0:1], v9, s[0:1]
        s_waitcnt vmcnt(0)
        s_load_b64 s[6:7], s[0:1], 0x0
        s_waitcnt lgkmcnt(1)
        global_store_b64 v9, v[0:1], s[6:7]
    """)
    assert chain.round_trips(either) == 2


BRANCHES = """
    s_cmp_eq_u32 s9, 0
    s_cselect_b32 s0, -1, 0
    s_and_b32 vcc_lo, exec_lo, s0
    s_cbranch_vccz .LBB0_1
    global_load_b64 v[0:1], v9, s[4:5]
    s_waitcnt vmcnt(0)
    .LBB0_1:
    {between}
    s_and_b32 vcc_lo, exec_lo, s0
    {second} .LBB0_2
    global_load_b64 v[0:1], v9, s[4:5]
    s_waitcnt vmcnt(0)
    .LBB0_2:
    global_store_b64 v9, v[0:1], s[6:7]
"""


IF_ELSE = """
    {narrowing} s8, s7
    global_load_b64 v[0:1], v9, s[4:5]
    s_waitcnt vmcnt(0)
    {widening}
    s_cbranch_execnz .LBB0_2
    global_load_b64 v[0:1], v9, s[4:5]
    s_waitcnt vmcnt(0)
    .LBB0_2:
    global_store_b64 v9, v[0:1], s[6:7]
"""


@pytest.mark.parametrize(
    ("narrowing", "widening", "trips"),
    [
        ("s_mov_b32", "s_nop 0", 1),  # exec as it was: a wave that runs has lanes
        ("s_and_saveexec_b32", "s_or_b32 exec_lo, exec_lo, s8", 1),
        ("s_and_saveexec_b32", "s_nop 0", 2),
        ("s_and_saveexec_b32", "s_or_b32 exec_lo, exec_lo, s5", 2),
        ("s_and_saveexec_b32", "s_mov_b32 s8, 0\n s_or_b32 exec_lo, exec_lo, s8", 2),
    ],
)
def test_a_wave_that_runs_has_lanes_where_exec_is_whole_again(
    narrowing: str, widening: str, trips: int
) -> None:
    found = kernel(IF_ELSE.format(narrowing=narrowing, widening=widening))
    assert chain.round_trips(found) == trips


@pytest.mark.parametrize(
    ("second", "between", "most"),
    [
        ("s_cbranch_vccz", "s_nop 0", 2),
        ("s_cbranch_vccnz", "s_nop 0", 1),  # the other way is taken by nobody
        ("s_cbranch_vccnz", "s_load_b64 s[0:1], s[2:3], 0x0", 2),  # another s0
        ("s_cbranch_vccnz", "v_cmp_gt_i32_e64 s0, s1, v0", 2),
        ("s_cbranch_vccz", "s_mov_b32 s0, 0", 1),
        ("s_cbranch_vccnz", "s_mov_b32 s0, 0", 2),
        ("s_cbranch_vccz", "s_xor_b32 s0, s0, -1", 1),
        ("s_cbranch_scc1", "s_nop 0", 2),
    ],
)
def test_paths_are_those_that_the_branches_allow(second: str, between: str, most: int) -> None:
    assert chain.round_trips(kernel(BRANCHES.format(second=second, between=between))) == most


def test_a_loop_around_a_wait_has_no_end() -> None:
    loop = kernel("""
        .LBB0_1:
        global_load_b64 v[0:1], v9, s[4:5]
        s_waitcnt vmcnt(0)
        s_cbranch_scc1 .LBB0_1
        global_store_b64 v9, v[0:1], s[6:7]
    """)
    assert chain.round_trips(loop) > 90


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("vgprs", 65, "65 VGPRs, at most 64"),
        ("vgpr_spills", 1, "VGPR spills"),
        ("sgpr_spills", 1, "SGPR spills"),
        ("scratch_bytes", 4, "bytes of scratch"),
        ("lds_bytes", 16, "bytes of LDS"),
    ],
)
def test_each_excess_of_a_kernel_is_named(field: str, value: int, words: str) -> None:
    within = kernel("s_endpgm")
    assert list(over(Measured("gfx1151", [within], [3], 1000, 60.0))) == []
    (line,) = over(
        Measured("gfx1151", [dataclasses.replace(within, **{field: value})], [3], 1000)  # type: ignore[arg-type]
    )
    assert words in line and within.name in line


def test_each_excess_of_a_code_object_is_named() -> None:
    within = kernel("s_endpgm")
    (line,) = over(Measured("gfx1151", [within], [4], 1000))
    assert "4 memory round trips" in line
    (line,) = over(Measured("gfx1151", [within] * 65, [3] * 65, 1000))
    assert "65 kernels" in line
    (line,) = over(Measured("gfx1151", [within], [3], 400 * 1024 + 1))
    assert "409601 bytes" in line
    (line,) = over(Measured("gfx1151", [within], [3], 1000, 61.0))
    assert "61 s" in line
    wide = dataclasses.replace(within, name="rdna35_rope_cache_bf16_512_norm", vgprs=96)
    assert list(over(Measured("gfx1151", [wide], [3], 1000))) == []
    (line,) = over(Measured("gfx1151", [dataclasses.replace(wide, vgprs=97)], [3], 1000))
    assert "97 VGPRs, at most 96" in line
