"""What `make lint` says about a patch's mail, with its line; and about what no patch claims."""

import re
from pathlib import Path

import pytest

from scripts import lint_vllm, patch_form
from scripts.errors import Fault
from scripts.linters import layout_faults
from scripts.pin import load_pin
from scripts.refresh import stale
from scripts.series import Patch, load_series
from tests.packaging.small_project import SmallProject

MAIL = """\
From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: A Developer <dev@example.com>
Date: Fri, 15 Jan 2027 10:00:00 +0200
Subject: [PATCH] Name a line

It had a number.

Why here: upstream has the fault; goes away when upstream takes it.
Test: tests/test_lines.py::test_names[one]

diff --git a/vllm/long.txt b/vllm/long.txt
index 0123456789012345678901234567890123456789..1123456789012345678901234567890123456789 100644
--- a/vllm/long.txt
+++ b/vllm/long.txt
@@ -1,3 +1,3 @@
 line 0
-line 1
+line one
 line 2
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with the test that the mail names."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_lines.py").write_text("def test_names(name): ...\n")
    return tmp_path


def faults(root: Path, mail: str, name: str = "0001-Name-a-line.patch") -> list[str]:
    return patch_form.faults(Patch(root / name, mail.encode(), {}), 1, root)


def test_good_patch_has_no_fault(root: Path) -> None:
    assert faults(root, MAIL) == []


@pytest.mark.parametrize(
    ("old", "new", "line", "fault"),
    [
        ("From 0", "From: 0", 1, "not a `git format-patch` mail"),
        ("[PATCH] ", "", 4, "no `Subject: [PATCH] ...`"),
        ("Name a line", "Name a line.", 4, "ends in a full stop"),
        ("Name a line", "name a line", 4, "capital letter"),
        ("Name a line", "Name" + " a line" * 10, 4, "has 74 characters, 72 at most"),
        ("It had a number.", "It had a number. ", 6, "ends in white space"),
        ("Why here: up", "Reason: up", 9, "`Why here:`"),
        (": upstream has the fault; goes away when upstream takes it.", ":", 9, "`Why here:`"),
        ("; goes away when upstream takes it.", ".", 8, "does not say when the patch goes"),
        ("It had a number.", "Overlay: vllm/a.py\nOverlay: vllm/a.py", 7, "is in line 6 already"),
        (
            "Test: tests",
            "Test: tests/test_lines.py\nTest: tests/test_lines.py\nTest: tests",
            10,
            "9",
        ),
        ("+line one", "+line one\ndiff --git a/vllm/long.txt b/vllm/long.txt", 19, "11 already"),
        ("Test: ", "Tested: ", 9, "no `Test:` line"),
        ("Test: tests/test_lines.py", "Test: tests/test_gone.py", 9, "there is no tests/test_gone"),
        ("::test_names", "::test_name", 9, "tests/test_lines.py has no test_name"),
        ("Test: ", "Test: run ", 9, "one test a line"),
        ("+line one", "+line one ", 18, "an added line ends in white space"),
        ("+line one", "+line\tone", 18, "an added line has a tab"),
    ],
)
def test_fault_is_told_with_its_line(root: Path, old: str, new: str, line: int, fault: str) -> None:
    assert old in MAIL
    (found,) = faults(root, MAIL.replace(old, new, 1))
    assert found.startswith(f"patches/0001-Name-a-line.patch:{line}: ")
    assert fault in found


def test_white_space_that_was_there_before_is_no_fault(root: Path) -> None:
    assert faults(root, MAIL.replace(" line 0", " line 0\t ").replace("-line 1", "-line 1 ")) == []


@pytest.mark.parametrize("name", ["0002-Name-a-line.patch", "1-a.patch", "Name.patch"])
def test_number_that_is_not_its_place_is_told(root: Path, name: str) -> None:
    (found,) = faults(root, MAIL, name)
    assert found.startswith(f"patches/{name}:1: its name does not start with 0001-")


def test_mail_edited_by_hand_is_told(project: SmallProject) -> None:
    project.with_series()
    assert stale(project.pin, project.tree, project.folders) == []
    file = sorted(project.folders.patches.iterdir())[1]
    file.write_text(file.read_text() + "-- \n2.40.0\n")
    project.checkout()
    assert stale(project.pin, project.tree, project.folders) == [f"patches/{file.name}"]


def test_reason_may_go_on_over_lines(root: Path) -> None:
    mail = MAIL.replace("fault; goes away", "fault, and this\nis a long reason; goes away")
    assert faults(root, mail) == []


def test_files_beside_the_mails_and_gaps_in_the_series_are_told(project: SmallProject) -> None:
    project.with_series()
    folder = project.folders.patches
    (folder / "0001-Name-two-lines.patch.orig").write_text("")
    (folder / "0002-ROCm-Declare-the-second-op.patch").rename(folder / "0003-Later.patch")
    found = patch_form.series_faults(load_series(project.folders), folder, project.root)
    assert "patches/0001-Name-two-lines.patch.orig:1: is no mail of the series" in found
    assert any(f.startswith("patches/0003-Later.patch:1: ") and "0002-" in f for f in found)


def test_unclaimed_files_are_told_but_for_those_that_stay_here(project: SmallProject) -> None:
    project.with_series()
    (project.folders.overlay / "vllm" / "stray.py").write_text("")
    (project.folders.csrc / "stray.h").write_text("")
    (project.folders.csrc / "runtime").mkdir()
    (project.folders.csrc / "runtime" / "loader.cpp").write_text("")
    assert load_series(project.folders).unclaimed == ("vllm_overlay/vllm/stray.py", "csrc/stray.h")


HOOKS = """\
repos:
- repo: https://example.com/astral-sh/ruff-pre-commit
  rev: v{ruff}
