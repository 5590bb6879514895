"""`make compat`: how each patch fits another vLLM, which hunk does not, and what can be tested."""

import dataclasses
import datetime
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.compat import tests as module
from scripts.compat.__main__ import find_target
from scripts.compat.fit import Side, fit_series
from scripts.compat.report import Report, as_markdown
from scripts.errors import Fault
from scripts.pin import load_pin
from scripts.release import Release, find_release, from_repository
from scripts.scratch import copy_to
from scripts.series import Folders, Patch
from scripts.transplant import Fit, State
from tests.packaging.small_project import LONG, VLLM, SmallProject
from tests.packaging.small_releases import NEW, facts, sdist

TODAY = datetime.date(2027, 1, 2)


@pytest.fixture
def series(project: SmallProject) -> SmallProject:
    project.with_series()
    return project


def side(project: SmallProject) -> Side:
    return Side(project.pin, project.tree, project.folders)


def fitted(project: SmallProject, release: Release) -> tuple[list[Fit], Side]:
    root = project.root / "other"
    folders = Folders(root / "patches", root / "vllm_overlay", root / "csrc")
    for name in ("patches", "vllm_overlay", "csrc"):
        shutil.copytree(project.root / name, root / name)
    other = Side(release.pin(project.pin), root / "vllm", folders)
    return fit_series(side(project), release, other), other


def tried(project: SmallProject, changes: dict[str, str | None]) -> tuple[list[Fit], Side]:
    """The series on a vLLM with these changes (None: without the file), and what became of it."""
    new = {name: text for name, text in (VLLM | changes).items() if text is not None}
    release = find_release(NEW, sdist(project.root, NEW, new), project.cache)
    return fitted(project, release)


def states(fits: list[Fit]) -> list[str]:
    return [fit.state.value for fit in fits]


def test_unrelated_changes_leave_every_patch_clean(series: SmallProject) -> None:
    before = series.snapshot()
    fits, other = tried(series, {"vllm/short.py": "", "vllm/long.txt": "first\n" + LONG})
    assert states(fits) == ["clean", "clean"]
    assert "line five of" in (other.checkout / "vllm/long.txt").read_text()
    assert (other.checkout / "csrc/rocm/second/op.h").exists()
    assert series.snapshot() == before


def test_changes_beside_a_hunk_are_fuzz(series: SmallProject) -> None:
    fits, other = tried(series, {"vllm/long.txt": LONG.replace("line 3 ", "line three ")})
    assert states(fits) == ["fuzz", "clean"]
    text = (other.checkout / "vllm/long.txt").read_text()
    assert "line three of" in text and "line five of" in text


def test_patch_that_upstream_has_is_already_there(series: SmallProject) -> None:
    there = {name: series.tree_files()[name] + "\n" for name in series.git.files("HEAD")}
    fits, _ = tried(series, {n: there[n] for n in there if n.startswith("csrc/")})
    assert states(fits) == ["clean", "already there"]


def test_conflict_is_in_its_hunk_with_upstreams_lines(series: SmallProject) -> None:
    text = LONG.replace("line 50 ", "line L ").replace("line 30 ", "line thirty ")
    fits, other = tried(series, {"vllm/long.txt": text})
    assert states(fits) == ["conflict", "clean"]
    (conflict,) = fits[0].conflicts
    assert conflict.path == "vllm/long.txt"
    assert conflict.reason.startswith("hunk 2 (@@ -48,7 +48,7 @@")
    assert conflict.changed == (
        "@@ line 51, now line 51 @@",
        "-line 50 of the long file",
        "+line L of the long file",
    )
    # The patch is left out whole, with its files.
    assert (other.checkout / "vllm/long.txt").read_text() == text
    assert not (other.checkout / "vllm/new").exists()
    assert [file.name for file in other.folders.patches.iterdir()] == [
        "0001-ROCm-Declare-the-second-op.patch"
    ]
    assert not (other.folders.overlay / "vllm/new/mod.py").exists()


@pytest.mark.parametrize("hunk", [1, 2])
def test_each_hunk_is_told_apart(series: SmallProject, hunk: int) -> None:
    line = {1: "line 5 ", 2: "line 50 "}[hunk]
    fits, _ = tried(series, {"vllm/long.txt": LONG.replace(line, "line other ")})
    assert [c.reason.split(" (")[0] for c in fits[0].conflicts] == [f"hunk {hunk}"]


def test_file_that_upstream_removed_or_has_by_now_is_told(series: SmallProject) -> None:
    fits, _ = tried(
        series, {"vllm/long.txt": None, "csrc/rocm/second/op.h": "// Upstream's own.\n"}
    )
    assert [[(c.path, c.reason) for c in fit.conflicts] for fit in fits] == [
        [("vllm/long.txt", "vLLM has removed or moved the file")],
        [("csrc/rocm/second/op.h", "the patch adds the file, and vLLM has one of that name")],
    ]


def test_file_that_upstream_moved_is_followed(series: SmallProject) -> None:
    fits, other = tried(series, {"vllm/long.txt": None, "vllm/moved.txt": LONG})
    assert states(fits) == ["fuzz", "clean"]
    assert "line five of" in (other.checkout / "vllm/moved.txt").read_text()


def test_later_patch_is_tried_without_one_that_conflicts(series: SmallProject) -> None:
    text = series.tree_files()["vllm/long.txt"].replace("line five ", "line V ") + "\n"
    series.commit("Third\n", {"vllm/long.txt": text})
    series.refresh()
    fits, _ = tried(series, {"vllm/long.txt": LONG.replace("line 50 ", "line L ")})
    assert states(fits) == ["conflict", "clean", "conflict"]
    text = as_markdown(report(fits))
    assert text.count("Tried without patches/0001-Name-two-lines.patch, so its") == 1
    assert "-line five of the long file\n+line 5 of the long file\n" in text


