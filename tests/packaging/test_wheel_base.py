"""The series over a base wheel: what is refused, what is kept, what is added."""

import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from scripts import wheel_base
from scripts.errors import Fault
from scripts.wheel_archive import PROGRAM_MODE, stored_sha256
from scripts.wheel_changes import Changes
from scripts.wheel_pack import New
from scripts.wheel_verify import content_problems
from tests.packaging import small_wheels
from tests.packaging.small_wheels import OVERLAY, PATCHED, PIN, REMOVED, Members

ROCM = "0.33.0+rocm722"
ROCM_TAGS = "cp312-cp312-linux_x86_64"
EXTENSION = "vllm/_rocm_C.abi3.so"
LIBRARY = "vllm/librdna35.so"

Op = Mapping[str, New]


@pytest.fixture(scope="module")
def changes(tmp_path_factory: pytest.TempPathFactory) -> Changes:
    """The made checkout's."""
    return small_wheels.checkout(tmp_path_factory.mktemp("made") / "vllm")


@pytest.fixture(scope="module")
def op(op_library: Path) -> Op:
    """The op library, as a wheel's member."""
    return {LIBRARY: New(op_library.read_bytes(), PROGRAM_MODE)}


def rocm_members(version: str = ROCM) -> Members:
    return small_wheels.base_members(version, ROCM_TAGS, EXTENSION)


def made_base(folder: Path, members: Members, version: str = ROCM, tags: str = ROCM_TAGS) -> Path:
    return small_wheels.base_wheel(folder / "base", members, version, tags)


def refusal(base: Path, changes: Changes, op: Op, work: Path, *, force: bool = False) -> str:
    with pytest.raises(Fault) as caught:
        wheel_base.build(PIN, changes, op, base, force, work)
    assert not list(work.glob("*.whl"))
    return str(caught.value)


def test_a_rocm_wheel_gets_the_series_and_keeps_the_rest(
    changes: Changes, op: Op, tmp_path: Path
) -> None:
    before = rocm_members() | {
        "vllm-0.33.0+rocm722.data/scripts/tool": b"#!python\n",
        "vllm-0.33.0+rocm722.dist-info/sboms/a.json": b"{}",
    }
    base = made_base(tmp_path, before)
    wheel = wheel_base.build(PIN, changes, op, base, False, tmp_path / "work")
    assert wheel.name == f"vllm-{ROCM}.gfx1151.7-{ROCM_TAGS}.whl"
    assert content_problems(wheel, PIN, changes, base) == []

    after = small_wheels.read(wheel)
    folder = f"vllm-{ROCM}.gfx1151.7.dist-info"
    expected = {
        name.replace(f"{ROCM}.d", f"{ROCM}.gfx1151.7.d"): data
        for name, data in before.items()
        if name != REMOVED
    }
    expected |= changes.contents([*PATCHED, *OVERLAY])
    expected[LIBRARY] = op[LIBRARY].data
    expected["vllm/_version.py"] = small_wheels.version_file(f"{ROCM}.gfx1151.7")
    expected[f"{folder}/METADATA"] = before[f"vllm-{ROCM}.dist-info/METADATA"].replace(
        ROCM.encode(), f"{ROCM}.gfx1151.7".encode()
    )
    expected[f"{folder}/RECORD"] = after[f"{folder}/RECORD"]
    assert after == expected


def test_kept_members_are_the_same_compressed_bytes(
    changes: Changes, op: Op, tmp_path: Path
) -> None:
    base = made_base(tmp_path, rocm_members())
    wheel = wheel_base.build(PIN, changes, op, base, False, tmp_path / "work")
    with (
        zipfile.ZipFile(base) as before,
        zipfile.ZipFile(wheel) as after,
        base.open("rb") as before_file,
        wheel.open("rb") as after_file,
    ):
        for name in (EXTENSION, "vllm/engine.py"):
            old, new = before.getinfo(name), after.getinfo(name)
            assert new.compress_type == zipfile.ZIP_DEFLATED
            assert new.external_attr == old.external_attr
            assert stored_sha256(after_file, new) == stored_sha256(before_file, old)


def test_another_tool_finds_the_record_right(changes: Changes, op: Op, tmp_path: Path) -> None:
    """`wheel unpack` checks every hash of RECORD with code of its own."""
    base = made_base(tmp_path, rocm_members())
    wheel = wheel_base.build(PIN, changes, op, base, False, tmp_path / "work")
    command = [sys.executable, "-m", "wheel", "unpack", "--dest", str(tmp_path / "out"), str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / f"vllm-{ROCM}.gfx1151.7" / LIBRARY).read_bytes() == op[LIBRARY].data


def test_the_same_base_gives_the_same_bytes_wherever_it_lies(
    changes: Changes, op: Op, tmp_path: Path
) -> None:
    wheels = []
    for folder in tmp_path / "one", tmp_path / "another" / "place":
        base = made_base(folder, rocm_members())
        wheels.append(wheel_base.build(PIN, changes, op, base, False, folder / "work"))
    assert wheels[0].read_bytes() == wheels[1].read_bytes()


