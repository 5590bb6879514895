"""`make refresh`: commits become the series' files, and unchanged commits change nothing."""

import re
from pathlib import Path

import pytest

from scripts import refresh as module
from scripts.errors import Fault
from scripts.git import GitError
from tests.packaging.small_project import LONG, VLLM, SmallProject


def patches(project: SmallProject) -> dict[str, str]:
    return {file.name: file.read_text() for file in sorted(project.folders.patches.iterdir())}


def refused(project: SmallProject) -> str:
    before = project.snapshot()
    with pytest.raises(Fault) as caught:
        project.refresh()
    assert project.snapshot() == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_unchanged_checkout_changes_nothing(project: SmallProject) -> None:
    tip = project.with_series()
    before = project.snapshot()
    times = {file: file.stat().st_mtime_ns for file in project.folders.patches.iterdir()}
    assert project.refresh() == []
    assert project.snapshot() == before
    assert {file: file.stat().st_mtime_ns for file in project.folders.patches.iterdir()} == times
    assert project.git.text("rev-parse", "HEAD") == tip == project.checkout()


def test_changes_to_upstreams_files_are_hunks_and_new_files_lie_whole(
    project: SmallProject,
) -> None:
    project.with_series()
    names, texts = zip(*patches(project).items(), strict=True)
    assert names == ("0001-Name-two-lines.patch", "0002-ROCm-Declare-the-second-op.patch")
    assert texts[0].count("\n@@ ") == 2 and "mod.py" not in texts[0].split("diff --git", 1)[1]
    assert "Test: tests/a.py::test_b\nOverlay: vllm/new/mod.py\n" in texts[0]
    assert "Csrc: second/op.cpp\nCsrc: second/op.h\n" in texts[1]
    assert (project.folders.overlay / "vllm" / "new" / "mod.py").read_text() == "new = 1\n"
    assert (project.folders.csrc / "second" / "op.h").read_text() == "#pragma once\n"


def test_mail_has_no_version_no_date_of_the_run_and_three_lines_of_context(
    project: SmallProject,
) -> None:
    project.with_series()
    text = patches(project)["0002-ROCm-Declare-the-second-op.patch"]
    assert text.startswith(
        f"From {'0' * 40} Mon Sep 17 00:00:00 2001\nFrom: A Developer <dev@example.com>\n"
        "Date: Fri, 15 Jan 2027 10:00:00 +0200\nSubject: [PATCH] [ROCm] Declare the second op\n"
    )
    assert text.endswith("@@ -1 +1,2 @@\n void op();\n+void second();\n")
    assert "@@ -3,7 +3,7 @@" in patches(project)["0001-Name-two-lines.patch"]
    assert re.search(r"^index [0-9a-f]{40}\.\.[0-9a-f]{40} 100644$", text, re.MULTILINE)


