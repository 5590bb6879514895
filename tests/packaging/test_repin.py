"""`make repin`: the series on another vLLM, or a stop at the conflict; and the way back."""

from pathlib import Path

import pytest

from scripts import paths
from scripts.checkout import MOVING
from scripts.errors import Fault
from scripts.pin import load_pin
from scripts.repin import __main__ as module
from scripts.repin.__main__ import abort, repin
from scripts.repin.state import Project
from tests.packaging.small_project import LONG, VLLM, SmallProject
from tests.packaging.small_releases import NEW, sdist, with_pin_file

# Far from the patches' hunks, near one of them, and in one of them.
ELSEWHERE = {"vllm/long.txt": LONG.replace("line 30 ", "line thirty "), "vllm/other.py": "o = 1\n"}
NEAR = {"vllm/long.txt": LONG.replace("line 3 ", "line three ")}
SAME = {"vllm/long.txt": LONG.replace("line 50 ", "line L ")}


@pytest.fixture
def move(project: SmallProject) -> Project:
    """A project with a series, a pin file, and releases to move to."""
    target, _ = with_pin_file(project)
    project.with_series()
    return target


def files(project: SmallProject) -> dict[str, bytes]:
    """Every byte that a move may change and must be able to put back."""
    return project.snapshot() | {"pin.toml": (project.root / "pin.toml").read_bytes()}


def new(project: SmallProject, changes: dict[str, str]) -> Path:
    return sdist(project.root, NEW, VLLM | changes)


def stopped(project: SmallProject, move: Project, changes: dict[str, str]) -> str:
    before = files(project)
    with pytest.raises(Fault) as caught:
        repin(NEW, new(project, changes), move)
    assert files(project) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_pin_and_series_are_moved_and_a_fresh_checkout_is_the_same(
    project: SmallProject, move: Project, tmp_path: Path
) -> None:
    written = repin(NEW, new(project, ELSEWHERE), move)
    assert written == ["patches/0001-Name-two-lines.patch", "pin.toml"]  # Its `index` line.
    pin = load_pin(move.pin)
    assert (pin.version, pin.commit) == (NEW, "0123456789")
    assert pin.source_date_epoch == 1_800_000_000
    assert project.tree_files()["vllm/other.py"] == "o = 1"
    assert "line five of" in project.tree_files()["vllm/long.txt"]
    assert f'"{NEW}"' in (project.tree / "vllm" / "_version.py").read_text()
    assert not move.work.exists() and project.git.commit_id(MOVING) is None
    fresh = SmallProject(tmp_path / "fresh")
    fresh.pin = pin
    (fresh.cache / pin.sdist_name).write_bytes((move.cache / pin.sdist_name).read_bytes())
    for name, content in project.snapshot().items():
        (fresh.root / name).parent.mkdir(parents=True, exist_ok=True)
        (fresh.root / name).write_bytes(content)
    assert fresh.checkout() == project.git.text("rev-parse", "HEAD")


def test_only_the_facts_of_vllm_change_in_the_pin(project: SmallProject, move: Project) -> None:
    before = move.pin.read_text().splitlines()
    repin(NEW, new(project, ELSEWHERE), move)
    after = move.pin.read_text().splitlines()
    changed = [a.split(" = ")[0] for a, b in zip(after, before, strict=True) if a != b]
    assert changed == ["version", "commit", "sha256", "source_date_epoch"]


def test_there_and_back_is_byte_for_byte_the_same(project: SmallProject, move: Project) -> None:
    before, tip = files(project), project.git.text("rev-parse", "HEAD")
    # Moves every hunk of the series, so that the mails there are others.
    moved = {"vllm/long.txt": "a line before the others\n" + LONG}
    repin(NEW, new(project, moved | {"csrc/rocm/ops.h": "// Ops.\n\n\n\nvoid op();\n"}), move)
    assert set(files(project)) == set(before)
    assert sum(files(project)[name] != before[name] for name in before) == 3
    repin("0.33.0", project.root / "sdist-0.33.0" / "vllm-0.33.0.tar.gz", move)
    assert files(project) == before
    assert project.git.text("rev-parse", "HEAD") == tip