@pytest.mark.parametrize(
    ("version", "tags", "extension", "lacks"),
    [
        (
            "0.33.0",
            "cp311-cp311-linux_x86_64",
            None,
            "no vllm/_rocm_C*.so in it, no +rocm in its version 0.33.0",
        ),
        (
            "0.33.0",
            "cp38-abi3-manylinux_2_28_x86_64",
            "vllm/_C_stable_libtorch.abi3.so",
            "no vllm/_rocm_C*.so in it, no +rocm in its version 0.33.0",
        ),
        ("0.33.0+cu129", ROCM_TAGS, EXTENSION, "no +rocm in its version 0.33.0+cu129"),
        ("0.33.0+rocm722", ROCM_TAGS, "vllm/_C.abi3.so", "no vllm/_rocm_C*.so in it"),
    ],
)
def test_a_wheel_that_is_not_for_rocm_is_refused_unless_forced(
    changes: Changes,
    op: Op,
    tmp_path: Path,
    version: str,
    tags: str,
    extension: str | None,
    lacks: str,
) -> None:
    members = small_wheels.base_members(version, tags, extension)
    base = made_base(tmp_path, members, version, tags)
    work = tmp_path / "work"
    assert refusal(base, changes, op, work).startswith(f"{base.name} is no ROCm wheel ({lacks}) ")
    wheel = wheel_base.build(PIN, changes, op, base, True, work)
    assert content_problems(wheel, PIN, changes, base) == []


def test_a_wheel_with_the_series_is_refused_unless_forced(
    changes: Changes, op: Op, tmp_path: Path
) -> None:
    first = wheel_base.build(
        PIN, changes, op, made_base(tmp_path, rocm_members()), False, tmp_path / "first"
    )
    work = tmp_path / "work"
    message = refusal(first, changes, op, work)
    assert message.startswith(
        f"{first.name} already has the series (its version is {ROCM}.gfx1151.7, it holds {LIBRARY})"
    )
    again = wheel_base.build(PIN, changes, op, first, True, work)
    assert again.name == first.name
    assert content_problems(again, PIN, changes, first) == []


@pytest.mark.parametrize("name", [OVERLAY[0], LIBRARY])
def test_a_wheel_with_a_file_of_the_series_is_refused_by_it(
    changes: Changes, op: Op, tmp_path: Path, name: str
) -> None:
    base = made_base(tmp_path, rocm_members() | {name: b"there already"})
    message = refusal(base, changes, op, tmp_path / "work")
    assert message.startswith(f"{base.name} already has the series (it holds {name})")


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", [*PATCHED, REMOVED])
def test_a_changed_file_that_the_series_patches_is_refused_by_name(
    changes: Changes, op: Op, tmp_path: Path, name: str, force: bool
) -> None:
    base = made_base(tmp_path, rocm_members() | {name: b"changed = True\n"})
    message = refusal(base, changes, op, tmp_path / "work", force=force)
    assert message.startswith(f"{base.name}: {name} is not vLLM 0.33.0's, and the series patches")


def test_a_missing_file_that_the_series_patches_is_refused_by_name(
    changes: Changes, op: Op, tmp_path: Path
) -> None:
    members = rocm_members()
    del members[PATCHED[1]]
    base = made_base(tmp_path, members)
    message = refusal(base, changes, op, tmp_path / "work")
    assert message.startswith(f"{base.name} has no {PATCHED[1]}, which the series patches")


def test_a_changed_file_that_the_series_leaves_alone_is_kept(
    changes: Changes, op: Op, tmp_path: Path
) -> None:
    """The base wheel's maker may have changed it for a reason of their own."""
    base = made_base(tmp_path, rocm_members() | {"vllm/engine.py": b"steps = 2\n"})
    wheel = wheel_base.build(PIN, changes, op, base, False, tmp_path / "work")
    assert small_wheels.read(wheel)["vllm/engine.py"] == b"steps = 2\n"
    assert content_problems(wheel, PIN, changes, base) == []


@pytest.mark.parametrize("force", [False, True])
def test_another_vllm_is_refused_with_what_to_do(
    changes: Changes, op: Op, tmp_path: Path, force: bool
) -> None:
    version = "0.32.0+rocm722"
    base = made_base(tmp_path, rocm_members(version), version)
    assert refusal(base, changes, op, tmp_path / "work", force=force) == (
        f"{base.name} is vLLM 0.32.0, the pin is 0.33.0; use a wheel of vLLM 0.33.0"
    )


def test_a_file_name_that_is_not_the_metadatas_is_refused(
    changes: Changes, op: Op, tmp_path: Path
) -> None:
    members = rocm_members()
    name = f"vllm-{ROCM}.dist-info/METADATA"
    members[name] = members[name].replace(b"rocm722", b"rocm71")
    base = made_base(tmp_path, members)
    message = refusal(base, changes, op, tmp_path / "work")
    assert f"its METADATA says version 0.33.0+rocm71, its file name {ROCM}" in message


def test_a_member_without_a_row_in_record_is_refused_by_name(
    changes: Changes, op: Op, tmp_path: Path
) -> None:
    base = made_base(tmp_path, rocm_members())
    with zipfile.ZipFile(base, "a") as archive:
        archive.writestr("vllm/stray.py", "stray = 1\n")
    message = refusal(base, changes, op, tmp_path / "work")
    assert "RECORD has no row for vllm/stray.py" in message


def test_a_missing_base_wheel_is_named(changes: Changes, op: Op, tmp_path: Path) -> None:
    base = tmp_path / f"vllm-{ROCM}-{ROCM_TAGS}.whl"
    assert refusal(base, changes, op, tmp_path / "work").startswith(f"{base}: No such file")
