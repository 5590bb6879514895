"""What the series does to the package, read from a checkout's commits."""

from pathlib import Path

import pytest

from scripts.errors import Fault
from scripts.git import Git
from scripts.wheel_changes import Changes, read_changes
from tests.packaging import small_wheels
from tests.packaging.small_wheels import OVERLAY, PATCHED, PIN, REMOVED


@pytest.fixture
def changes(tmp_path: Path) -> Changes:
    """The made checkout's."""
    return small_wheels.checkout(tmp_path / "vllm")


def test_patched_added_and_removed_files_of_the_package_alone(changes: Changes) -> None:
    assert changes.patched == sorted(PATCHED)
    assert changes.added == sorted(OVERLAY)
    assert changes.removed == [REMOVED]
    assert all(name.startswith("vllm/") for name in changes.head)


def test_a_changed_mode_is_a_change(changes: Changes) -> None:
    folder = changes.git.folder
    (folder / "vllm/engine.py").chmod(0o755)
    small_wheels.commit(changes.git, {})
    after = read_changes(PIN, folder)
    assert after.patched == sorted([*PATCHED, "vllm/engine.py"])
    assert after.head["vllm/engine.py"].is_program


def test_contents_are_those_of_the_commit(changes: Changes) -> None:
    names = [*OVERLAY, *PATCHED]
    expected = {name: (changes.git.folder / name).read_bytes() for name in names}
    assert changes.contents(names) == expected
    assert changes.contents([]) == {}


def test_a_blob_knows_its_content(changes: Changes) -> None:
    name = PATCHED[0]
    data = (changes.git.folder / name).read_bytes()
    assert changes.head[name].holds(data)
    assert not changes.pin[name].holds(data)
    assert not changes.head[name].holds(data + b"\n")


def test_a_repository_with_sha256_ids_is_read_as_well(tmp_path: Path) -> None:
    git = Git(tmp_path, PIN.source_date_epoch)
    git.bytes("init", "--quiet", "--object-format=sha256", "--initial-branch=series")
    small_wheels.commit(git, {"vllm/a.py": "a = 1\n"})
    git.bytes("tag", "base")
    assert read_changes(PIN, tmp_path).head["vllm/a.py"].holds(b"a = 1\n")


@pytest.mark.parametrize("name", ["vllm/config.py", "vllm/stray.py"])
def test_edits_that_are_not_committed_are_refused_by_name(changes: Changes, name: str) -> None:
    (changes.git.folder / name).write_text("edited = True\n")
    with pytest.raises(Fault, match=f"{name} is not committed"):
        read_changes(PIN, changes.git.folder)


def test_edits_outside_the_package_do_not_matter(changes: Changes) -> None:
    (changes.git.folder / "README.md").write_text("edited\n")
    assert read_changes(PIN, changes.git.folder).patched == sorted(PATCHED)


def test_a_missing_checkout_or_base_is_told(tmp_path: Path) -> None:
    with pytest.raises(Fault, match="no checkout; run `make checkout`"):
        read_changes(PIN, tmp_path)
    git = Git(tmp_path, PIN.source_date_epoch)
    git.bytes("init", "--quiet")
    small_wheels.commit(git, {"vllm/a.py": ""})
    with pytest.raises(Fault, match="run `make checkout` again"):
        read_changes(PIN, tmp_path)