def test_series_that_needs_a_merge_is_refreshed(
    project: SmallProject, move: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    written = repin(NEW, new(project, NEAR), move)
    assert written == ["patches/0001-Name-two-lines.patch", "pin.toml"]
    assert " line three of" in (project.folders.patches / "0001-Name-two-lines.patch").read_text()
    assert "0001-Name-two-lines.patch: fuzz" in capsys.readouterr().out


def test_patch_that_is_there_already_is_dropped(project: SmallProject, move: Project) -> None:
    long = LONG.replace("line 5 ", "line five ").replace("line 50 ", "line fifty ")
    there = {"vllm/long.txt": long, "vllm/new/mod.py": "new = 1\n"}
    written = repin(NEW, new(project, there), move)
    assert "vllm_overlay/vllm/new/mod.py (removed)" in written
    assert [file.name for file in project.folders.patches.iterdir()] == [
        "0001-ROCm-Declare-the-second-op.patch"
    ]
    assert "new = 1" in project.tree_files()["vllm/new/mod.py"]


def test_conflict_stops_with_the_hunk_named_and_nothing_written(
    project: SmallProject, move: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = stopped(project, move, SAME)
    assert "patches/0001-Name-two-lines.patch conflicts with vLLM 0.34.0 in vllm/long.txt" in fault
    assert "make repin VLLM=0.34.0" in fault and "make repin ABORT=1" in fault
    out = capsys.readouterr().out
    assert "vllm/long.txt: hunk 2 (@@ -48,7 +48,7 @@" in out and "hunk 1" not in out
    assert "    -line 50 of the long file\n    +line L of the long file\n" in out
    assert "<<<<<<< " in (project.tree / "vllm" / "long.txt").read_text()


def test_abort_puts_everything_back(project: SmallProject, move: Project) -> None:
    before, tip = files(project), project.git.text("rev-parse", "HEAD")
    stopped(project, move, SAME)
    project.write({"vllm/long.txt": "half put right\n"})
    abort(move)
    assert files(project) == before
    assert project.git.text("rev-parse", "HEAD") == tip == project.checkout()
    assert project.git.text("status", "--porcelain") == ""
    assert project.refresh() == []
    assert "0.33.0" in (project.tree / "vllm" / "_version.py").read_text()


def put_right(project: SmallProject) -> None:
    """Ends the conflict as git says, by a developer."""
    text = LONG.replace("line 5 ", "line five ").replace("line 50 ", "line fifty, L ")
    project.write({"vllm/long.txt": text})
    project.developer_git("add", "vllm/long.txt")
    project.developer_git("-c", "core.editor=true", "cherry-pick", "--continue")


def test_move_goes_on_when_the_conflict_is_put_right(project: SmallProject, move: Project) -> None:
    stopped(project, move, SAME)
    put_right(project)
    repin(NEW, None, move)
    mail = (project.folders.patches / "0001-Name-two-lines.patch").read_text()
    assert "From: A Developer <dev@example.com>\nDate: Fri, 15 Jan 2027" in mail
    assert "-line L of the long file\n+line fifty, L of the long file\n" in mail
    assert "Why here: a test." in mail and "Overlay: vllm/new/mod.py" in mail
    assert "void second();" in project.tree_files()["csrc/rocm/ops.h"]
    project.pin = load_pin(move.pin)
    assert project.refresh() == []


def test_patch_skipped_at_a_stop_is_dropped(project: SmallProject, move: Project) -> None:
    stopped(project, move, SAME)
    project.developer_git("cherry-pick", "--skip")
    repin(NEW, None, move)
    assert len(list(project.folders.patches.iterdir())) == 1
    assert not (project.folders.overlay / "vllm" / "new" / "mod.py").exists()


def test_going_on_before_the_conflict_is_committed_is_refused(
    project: SmallProject, move: Project
) -> None:
    stopped(project, move, SAME)
    with pytest.raises(Fault, match="not committed yet"):
        repin(NEW, None, move)
    with pytest.raises(Fault, match=r"a move to 0\.34\.0 is under way"):
        repin("0.35.0", None, move)


def test_checkout_and_refresh_leave_a_stopped_move_alone(
    project: SmallProject, move: Project
) -> None:
    stopped(project, move, SAME)
    for command in (project.checkout, project.refresh):
        with pytest.raises(Fault, match="make repin ABORT=1"):
            command()


def test_series_changed_during_a_stop_is_told(project: SmallProject, move: Project) -> None:
    stopped(project, move, SAME)
    put_right(project)
    (project.folders.overlay / "vllm" / "new" / "mod.py").write_text("new = 2\n")
    with pytest.raises(Fault, match="changed since the move began"):
        repin(NEW, None, move)


class Killed(Exception):
    """Stands for the run's end at some place."""


@pytest.mark.parametrize("place", ["write", "_place_refs", "_forget", "pick", "export"])
@pytest.mark.parametrize("then", ["again", "back"])
def test_killed_move_is_finished_or_undone(
    project: SmallProject, move: Project, monkeypatch: pytest.MonkeyPatch, place: str, then: str
) -> None:
    before, tip = files(project), project.git.text("rev-parse", "HEAD")
    archive = new(project, NEAR | {"vllm/short.py": "first = 0\n"})
    real = getattr(module, place)
    calls = []

    def killed(*arguments: object) -> object:
        calls.append(place)
        # The second patch; and of the writing steps, once they are half done.
        if place == "pick" and len(calls) == 1:
            return real(*arguments)
        if place in ("write", "_place_refs"):
            real(*arguments)
        raise Killed

    monkeypatch.setattr(module, place, killed)
    with pytest.raises(Killed):
        repin(NEW, archive, move)
    monkeypatch.undo()
    if then == "back":
        abort(move)
        assert files(project) == before
        assert project.git.text("rev-parse", "HEAD") == tip
    else:
        repin(NEW, None, move)
        assert load_pin(move.pin).version == NEW
        project.pin = load_pin(move.pin)
        assert project.refresh() == []
    assert project.git.text("status", "--porcelain") == ""


def test_nothing_to_abort_is_told(move: Project) -> None:
    with pytest.raises(Fault, match="nothing to end"):
        abort(move)


def test_other_versions_file_is_refused(project: SmallProject, move: Project) -> None:
    before = files(project)
    with pytest.raises(Fault, match=r"is vLLM 0\.34\.0, not 0\.35\.0"):
        repin("0.35.0", new(project, ELSEWHERE), move)
    with pytest.raises(Fault, match="no version of vLLM"):
        repin("main", None, move)
    with pytest.raises(Fault, match=r"the pin is vLLM 0\.33\.0 already"):
        repin("0.33.0", None, move)
    broken = new(project, ELSEWHERE)
    broken.write_bytes(broken.read_bytes()[:-20])
    with pytest.raises(Fault, match="not a whole source distribution"):
        repin(NEW, broken, move)
    assert files(project) == before and not move.work.exists()


def test_cached_release_that_changed_is_not_trusted(
    project: SmallProject, move: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scripts import fetch

    asked = []

    def download(version: str, folder: Path, python: str) -> Path:
        asked.append(version)
        copy = folder / f"vllm-{version}.tar.gz"
        copy.write_bytes(new(project, ELSEWHERE).read_bytes())
        return copy

    monkeypatch.setattr(fetch, "download", download)
    (move.cache / f"vllm-{NEW}.tar.gz").write_bytes(b"half")
    repin(NEW, None, move)
    assert asked == [NEW]
    assert load_pin(move.pin).version == NEW


def test_abort_and_version_together_are_refused() -> None:
    from tests.packaging.test_front_door import make

    done = make("repin", "VLLM=0.32.0", "ABORT=1", "PYTHON=python3")
    assert done.returncode != 0 and "not both" in done.stderr
    assert not (paths.BUILD / "repin").exists()