def test_git_checkout_is_tried_by_the_commit_that_it_is_on(series: SmallProject) -> None:
    folder = series.root / "clone"
    files = facts(NEW, VLLM | {"vllm/long.txt": LONG.replace("line 5 ", "line V ")})
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for command in (["init", "-q"], ["add", "-Af", "."], [*who, "commit", "-qm", "main"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    (folder / "vllm/long.txt").write_text("not committed\n")
    release = from_repository(folder, series.pin, series.cache)
    assert release.version == f"{series.pin.version}+g{release.commit[:9]}"
    fits, _ = fitted(series, release)
    assert states(fits) == ["conflict", "clean"]
    assert fits[0].conflicts[0].reason.startswith("hunk 1")


def test_target_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(Fault, match="is no version and no folder"):
        find_target("main", None)
    with pytest.raises(Fault, match="is no checkout of a git repository"):
        find_target(str(tmp_path), None)


def report(fits: list[Fit], **other: object) -> Report:
    outcome = module.Outcome(3, {}, {})
    facts = {"tests": outcome, "left_out": {}} | other
    return Report(NEW, "0.33.0", "0123456789abcdef", TODAY, fits, **facts)  # type: ignore[arg-type]


def patch(name: str, tests: str = "") -> Patch:
    return Patch(Path(name), f"Subject: x\n\n{tests}\ndiff --git".encode(), {})


def test_table_has_a_row_for_each_patch_and_says_whether_all_is_well(series: SmallProject) -> None:
    fits, _ = tried(series, {"vllm/long.txt": LONG.replace("line 50 ", "line L ")})
    bad = report(fits)
    text = as_markdown(bad)
    assert "| 0001-Name-two-lines | conflict | `vllm/long.txt`: hunk 2 (@@" in text
    assert "| 0002-ROCm-Declare-the-second-op | clean |  |" in text
    assert "```diff\n@@ line 51, now line 51 @@\n-line 50 of the long file\n" in text
    assert "3 passed, 0 failed, 0 skipped." in text
    assert not bad.is_good
    good = report([dataclasses.replace(fits[0], state=State.FUZZ, conflicts=()), fits[1]])
    assert good.is_good
    assert not report([fits[1]], tests=module.Outcome(1, {"ImportError: x": 2}, {})).is_good
    blocked = report([fits[1]], tests=module.Outcome(0, {}, {}, "ValueError: no op of _C"))
    assert not blocked.is_good
    assert "None was run; a simulated machine cannot be made of it: Val" in as_markdown(blocked)


def test_test_files_of_a_patch_that_conflicts_are_left_out(tmp_path: Path) -> None:
    for name in ("integration/test_a.py", "integration/test_b.py", "models/test_c.py"):
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / name).write_text("")
    first = patch("0001-a.patch", "Test: tests/integration/test_a.py::test_x\n")
    second = patch("0002-b.patch", "Test: tests/integration/test_b.py\n")
    fits = [Fit(first, State.CLEAN), Fit(second, State.CONFLICT)]
    run, left = module.chosen(fits, tmp_path)
    assert run == ["tests/integration/test_a.py"]
    # No patch names the last one: it may need any.
    assert left == {
        "tests/integration/test_b.py": "patches/0002-b.patch",
        "tests/models/test_c.py": "patches/0002-b.patch",
    }
    assert module.chosen([Fit(first, State.FUZZ), Fit(second, State.THERE)], tmp_path)[1] == {}


def test_tests_run_in_the_copy_and_failures_are_counted_by_their_reason(tmp_path: Path) -> None:
    file = tmp_path / "tests/test_it.py"
    file.parent.mkdir()
    file.write_text(
        "import os, pathlib, pytest\n"
        "def test_passes(): assert os.environ['RDNA35_TEST_LIBRARY'] == '/the/library'\n"
        "def test_is_here(): assert pathlib.Path('tests/test_it.py').exists()\n"
        "@pytest.mark.parametrize('n', [1, 2])\n"
        "def test_fails(n): raise ImportError('cannot import name rocm')\n"
        "def test_skips(): pytest.skip('no GPU')\n"
    )
    outcome = module.run(["tests/test_it.py"], tmp_path, Path("/the/library"))
    assert outcome.passed == 2
    assert outcome.failed == {"ImportError: cannot import name rocm": 2}
    assert list(outcome.not_run.values()) == [1]
    assert (tmp_path / "tests.log").read_text().count("cannot import name") >= 2


def test_vllm_of_which_no_machine_can_be_made_is_told_once(tmp_path: Path) -> None:
    root = tmp_path / "copy"
    copy_to(root)
    tree = root / "build" / "vllm" / "csrc"
    for folder in (tree, tree / "moe"):
        folder.mkdir(parents=True)
        (folder / "torch_bindings.cpp").write_text("// Nothing is registered here.\n")
    obstacle = module.find_obstacle(root, tmp_path / "none.so")
    assert obstacle == "ValueError: no op of _C found in the bindings of build/vllm/csrc"


def test_copy_of_the_repository_runs_by_itself(tmp_path: Path) -> None:
    copy_to(tmp_path / "copy")
    code = "from scripts import paths, pin; print(paths.ROOT, pin.load_pin().version)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "copy", capture_output=True, text=True
    )
    assert done.stdout.split() == [str(tmp_path / "copy"), load_pin().version]
    assert not (tmp_path / "copy" / "build").exists()
    (tmp_path / "copy" / "left").write_text("of another run")
    copy_to(tmp_path / "copy")
    assert not (tmp_path / "copy" / "left").exists()
