"""Where the source comes from, and that nothing but the pinned one is taken."""

import dataclasses
import hashlib
import stat
import sys
from pathlib import Path

import pytest

from scripts.errors import Fault
from scripts.fetch import Source, find_source, git_origin, read_member, sdist_origin, unpack
from scripts.git import Git
from tests.packaging.small_project import VLLM, SmallProject


def find(project: SmallProject, cache: Path | None = None, python: str = "/no/python") -> Source:
    return find_source(project.pin, cache or project.cache, python)


def tampered(project: SmallProject) -> str:
    """Changes one bit of the cached file; returns its new sha256."""
    content = bytearray(project.sdist.read_bytes())
    content[len(content) // 2] ^= 1
    project.sdist.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def fake_pip(folder: Path, body: str) -> str:
    """An interpreter whose `-m pip download --dest D` runs `body` with $dest set; its path."""
    script = folder / "python"
    script.write_text(
        '#!/bin/sh\nwhile [ "$1" != --dest ]; do shift; done\ndest=$2\n' + body, encoding="utf-8"
    )
    script.chmod(0o755)
    return str(script)


def test_cached_file_is_used_without_network(project: SmallProject) -> None:
    source = find(project)
    assert source.archive == project.sdist
    assert source.origin == sdist_origin(project.pin.sha256)


def test_tampered_cache_is_refused_with_both_hashes(project: SmallProject) -> None:
    found = tampered(project)
    with pytest.raises(Fault, match=rf"{found}.*{project.pin.sha256}.*delete the file"):
        find(project)


def test_tampered_file_is_refused_and_not_cached(
    project: SmallProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tampered(project)
    monkeypatch.setenv("VLLM_SDIST", str(project.sdist))
    with pytest.raises(Fault, match=rf"{found}.*{project.pin.sha256}"):
        find(project, tmp_path / "other")
    assert list((tmp_path / "other").iterdir()) == []


def test_given_file_is_kept_for_runs_without_the_variable(
    project: SmallProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_SDIST", str(project.sdist))
    find(project, tmp_path / "other")
    monkeypatch.delenv("VLLM_SDIST")
    source = find(project, tmp_path / "other")
    assert source.archive.read_bytes() == project.sdist.read_bytes()


def test_given_file_replaces_a_tampered_cache(
    project: SmallProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = tmp_path / "good.tar.gz"
    good.write_bytes(project.sdist.read_bytes())
    tampered(project)
    monkeypatch.setenv("VLLM_SDIST", str(good))
    assert find(project).archive.read_bytes() == good.read_bytes()


def test_missing_file_is_named(project: SmallProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_SDIST", "/no/such.tar.gz")
    with pytest.raises(Fault, match=r"VLLM_SDIST: no file /no/such.tar.gz"):
        find(project)


def test_two_sources_at_once_are_refused(
    project: SmallProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_SDIST", "a")
    monkeypatch.setenv("VLLM_GIT", "b")
    with pytest.raises(Fault, match="both VLLM_SDIST and VLLM_GIT"):
        find(project)


def test_download_is_verified_and_cached(project: SmallProject, tmp_path: Path) -> None:
    python = fake_pip(tmp_path, f'cp "{project.sdist}" "$dest"\n')
    source = find(project, tmp_path / "other", python)
    assert source.archive == tmp_path / "other" / project.pin.sdist_name
    assert find(project, tmp_path / "other").archive == source.archive


def test_wrong_download_is_refused_and_not_kept(project: SmallProject, tmp_path: Path) -> None:
    python = fake_pip(tmp_path, f'echo other > "$dest/{project.pin.sdist_name}"\n')
    with pytest.raises(Fault, match=rf"sha256 is .*{project.pin.sha256}.*was not kept"):
        find(project, tmp_path / "other", python)
    assert list((tmp_path / "other").iterdir()) == []


def test_interrupted_download_leaves_nothing_under_the_final_name(
    project: SmallProject, tmp_path: Path
) -> None:
    cut = f'head -c 100 "{project.sdist}" > "$dest/{project.pin.sdist_name}"; exit 1\n'
    with pytest.raises(Fault, match="cannot download"):
        find(project, tmp_path / "other", fake_pip(tmp_path, cut))
    assert list((tmp_path / "other").iterdir()) == []


def test_leftovers_of_a_killed_download_are_removed(project: SmallProject) -> None:
    (project.cache / "incoming-abc").mkdir()
    (project.cache / "incoming-abc" / "part").write_text("half")
    find(project)
    assert [file.name for file in project.cache.iterdir()] == [project.pin.sdist_name]


def test_pips_reason_is_passed_on(project: SmallProject, tmp_path: Path) -> None:
    python = fake_pip(tmp_path, "echo 'ERROR: no such host' >&2; exit 1\n")
    with pytest.raises(Fault, match=r"no such host.*VLLM_SDIST=<file> or VLLM_GIT=<repository>"):
        find(project, tmp_path / "other", python)


@pytest.fixture
def repository(project: SmallProject, tmp_path: Path) -> Path:
    """A git repository with the small vLLM as its tag, which the project is pinned to."""
    folder = tmp_path / "repository"
    folder.mkdir()
    unpack(project.sdist, folder)
    git = Git(folder, project.pin.source_date_epoch)
    git.bytes("init", "--quiet", "--template=")
    git.bytes("add", "--all", "--force", ".")
    git.bytes("commit", "--quiet", "--message=vLLM")
    git.bytes("tag", f"v{project.pin.version}")
    commit = git.text("rev-parse", "HEAD")
    project.pin = dataclasses.replace(project.pin, commit=commit[:9])
    return folder


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_repository_gives_the_pinned_commit_whatever_is_checked_out(
    project: SmallProject, repository: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    git = Git(repository, project.pin.source_date_epoch)
    pinned = git.text("rev-parse", "HEAD")
    (repository / "vllm" / "later.py").write_text("")
    git.bytes("add", "--all")
    git.bytes("commit", "--quiet", "--message=later")
    monkeypatch.setenv("VLLM_GIT", form.format(repository))
    project.sdist.unlink()
    source = find(project)
    assert source.origin == git_origin(pinned)
    assert read_member(source.archive, "vllm/short.py") == VLLM["vllm/short.py"]
    with pytest.raises(Fault, match=r"has no vllm/later.py"):
        read_member(source.archive, "vllm/later.py")


def test_repository_that_cannot_be_cloned_is_told_with_gits_reason(
    project: SmallProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_GIT", f"file://{tmp_path}/nowhere")
    with pytest.raises(Fault, match=r"cannot clone v0.33.0 of file:.*nowhere: fatal: "):
        find(project)
    assert [file.name for file in project.cache.iterdir()] == [project.pin.sdist_name]


def test_repository_without_the_commit_is_refused(
    project: SmallProject, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.pin = dataclasses.replace(project.pin, commit="0123456789")
    monkeypatch.setenv("VLLM_GIT", str(repository))
    with pytest.raises(Fault, match=r"has no commit 0123456789.*fetch it there"):
        find(project)


def test_unpacking_keeps_content_and_mode_and_drops_what_upstream_lacks(
    project: SmallProject, tmp_path: Path
) -> None:
    folder = tmp_path / "unpacked"
    unpack(project.sdist, folder)
    files = {str(f.relative_to(folder)): f for f in folder.rglob("*") if f.is_file()}
    assert {name: file.read_text() for name, file in files.items()} == VLLM
    assert stat.S_IMODE(files["run.sh"].stat().st_mode) == 0o755
    assert stat.S_IMODE(files["vllm/long.txt"].stat().st_mode) == 0o644


@pytest.mark.slow
def test_pip_downloads_the_real_source_distribution(tmp_path: Path) -> None:
    from scripts.pin import load_pin

    pin = load_pin()
    assert find_source(pin, tmp_path, sys.executable).archive.name == pin.sdist_name
