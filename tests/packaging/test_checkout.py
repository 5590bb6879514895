"""build/vllm: the same commits everywhere, nothing lost, and a clear word on what does not fit."""

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest

from scripts import checkout as module
from scripts.checkout import APPLIED, PENDING
from scripts.errors import Fault
from scripts.fetch import unpack
from scripts.git import Git
from tests.packaging.small_project import LONG, VLLM, SmallProject


def copy_of(project: SmallProject, root: Path) -> SmallProject:
    """Another project folder with the same series and source."""
    other = SmallProject(root)
    other.pin = project.pin
    other.sdist.write_bytes(project.sdist.read_bytes())
    for name, content in project.snapshot().items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return other


def patch_file(project: SmallProject, number: int) -> Path:
    return sorted(project.folders.patches.iterdir())[number - 1]


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def test_base_is_upstreams_tree_with_the_files_it_ignores(project: SmallProject) -> None:
    assert project.checkout() == project.git.text("rev-parse", "base^{commit}")
    assert set(project.git.files("base")) == set(VLLM)
    assert project.git.files("base")["run.sh"][0] == "100755"
    assert project.git.text("status", "--porcelain") == ""


def test_version_file_is_there_and_not_committed(project: SmallProject) -> None:
    project.checkout()
    scope: dict[str, object] = {}
    exec((project.tree / "vllm" / "_version.py").read_text(), scope)
    assert scope["__version__"] == project.pin.version == "0.33.0"
    assert scope["__version_tuple__"] == (0, 33, 0)
    (project.tree / "vllm" / "_version.py").unlink()
    project.checkout()
    assert (project.tree / "vllm" / "_version.py").exists()


def test_one_commit_per_patch_with_its_own_files(project: SmallProject) -> None:
    project.with_series()
    changed = project.git.text("log", "--reverse", "--name-only", "--format=%s", "base..HEAD")
    assert changed.split("\n\n") == [
        "Name two lines",
        "vllm/long.txt\nvllm/new/mod.py\n[ROCm] Declare the second op",
        "csrc/rocm/ops.h\ncsrc/rocm/second/op.cpp\ncsrc/rocm/second/op.h",
    ]