- repo: https://example.com/crate-ci/typos
  rev: v{typos}
- repo: https://example.com/pre-commit/mirrors-clang-format
  rev: v{clang_format}
    additional_dependencies: ["mypy=={mypy}", regex, "pydantic=={pydantic}"]
"""


def hooks(**other: str) -> str:
    """vLLM's hooks with the pin's versions, but for those given."""
    tools = {name.replace("-", "_"): version for name, version in load_pin().tools.items()}
    return HOOKS.format(**(tools | other))


def test_pin_that_agrees_with_vllms_hooks_has_no_fault() -> None:
    assert lint_vllm.version_faults(load_pin(), hooks()) == []


def test_linter_of_another_version_than_vllms_is_told_with_its_line() -> None:
    (found,) = lint_vllm.version_faults(load_pin(), hooks(clang_format="99.1"))
    match = re.fullmatch(r"pin.toml:(\d+): clang-format is (\S+), vLLM's \S+ has 99.1", found)
    assert match is not None and match[2] == load_pin().tools["clang-format"]
    row = Path("pin.toml").read_text().split("\n")[int(match[1]) - 1]
    assert row == f'clang-format = "{match[2]}"'


def test_hooks_without_a_linter_are_told() -> None:
    with pytest.raises(Fault, match="no version of typos"):
        lint_vllm.version_faults(load_pin(), hooks().replace("crate-ci/typos", "other"))


def test_layout_is_told_with_file_and_line() -> None:
    diff = ["--- scripts/a.py", "+++ scripts/a.py", "@@ -12,7 +12,8 @@", " x", "-y", "+z"]
    assert [line.split(" ")[0] for line in layout_faults(diff)] == ["scripts/a.py:12:"]


def test_files_are_named_where_they_are_edited() -> None:
    ours = {"vllm/new.py", "csrc/rocm/op/op.h"}
    assert lint_vllm.at_home("vllm/new.py:1:2: E501", ours) == "vllm_overlay/vllm/new.py:1:2: E501"
    assert lint_vllm.at_home("csrc/rocm/op/op.h:3:1: error", ours) == "csrc/op/op.h:3:1: error"
    assert lint_vllm.at_home("Found it.", ours) == "Found it."