def test_developers_settings_do_not_show_in_the_mails(
    project: SmallProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.with_series()
    before = project.snapshot()
    config = tmp_path / ".gitconfig"
    config.write_text(
        "[format]\n signature = mine\n subjectPrefix = MINE\n numbered = true\n attach = true\n"
        "[diff]\n noprefix = true\n context = 9\n algorithm = patience\n mnemonicPrefix = true\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    for line in config.read_text().replace("[format]\n", "").split("[diff]\n")[1].splitlines():
        name, value = line.strip().split(" = ")
        project.developer_git("config", f"diff.{name}", value)
    project.developer_git("config", "format.signature", "mine")
    project.developer_git("config", "format.filenameMaxLength", "16")
    assert project.refresh() == []
    assert project.snapshot() == before


def test_later_change_of_a_new_file_goes_into_the_file(
    project: SmallProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project.with_series()
    before = patches(project)
    project.commit("Fix the module\n", {"vllm/new/mod.py": "new = 3\n"})
    assert project.refresh() == ["vllm_overlay/vllm/new/mod.py"]
    assert (project.folders.overlay / "vllm" / "new" / "mod.py").read_text() == "new = 3\n"
    assert patches(project) == before
    assert "folded into the patch that adds its files: Fix the module" in capsys.readouterr().out
    assert project.git.text("rev-list", "--count", "base..HEAD") == "2"


def test_folder_in_a_trailer_takes_the_files_added_there_later(project: SmallProject) -> None:
    project.checkout()
    project.commit("Op\n\nCsrc: second/\n", {"csrc/rocm/second/a.h": "a\n"})
    project.commit("More\n", {"csrc/rocm/second/b.h": "b\n", "vllm/short.py": "x = 1\n"})
    project.refresh()
    first, second = patches(project).values()
    assert "Csrc: second/\n" in first and "second/b.h" not in first + second
    assert (project.folders.csrc / "second" / "b.h").read_text() == "b\n"
    assert project.refresh() == []


def test_trailers_that_name_nothing_any_more_go(project: SmallProject) -> None:
    project.with_series()
    project.commit("Drop\n", {"csrc/rocm/second/op.h": None})
    written = project.refresh()
    assert "csrc/second/op.h (removed)" in written
    message = patches(project)["0002-ROCm-Declare-the-second-op.patch"].split("diff --git")[0]
    assert "second/op.cpp" in message and "op.h" not in message
    assert not (project.folders.csrc / "second" / "op.h").exists()


def test_dropped_commit_takes_its_files_along_and_leaves_others(project: SmallProject) -> None:
    project.with_series()
    stray = project.folders.overlay / "vllm" / "stray.py"
    stray.write_text("mine\n")
    (project.folders.csrc / "runtime").mkdir()
    (project.folders.csrc / "runtime" / "own.cpp").write_text("own\n")
    project.developer_git("reset", "--quiet", "--hard", "HEAD~1")
    project.refresh()
    assert list(patches(project)) == ["0001-Name-two-lines.patch"]
    assert not (project.folders.csrc / "second").exists() or not any(
        (project.folders.csrc / "second").iterdir()
    )
    assert stray.exists() and (project.folders.csrc / "runtime" / "own.cpp").exists()


def test_removed_and_renamed_upstream_files_round_trip(project: SmallProject) -> None:
    project.checkout()
    project.commit("Remove\n", {"vllm/short.py": None})
    project.commit("Mode\n\nWhy here: a test.\n", {"run.sh": "#!/bin/sh\nexit 0\n"})
    (project.tree / "run.sh").chmod(0o644)
    project.developer_git("commit", "--quiet", "--all", "--amend", "--no-edit")
    project.refresh()
    assert "deleted file mode" in patches(project)["0001-Remove.patch"]
    assert "old mode 100755\nnew mode 100644" in patches(project)["0002-Mode.patch"]
    tip = project.git.text("rev-parse", "HEAD")
    assert project.checkout() == tip and project.refresh() == []


@pytest.mark.parametrize(
    "message",
    [
        "[ROCm][Kernel] Keep the words in brackets\n\nBody.\n",
        "A subject that is a good deal longer than a mail's header line may be, and so is folded\n",
        "Ünïcode — in the subject\n\nAnd in the body: µs, ≤.\n",
        "Lines like trailers\n\nNote: this.\n\nFrom here on there is text.\n>From quoted.\n",
    ],
)
def test_messages_round_trip(project: SmallProject, message: str) -> None:
    project.checkout()
    project.commit(message, {"vllm/short.py": "mine = 1\n"})
    project.refresh()
    assert project.git.text("log", "-1", "--format=%B").strip() == message.strip()
    assert project.refresh() == []


def test_binary_and_odd_files_round_trip(project: SmallProject) -> None:
    project.checkout()
    (project.tree / "vllm" / "long.txt").write_bytes(b"\r\nends without a line end \t\r\nx")
    (project.tree / "vllm" / "file.bin").write_bytes(bytes(range(256)))
    (project.tree / "vllm" / "short.py").write_bytes(b"\0binary\xff")
    project.commit("Odd\n", {})
    tree = project.git.text("rev-parse", "HEAD^{tree}")
    project.refresh()
    assert project.git.text("rev-parse", "HEAD^{tree}") == tree
    assert (project.folders.overlay / "vllm" / "file.bin").read_bytes() == bytes(range(256))
    assert project.refresh() == []


def test_file_name_that_no_trailer_can_hold_is_refused(project: SmallProject) -> None:
    project.checkout()
    project.commit("Space\n", {"vllm/a file.py": "x = 1\n"})
    assert "'vllm/a file.py' has a space or a glob's sign" in refused(project)


def test_uncommitted_changes_are_refused(project: SmallProject) -> None:
    project.with_series()
    project.write({"vllm/short.py": "mine = 1\n"})
    assert "not committed (vllm/short.py)" in refused(project)


def test_merges_are_refused(project: SmallProject) -> None:
    project.with_series()
    project.developer_git("switch", "--quiet", "--create", "side", "HEAD~1")
    project.commit("Side\n", {"vllm/short.py": "side = 1\n"})
    project.developer_git("switch", "--quiet", "series")
    project.developer_git("merge", "--quiet", "--no-edit", "side")
    assert "has a merge" in refused(project)


def test_series_changed_since_the_checkout_is_not_overwritten(project: SmallProject) -> None:
    project.with_series()
    (project.folders.overlay / "vllm" / "new" / "mod.py").write_text("new = 'edited here'\n")
    assert "have changed since build/vllm was made; run `make checkout`" in refused(project)
    project.commit("Mine\n", {"vllm/short.py": "mine = 1\n"})
    assert "keep your commits with" in refused(project)


def test_unclaimed_file_is_not_overwritten(project: SmallProject) -> None:
    project.with_series()
    stray = project.folders.overlay / "vllm" / "stray.py"
    stray.write_text("mine = 1\n")
    project.commit("Stray\n", {"vllm/stray.py": "other = 1\n"})
    assert "vllm_overlay/vllm/stray.py is there already, claimed by no patch" in refused(project)
    stray.write_text("other = 1\n")
    assert len(project.refresh()) == 1


def test_file_in_the_folder_that_is_not_the_series_is_refused(project: SmallProject) -> None:
    project.checkout()
    project.commit("Runtime\n", {"csrc/rocm/runtime/x.cpp": "x\n"})
    assert "csrc/rocm/runtime/x.cpp would lie in csrc/runtime/" in refused(project)


def test_missing_checkout_is_told(project: SmallProject) -> None:
    assert "make it with `make checkout`" in refused(project)


def test_run_killed_while_writing_is_picked_up(
    project: SmallProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.with_series()
    long = LONG.replace("line 5 ", "line V ").replace("line 20 ", "line XX ")
    project.commit("Third\n", {"vllm/long.txt": long, "vllm/new/other.py": "o = 1\n"})
    project.commit("Fourth\n", {"vllm/new/mod.py": "new = 4\n"})
    mirror = module._mirror

    def killed(new: Path, old: Path, replaced: set[str]) -> list[str]:
        if old.name == "patches":
            raise KeyboardInterrupt
        return mirror(new, old, replaced)

    monkeypatch.setattr(module, "_mirror", killed)
    with pytest.raises(KeyboardInterrupt):
        project.refresh()
    monkeypatch.undo()
    with pytest.raises(Fault, match="commits that are not in patches/"):
        project.checkout()
    project.refresh()
    assert sorted(patches(project))[2] == "0003-Third.patch"
    assert project.git.text("rev-parse", "HEAD") == project.checkout()
    assert project.refresh() == []


def test_export_that_does_not_make_the_tree_is_not_written(
    project: SmallProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    tip = project.with_series()
    project.commit("Third\n", {"vllm/short.py": "mine = 1\n"})
    monkeypatch.setattr(module, "commit_series", lambda git, base, series: tip)
    assert "does not make the checkout's tree" in refused(project)
    with pytest.raises(GitError):
        project.git.text("rev-parse", "--verify", "--quiet", module.WRITING)


def test_series_of_no_patches_is_written_as_none(project: SmallProject) -> None:
    project.checkout()
    assert project.refresh() == []
    assert patches(project) == {}
    assert set(project.tree_files()) == set(VLLM)
