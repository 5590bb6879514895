"""The wheel of the real vLLM: whole, complete beside vLLM's own, and over base wheels."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import paths, wheel, wheel_base, wheel_op, wheel_python
from scripts.errors import Fault
from scripts.fetch import sha256_of
from scripts.git import Git
from scripts.pin import load_pin
from scripts.wheel_changes import Changes, read_changes
from scripts.wheel_install import PROBE
from scripts.wheel_verify import Verified, content_problems, verify
from tests.packaging import small_wheels

PIN = load_pin()
ROCM = f"{PIN.version}+rocm722"
ROCM_TAGS = "cp312-cp312-linux_x86_64"


@pytest.fixture(scope="module")
def changes(checkout: Path) -> Changes:
    """What the series does to vLLM."""
    return read_changes(PIN, checkout)


@pytest.fixture(scope="module")
def made(changes: Changes, op_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python-only wheel."""
    op = wheel_op.members(op_library)
    return wheel_python.build(PIN, changes, op, tmp_path_factory.mktemp("made") / "python")


@pytest.fixture(scope="module")
def pristine(changes: Changes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """vLLM's own wheel without native code, made by its own build from the unpatched tree."""
    folder = tmp_path_factory.mktemp("pristine")
    source, out = folder / "source", folder / "out"
    wheel_python.clone(changes.git, source)

    base = changes.git.text("rev-parse", "base^{commit}")
    Git(source, PIN.source_date_epoch).bytes("reset", "--quiet", "--hard", base)
    env = {
        "PATH": os.environ["PATH"],
        "VLLM_TARGET_DEVICE": "empty",
        "VLLM_VERSION_OVERRIDE": PIN.version,
        # No Rust front end, which takes minutes and the network.
        "CARGO": "/nonexistent",
    }
    wheel_python.run_setup(source, ["-q", "bdist_wheel", "--dist-dir", str(out)], env)
    (found,) = out.iterdir()
    shutil.rmtree(source)
    return found


def test_the_wheel_is_whole_and_runs(made: Path, changes: Changes) -> None:
    assert made.name == f"vllm-{PIN.version}+gfx1151.{PIN.number}-py3-none-linux_x86_64.whl"
    assert verify(made, PIN, changes) == Verified([], None)


@pytest.mark.slow
def test_the_wheel_has_all_that_vllms_own_has(made: Path, pristine: Path, changes: Changes) -> None:
    ours, theirs = small_wheels.read(made), small_wheels.read(pristine)
    own_folder = f"vllm-{PIN.version}.dist-info"
    expected = {
        name.replace(own_folder, f"vllm-{PIN.version}+gfx1151.{PIN.number}.dist-info")
        for name in theirs
    }
    expected -= set(changes.removed)
    assert set(ours) == expected | set(changes.added) | {wheel_op.MEMBER}
    touched = {*changes.patched, *changes.removed, "vllm/_version.py"}
    untouched = [name for name in theirs if name.startswith("vllm/") and name not in touched]
    assert [name for name in untouched if ours[name] != theirs[name]] == []


def test_each_file_of_the_series_is_missed(made: Path, changes: Changes, tmp_path: Path) -> None:
    for kind, names in ("overlay", changes.added), ("patched", changes.patched):
        for name in names:
            less = small_wheels.tampered(made, tmp_path, small_wheels.without(name))
            assert content_problems(less, PIN, changes) == [f"{name}: {kind} file missing"]


@pytest.mark.slow
def test_each_patched_file_is_told_from_the_pins(
    made: Path, pristine: Path, changes: Changes, tmp_path: Path
) -> None:
    theirs = small_wheels.read(pristine)
    for name in changes.patched:

        def revert(members: small_wheels.Members, name: str = name) -> None:
            members[name] = theirs[name]

        reverted = small_wheels.tampered(made, tmp_path, revert)
        problem = f"{name}: patched file has the pin's content"
        assert content_problems(reverted, PIN, changes) == [problem]


@pytest.mark.slow
def test_vllms_own_wheel_is_refused_by_name_and_works_when_forced(
    pristine: Path, changes: Changes, op_library: Path, tmp_path: Path
) -> None:
    op = wheel_op.members(op_library)
    with pytest.raises(Fault, match=re.escape(f"{pristine.name} is no ROCm wheel")):
        wheel_base.build(PIN, changes, op, pristine, False, tmp_path)
    forced = wheel_base.build(PIN, changes, op, pristine, True, tmp_path)
    assert verify(forced, PIN, changes, pristine) == Verified([], None)


@pytest.mark.slow
def test_a_rocm_wheel_gets_the_series(
    pristine: Path, changes: Changes, op_library: Path, tmp_path: Path
) -> None:
    """vLLM's files under a ROCm wheel's name, and an extension that stands in for ROCm's."""
    metadata = f"vllm-{PIN.version}.dist-info"
    members = {
        name.replace(metadata, f"vllm-{ROCM}.dist-info"): data
        for name, data in small_wheels.read(pristine).items()
        if not name.endswith("/RECORD")
    }
    members["vllm/_version.py"] = small_wheels.version_file(ROCM)
    name = f"vllm-{ROCM}.dist-info/METADATA"
    members[name] = members[name].replace(
        f"\nVersion: {PIN.version}\n".encode(), f"\nVersion: {ROCM}\n".encode()
    )
    name = f"vllm-{ROCM}.dist-info/WHEEL"
    members[name] = re.sub(rb"Tag: .*", b"Tag: " + ROCM_TAGS.encode(), members[name])
    members["vllm/_rocm_C.abi3.so"] = os.urandom(1 << 20)
    base = small_wheels.base_wheel(tmp_path / "base", members, ROCM, ROCM_TAGS)
    op = wheel_op.members(op_library)
    over = wheel_base.build(PIN, changes, op, base, False, tmp_path)
    assert over.name == f"vllm-{ROCM}.gfx1151.{PIN.number}-{ROCM_TAGS}.whl"
    verified = verify(over, PIN, changes, base)
    assert verified.problems == []
    assert verified.content_only is not None
    assert small_wheels.read(over)["vllm/_rocm_C.abi3.so"] == members["vllm/_rocm_C.abi3.so"]


@pytest.fixture
def made_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[wheel.Kind, Path, Path]]:
    """A kind whose wheel is a few bytes, over the made checkout; where it is, and dist/."""
    changes = small_wheels.checkout(tmp_path / "vllm")
    monkeypatch.setattr("scripts.checkout.checkout", lambda pin: "")
    monkeypatch.setattr(wheel, "read_changes", lambda pin: changes)
    monkeypatch.setattr(paths, "DIST", tmp_path / "dist")
    file = tmp_path / "work" / "vllm-1-py3-none-any.whl"
    file.parent.mkdir()
    file.write_bytes(b"new")
    yield wheel.Kind("a made kind", "nothing", lambda pin, changes: file), file, tmp_path / "dist"