def test_two_folders_and_two_users_get_the_same_commits(
    project: SmallProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tip = project.with_series()
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (hooks / "pre-commit").chmod(0o755)
    config = tmp_path / ".gitconfig"
    config.write_text(
        "[user]\n name = Somebody\n email = else@example.com\n[core]\n autocrlf = true\n"
        f" hooksPath = {hooks}\n[commit]\n gpgSign = true\n[diff]\n noprefix = true\n"
        "[format]\n signature = mine\n[apply]\n whitespace = fix\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody")
    monkeypatch.setenv("GIT_DIR", "/no/such/folder")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert copy_of(project, tmp_path / "other").checkout() == tip


def test_sdist_and_repository_give_the_same_tree(
    project: SmallProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.checkout()
    tree = project.git.text("rev-parse", "base^{tree}")
    folder = tmp_path / "repository"
    folder.mkdir()
    unpack(project.sdist, folder)
    git = Git(folder, project.pin.source_date_epoch)
    git.bytes("init", "--quiet", "--template=")
    git.bytes("add", "--all", "--force", ".")
    git.bytes("commit", "--quiet", "--message=vLLM")
    project.pin = dataclasses.replace(project.pin, commit=git.text("rev-parse", "HEAD")[:9])
    project.sdist.unlink()
    monkeypatch.setenv("VLLM_GIT", str(folder))
    project.checkout()
    assert "Source: git commit" in project.git.text("log", "-1", "--format=%B", "base")
    assert project.git.text("rev-parse", "base^{tree}") == tree
    # The next run needs neither the variable nor a download.
    monkeypatch.delenv("VLLM_GIT")
    project.checkout()


def test_up_to_date_tree_is_left_alone(
    project: SmallProject, capsys: pytest.CaptureFixture[str]
) -> None:
    tip = project.with_series()
    before = {file: file.stat().st_mtime_ns for file in project.tree.rglob("*.txt")}
    index = (project.tree / ".git" / "refs" / "heads" / "series").stat().st_mtime_ns
    capsys.readouterr()
    assert project.checkout() == tip
    assert capsys.readouterr().out.rstrip().endswith("2 patches: up to date")
    assert {file: file.stat().st_mtime_ns for file in project.tree.rglob("*.txt")} == before
    assert (project.tree / ".git" / "refs" / "heads" / "series").stat().st_mtime_ns == index


def test_changed_overlay_file_reaches_the_tree(project: SmallProject) -> None:
    project.with_series()
    edit(project.folders.overlay / "vllm" / "new" / "mod.py", "1", "2")
    (project.folders.csrc / "second" / "op.h").chmod(0o755)
    project.checkout()
    assert (project.tree / "vllm" / "new" / "mod.py").read_text() == "new = 2\n"
    assert project.git.files("HEAD")["csrc/rocm/second/op.h"][0] == "100755"


def test_dropped_patch_leaves_the_tree(project: SmallProject) -> None:
    project.with_series()
    patch_file(project, 2).unlink()
    project.checkout()
    assert not (project.tree / "csrc" / "rocm" / "second").exists()
    assert (project.tree / "csrc" / "rocm" / "ops.h").read_text() == VLLM["csrc/rocm/ops.h"]


def test_moved_pin_gets_a_new_base(project: SmallProject) -> None:
    project.with_series()
    project.upstream_becomes(VLLM | {"vllm/short.py": "other = 1\n"})
    project.checkout()
    assert (project.tree / "vllm" / "short.py").read_text() == "other = 1\n"
    assert project.git.text("rev-list", "--count", "base..HEAD") == "2"


def test_unclaimed_file_is_left_out_and_named(
    project: SmallProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project.with_series()
    (project.folders.overlay / "vllm" / "stray.py").write_text("")
    (project.folders.csrc / "runtime").mkdir()
    (project.folders.csrc / "runtime" / "loader.cpp").write_text("")
    project.checkout()
    out = capsys.readouterr().out
    assert "vllm_overlay/vllm/stray.py: no patch claims it" in out
    assert "runtime" not in out


# What does not apply.


def refused(project: SmallProject) -> str:
    """The message with which the checkout is refused."""
    with pytest.raises(Fault) as caught:
        project.checkout()
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_changed_upstream_file_is_told_with_its_hunk(project: SmallProject) -> None:
    project.with_series()
    project.upstream_becomes(VLLM | {"vllm/long.txt": LONG.replace("line 50 ", "line L ")})
    message = refused(project)
    name = f"patches/{patch_file(project, 1).name}"
    assert message.startswith(f"{name}: vllm/long.txt: hunk 2 (@@ -48,7 +48,7 @@")
    assert "upstream has changed the file" in message
    assert "make refresh" in message


def test_upstream_change_elsewhere_in_the_file_does_not_matter(project: SmallProject) -> None:
    project.with_series()
    project.upstream_becomes(VLLM | {"vllm/long.txt": "a new first line\n" + LONG})
    project.checkout()
    text = (project.tree / "vllm" / "long.txt").read_text()
    assert text.startswith("a new first line\n") and "line fifty " in text


def test_removed_upstream_file_is_told(project: SmallProject) -> None:
    project.with_series()
    project.upstream_becomes({k: v for k, v in VLLM.items() if k != "csrc/rocm/ops.h"})
    message = refused(project)
    assert f"patches/{patch_file(project, 2).name}: csrc/rocm/ops.h: the file is not in" in message
    assert "upstream has moved or removed it" in message


def test_edited_context_is_a_broken_patch(project: SmallProject) -> None:
    project.with_series()
    edit(patch_file(project, 1), " line 49 of", " line 49 off")
    message = refused(project)
    assert "vllm/long.txt: hunk 2" in message and "is the one that the patch was made" in message
    assert "the patch is broken" in message and "git checkout patches/0001" in message


def test_hunk_that_does_not_count_up_is_a_broken_patch(project: SmallProject) -> None:
    project.with_series()
    edit(patch_file(project, 1), "+line fifty of the long file\n", "")
    message = refused(project)
    assert "hunk 2 (@@ -48,7 +48,7 @@" in message and "counts 7 lines" in message
    assert "the patch is broken" in message


def test_truncated_mail_is_a_broken_patch(project: SmallProject) -> None:
    project.with_series()
    file = patch_file(project, 2)
    file.write_text(file.read_text().rsplit("+void second();", 1)[0])
    message = refused(project)
    assert file.name in message and "csrc/rocm/ops.h: hunk 1" in message
    assert "the patch is broken" in message


def test_what_is_no_mail_is_refused(project: SmallProject) -> None:
    project.checkout()
    (project.folders.patches / "0001-x.patch").write_text("--- a/vllm/short.py\n")
    assert "patches/0001-x.patch: the mail has no Author" in refused(project)


def test_file_changed_by_an_earlier_patch_is_told(project: SmallProject) -> None:
    project.with_series()
    project.commit("Third\n", {"vllm/long.txt": LONG.replace("line 5 ", "line V ")})
    project.refresh()
    first, third = patch_file(project, 1), patch_file(project, 3)
    edit(first, "+line five of", "+line cinq of")
    # Its blobs would let git merge it; a fresh clone does not have them.
    other = copy_of(project, project.root / "other")
    message = refused(other)
    assert message.startswith(f"patches/{third.name}: vllm/long.txt: hunk 1")
    assert "an earlier patch leaves the file other" in message


def test_refused_patch_leaves_the_tree_as_it_was(project: SmallProject) -> None:
    tip = project.with_series()
    edit(patch_file(project, 2), " void op();", " void opp();")
    refused(project)
    assert project.git.text("rev-parse", "HEAD") == tip
    assert project.git.text("status", "--porcelain") == ""


def test_claim_that_names_nothing_is_refused(project: SmallProject) -> None:
    project.with_series()
    (project.folders.overlay / "vllm" / "new" / "mod.py").unlink()
    message = refused(project)
    assert "`Overlay: vllm/new/mod.py` names no file under vllm_overlay/" in message


def test_file_claimed_twice_is_refused(project: SmallProject) -> None:
    project.with_series()
    edit(patch_file(project, 2), "Test: tests/c.py\n", "Test: tests/c.py\nOverlay: vllm/new/*\n")
    message = refused(project)
    assert "0002" in message and "which patches/0001" in message and "claims already" in message


def test_overlay_over_an_upstream_file_is_refused(project: SmallProject) -> None:
    project.with_series()
    (project.folders.overlay / "vllm" / "short.py").write_text("")
    edit(patch_file(project, 2), "Test: tests/c.py\n", "Test: tests/c.py\nOverlay: vllm/s*.py\n")
    assert "claims short.py for vllm/short.py, which is there already" in refused(project)


# What must not be lost.


def test_uncommitted_changes_are_kept(project: SmallProject) -> None:
    project.with_series()
    project.write({"vllm/short.py": "mine = 1\n"})
    message = refused(project)
    assert "not committed (vllm/short.py)" in message and "make refresh" in message
    assert (project.tree / "vllm" / "short.py").read_text() == "mine = 1\n"


def test_new_files_are_kept(project: SmallProject) -> None:
    project.with_series()
    project.write({"vllm/mine.py": "mine = 1\n"})
    project.upstream_becomes(VLLM | {"vllm/short.py": "other = 1\n"})
    assert "vllm/mine.py" in refused(project)
    assert (project.tree / "vllm" / "mine.py").exists()


def test_commits_not_written_back_are_kept(project: SmallProject) -> None:
    project.with_series()
    project.commit("Mine\n", {"vllm/short.py": "mine = 1\n"})
    mine = project.git.text("rev-parse", "HEAD")
    edit(project.folders.overlay / "vllm" / "new" / "mod.py", "1", "2")
    message = refused(project)
    assert "commits that are not in patches/" in message
    assert "make refresh" in message and f"reset --hard {APPLIED}" in message
    assert project.git.text("rev-parse", "HEAD") == mine


def test_another_branch_is_kept(project: SmallProject) -> None:
    project.with_series()
    project.developer_git("switch", "--quiet", "--create", "stage")
    assert "is on stage; go back with" in refused(project)


def test_folder_of_another_kind_is_kept(project: SmallProject) -> None:
    project.tree.mkdir()
    (project.tree / "precious").write_text("")
    assert "not a checkout that this made" in refused(project)
    assert (project.tree / "precious").exists()


# What was interrupted.


class Killed(Exception):
    """Stands for the run's end at some place."""


def test_run_killed_while_unpacking_is_picked_up(
    project: SmallProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(archive: Path, folder: Path) -> None:
        (folder / "half").write_text("half")
        raise Killed

    monkeypatch.setattr(module, "unpack", half)
    with pytest.raises(Killed):
        project.checkout()
    monkeypatch.undo()
    project.checkout()
    assert set(project.git.files("base")) == set(VLLM)
    assert not (project.tree / "half").exists()


def test_run_killed_while_moving_is_picked_up(project: SmallProject, tmp_path: Path) -> None:
    old = project.with_series()
    edit(project.folders.overlay / "vllm" / "new" / "mod.py", "1", "2")
    new = copy_of(project, tmp_path / "other").checkout()
    # As a killed `reset --hard` leaves it: one file written, the branch not moved, a lock.
    project.git.bytes("fetch", "--quiet", str(tmp_path / "other" / "vllm"), new)
    project.git.bytes("update-ref", PENDING, new)
    project.write({"vllm/new/mod.py": "new = 2\n"})
    (project.tree / ".git" / "index.lock").write_text("")
    assert project.git.text("rev-parse", "HEAD") == old
    assert project.checkout() == new
    assert project.git.text("status", "--porcelain") == ""
    assert project.git.commit_id(PENDING) is None


def test_change_made_after_a_killed_run_is_kept(project: SmallProject) -> None:
    project.with_series()
    project.git.bytes("update-ref", PENDING, "HEAD~1")
    project.write({"vllm/short.py": "mine = 1\n"})
    assert "vllm/short.py has changes of yours" in refused(project)
    assert (project.tree / "vllm" / "short.py").read_text() == "mine = 1\n"


@pytest.mark.slow
def test_fresh_clone_makes_the_real_checkout(checkout: Path, tmp_path: Path) -> None:
    """From a copy of this repository's series, elsewhere, with the cached source."""
    from scripts import paths
    from scripts.pin import load_pin

    tree = tmp_path / "vllm"
    env = os.environ | {"HOME": str(tmp_path)}
    code = (
        "from pathlib import Path; from scripts.checkout import checkout; "
        "from scripts.pin import load_pin; import sys; "
        "print(checkout(load_pin(), Path(sys.argv[1])))"
    )
    done = subprocess.run(
        ["python3", "-c", code, str(tree)],
        cwd=paths.ROOT, env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    epoch = load_pin().source_date_epoch
    assert done.stdout.split()[-1] == Git(checkout, epoch).text("rev-parse", "HEAD")
