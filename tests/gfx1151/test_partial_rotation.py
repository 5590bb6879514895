"""Rotations of a part of each head: where they end among its lanes, and what they read."""

import functools
from pathlib import Path

import pytest
import torch

from tests.gfx1151 import launches
from tests.gfx1151.emulator import launch
from tests.gfx1151.emulator.assembly import text_of
from tests.gfx1151.emulator.code_object import CodeObject
from tests.gfx1151.emulator.decode import Instruction
from tests.gfx1151.emulator.execute import Step, step_of
from tests.gfx1151.emulator.floats import HostTranscendentals
from tests.gfx1151.emulator.wave import Waves
from tests.gfx1151.launches import Key, Packed
from tests.gfx1151.running import assert_same_as_host, execute_and_check
from tests.kernel import compare, op
from tests.kernel.compare import Tally
from tests.kernel.families import Family
from tests.kernel.rope_tables import Rope


def _key(
    head_dim: int, rot: int, norm: str, tokens: int, rows: int = 4096, is_neox: bool = True
) -> Key:
    family = Family(
        f"{rot}-of-{head_dim}-{norm}{'' if is_neox else '-pairs'}",
        5,
        3,
        head_dim,
        Rope(rot, rows=rows),
        norm,
        max_position=rows,
        is_neox=is_neox,
    )
    return Key(family, tokens, torch.bfloat16)


FEW = [
    _key(head_dim, rot, "rms", 3)
    for head_dim in op.HEAD_DIMS
    for rot in (2, 16, 32, 64, 78, 96, 250)
    if rot < head_dim
]
FEW += [
    _key(head_dim, rot, "rms", 3, is_neox=False) for head_dim in op.HEAD_DIMS for rot in (32, 50)
]
WITHOUT_NORM = [
    _key(head_dim, 16, "", 3, is_neox=is_neox)
    for head_dim in op.HEAD_DIMS
    for is_neox in (True, False)
]
# A token is at the table's last row, behind which the emulator has no memory.
SMALL_TABLES = [_key(head_dim, 16, "rms", 3, rows=2) for head_dim in op.HEAD_DIMS]
# Those that wider kernels serve.
MANY = [_key(head_dim, 16, "rms", 400) for head_dim in (64, 96, 128, 256)]
MANY += [_key(128, 16, "rms", 100)]


@pytest.fixture(scope="module")
def partial(op_library: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Key, Packed]:
    """The launches of these tests' cases."""
    folder = tmp_path_factory.mktemp("launches")
    return launches.pack([*FEW, *WITHOUT_NORM, *SMALL_TABLES, *MANY], op_library, folder)


@pytest.fixture
def across_lanes(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """The moves between lanes that are executed, and whether all lanes took part every time."""
    found: dict[str, bool] = {}

    def watched(inst: Instruction) -> Step:
        step = step_of(inst)
        if inst.dpp is None and not inst.name.startswith("V_PERMLANE"):
            return step

        def watching(waves: Waves) -> Waves | None:
            text = text_of(inst)
            found[text] = found.get(text, True) and bool(waves.active.all())
            return step(waves)

        return watching

    monkeypatch.setattr(launch, "step_of", watched)
    monkeypatch.setattr(launch, "_steps", functools.cache(lambda code: {}))
    return found


@pytest.mark.parametrize("key", [*FEW, *WITHOUT_NORM], ids=str)
def test_lanes_on_both_sides_of_the_rotations_end_are_right(
    key: Key, code: CodeObject, partial: dict[Key, Packed], across_lanes: dict[str, bool]
) -> None:
    """vLLM 51049 and 57681: lanes that rotate and lanes that do not parted before a shuffle, whose
    result is undefined for lanes that are not there."""
    case, on_host = key.build(), key.build().arguments
    tally = Tally()
    execute_and_check(code, partial[key], case, HostTranscendentals(), tally)
    tally.assert_rare()
    op.load()(*on_host.as_tuple())
    assert_same_as_host(case.arguments, on_host, partial[key])
    assert bool(across_lanes) == bool(key.family.norm)
    assert all(across_lanes.values()), across_lanes


@pytest.mark.parametrize("key", MANY, ids=str)
def test_lanes_of_wider_kernels_are_right_as_well(
    key: Key, code: CodeObject, partial: dict[Key, Packed], across_lanes: dict[str, bool]
) -> None:
    """vLLM 51049 and 57681, as above."""
    case, on_host = key.build().arguments, key.build().arguments
    launched = partial[key]
    assert launched.launch.kernel.endswith(("_mid", "_wide"))
    kernel = code.kernel(launched.launch.kernel)
    tokens = [0, key.tokens - 1]
    launch.run(
        kernel, launched.launch, launched.tensors(case), HostTranscendentals(), only_x=tokens
    )
    op.load()(*on_host.as_tuple())
    assert case.k is not None and on_host.k is not None
    compare.assert_same_bits("q", case.q[tokens], on_host.q[tokens])
    compare.assert_same_bits("k", case.k[tokens], on_host.k[tokens])
    assert across_lanes and all(across_lanes.values()), across_lanes


@pytest.mark.parametrize("key", SMALL_TABLES, ids=str)
def test_a_narrow_table_is_read_in_the_tokens_row_alone(
    key: Key, code: CodeObject, partial: dict[Key, Packed]
) -> None:
    """vLLM 43676: a kernel that takes the whole head for the rotated part reads past a row."""
    execute_and_check(code, partial[key], key.build(), HostTranscendentals(), Tally())