def test_only_a_verified_wheel_gets_into_dist(
    made_kind: tuple[wheel.Kind, Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kind, file, dist = made_kind
    dist.mkdir()
    (dist / file.name).write_bytes(b"old")
    found = Verified(["a.py: overlay file missing", "RECORD: no row for b.py"], None)
    monkeypatch.setattr(wheel, "verify", lambda *arguments: found)
    with pytest.raises(Fault, match="has 2 faults, see above; it stays out of dist/"):
        wheel.make(PIN, kind)
    assert (dist / file.name).read_bytes() == b"old"
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["wheel: a.py: overlay file missing", "wheel: RECORD: no row for b.py"]

    monkeypatch.setattr(wheel, "verify", lambda *arguments: Verified([], "it is for cp312"))
    assert wheel.make(PIN, kind) == dist / file.name
    assert [path.read_bytes() for path in dist.iterdir()] == [b"new"]
    lines = capsys.readouterr().out.splitlines()
    assert "wheel: kind: a made kind" in lines
    assert "wheel: use: nothing" in lines
    assert "wheel: verified: its contents; not installed, because it is for cp312" in lines


def copied_project(folder: Path) -> Path:
    """A copy of this repository's files as they are, without what builds left."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0")[:-1]:
        source, target = paths.ROOT / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            target.chmod(source.stat().st_mode & 0o777)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_copies_in_different_folders_make_the_same_bytes(
    checkout: Path, tmp_path: Path
) -> None:
    sdist = paths.CACHE / PIN.sdist_name
    sums = []
    for place, zone, umask in (("one", "UTC", 0o022), ("another/place", "Asia/Tokyo", 0o077)):
        folder = copied_project(tmp_path / place)
        # Without what a make that runs the tests leaves there: it would add lines of its own.
        left_out = ("BASE_WHEEL", "FORCE", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
        env = {name: value for name, value in os.environ.items() if name not in left_out}
        env |= {"TZ": zone, "PYTHONDONTWRITEBYTECODE": "1"}
        if sdist.exists():
            env["VLLM_SDIST"] = str(sdist)
        done = subprocess.run(
            ["make", "wheel", f"PYTHON={sys.executable}"],
            cwd=folder,
            env=env,
            umask=umask,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        match = re.fullmatch(
            r"wheel: (dist/\S+\.whl) sha256=(\w{64})", done.stdout.splitlines()[-1]
        )
        assert match is not None, done.stdout
        assert sha256_of(folder / match[1]) == match[2]
        assert [path.name for path in (folder / "dist").iterdir()] == [Path(match[1]).name]
        sums.append(match[2])
        time.sleep(2)  # The dates in a zip file are two seconds apart.
    assert sums[0] == sums[1]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_wheel_installs_with_its_requirements(
    made: Path, changes: Changes, tmp_path: Path
) -> None:
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    constraints = tmp_path / "constraints.txt"
    constraints.write_text(f"torch=={PIN.tools['torch']}\n")
    python = home / "bin" / "python"
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "-c", constraints, made],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    said = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    modules = [name[:-3].replace("/", ".") for name in changes.added if name.endswith(".py")]
    done = subprocess.run(
        [python, "-I", PROBE, said.stdout.strip(), *modules],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
