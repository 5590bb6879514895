"""Brings the pinned vLLM source: from the cache, a file, a git repository, or PyPI.

    python -m scripts.fetch

leaves the source distribution in build/cache. It is verified by its sha256 every time, wherever
it comes from; a file under its final name is always whole.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from scripts import errors, lock, paths
from scripts.errors import Fault
from scripts.git import Git
from scripts.pin import Pin, load_pin

# Written by the tools that make a source distribution; upstream's tree does not have them.
SDIST_ONLY = ("PKG-INFO", "setup.cfg", "vllm.egg-info", "vllm/_version.py")


@dataclass(frozen=True)
class Source:
    """A tar file with vLLM's tree under one top folder, and where that comes from."""

    archive: Path
    origin: str


def sdist_origin(sha256: str) -> str:
    """What identifies a tree that comes from the source distribution of that sha256."""
    return f"sdist sha256 {sha256}"


def git_origin(commit: str) -> str:
    """What identifies a tree that comes from a git repository."""
    return f"git commit {commit}"


def sha256_of(path: Path) -> str:
    """Hex sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_source(pin: Pin, cache: Path = paths.CACHE, python: str = sys.executable) -> Source:
    """The pinned source, fetched where it is not in `cache` yet.

    VLLM_SDIST and VLLM_GIT, where set, say where from. `python` is the interpreter whose pip
    downloads. Raises Fault for a source that is not the pinned one.
    """
    file, repository = os.environ.get("VLLM_SDIST"), os.environ.get("VLLM_GIT")
    if file and repository:
        raise Fault("both VLLM_SDIST and VLLM_GIT are set; give one of them")
    cache.mkdir(parents=True, exist_ok=True)
    with lock.held("fetch"):
        for left in cache.glob("incoming-*"):
            shutil.rmtree(left)
        if repository:
            return _from_git(pin, repository, cache)
        cached = cache / pin.sdist_name
        if file:
            _take_file(pin, Path(file), cached)
        elif cached.exists():
            _verify(pin, cached, "delete the file to have it downloaded again")
        else:
            _download(pin, cached, python)
        return Source(cached, sdist_origin(pin.sha256))


def _verify(pin: Pin, path: Path, remedy: str) -> None:
    found = sha256_of(path)
    if found != pin.sha256:
        raise Fault(f"{path}: sha256 is {found}, pin.toml says {pin.sha256}; {remedy}")


def _take_file(pin: Pin, file: Path, cached: Path) -> None:
    """Copies VLLM_SDIST's file into the cache, so that the next run needs no variable."""
    if not file.is_file():
        raise Fault(f"VLLM_SDIST: no file {file}; give the path of {pin.sdist_name}")
    _verify(pin, file, f"give vLLM {pin.version}'s own {pin.sdist_name}")
    if cached.exists() and sha256_of(cached) == pin.sha256:
        return
    with tempfile.TemporaryDirectory(dir=cached.parent, prefix="incoming-") as folder:
        copy = Path(folder) / cached.name
        shutil.copyfile(file, copy)
        _verify(pin, copy, "it changed while it was copied; run this again")
        copy.replace(cached)


def _download(pin: Pin, cached: Path, python: str) -> None:
    print(f"fetch: downloading {pin.sdist_name}", flush=True)
    with tempfile.TemporaryDirectory(dir=cached.parent, prefix="incoming-") as folder:
        copy = download(pin.version, Path(folder), python)
        _verify(pin, copy, "the download is not the pinned file and was not kept")
        copy.replace(cached)


def download(version: str, folder: Path, python: str) -> Path:
    """Has pip put a version's source distribution into `folder`, checked against the index."""
    # pip runs the package's own setup.py to learn its name and version. That needs vLLM's build
    # requirements, and reports a version that pip takes for a wrong one unless it is told which.
    settings = {"VLLM_VERSION_OVERRIDE": version, "VLLM_TARGET_DEVICE": "empty"}
    command = [python, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:"]
    command += ["--no-build-isolation", "--dest", str(folder), f"vllm=={version}"]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)
    copy = folder / f"vllm-{version}.tar.gz"
    if done.returncode != 0 or not copy.exists():
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = said[-1] if said else f"pip ended with status {done.returncode}"
        raise Fault(
            f"cannot download vllm {version}: {reason}; with {copy.name} or vLLM's "
            "repository at hand give VLLM_SDIST=<file> or VLLM_GIT=<repository>"
        )
    return copy


def _from_git(pin: Pin, repository: str, cache: Path) -> Source:
    with tempfile.TemporaryDirectory(dir=cache, prefix="incoming-") as folder:
        tree = Path(repository)
        if not tree.is_dir():
            tree = Path(folder) / "vllm.git"
            tag = f"v{pin.version}"
            print(f"fetch: cloning {tag} of {repository}", flush=True)
            # With the user's own configuration: it may hold the proxy that leads there.
            clone = ["git", "clone", "--quiet", "--bare", "--depth=1", f"--branch={tag}"]
            done = subprocess.run([*clone, repository, str(tree)], capture_output=True, text=True)
            if done.returncode != 0:
                reason = next(iter(done.stderr.splitlines()), "git gave no reason")
                raise Fault(f"VLLM_GIT: cannot clone {tag} of {repository}: {reason}")
        git = Git(tree, pin.source_date_epoch)
        commit = git.commit_id(pin.commit)
        if commit is None or not commit.startswith(pin.commit):
            raise Fault(
                f"VLLM_GIT: {repository} has no commit {pin.commit} (vLLM {pin.version}); "
                "fetch it there first"
            )
        copy = Path(folder) / f"vllm-{commit}.tar"
        prefix = f"--prefix=vllm-{pin.version}/"
        git.bytes("archive", "--format=tar", prefix, f"--output={copy.resolve()}", commit)
        archive = cache / copy.name
        copy.replace(archive)
    return Source(archive, git_origin(commit))


def relative(member: tarfile.TarInfo) -> str | None:
    """Path of a member below the top folder, or None for the top folder itself."""
    parts = Path(member.name).parts
    if member.name.startswith("/") or ".." in parts:
        raise Fault(f"the source archive has a path outside its folder: {member.name}")
    return "/".join(parts[1:]) or None


def _is_sdist_only(path: str) -> bool:
    return path in SDIST_ONLY or path.split("/", 1)[0] in SDIST_ONLY


def unpack(archive: Path, folder: Path) -> None:
    """Writes upstream's files into `folder`, without what only a source distribution has."""
    with tarfile.open(archive) as tar:
        for member in tar:
            path = relative(member)
            if path is None or member.isdir() or _is_sdist_only(path):
                continue
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if member.issym():
                target.symlink_to(member.linkname)
                continue
            content = tar.extractfile(member)
            if content is None:
                raise Fault(f"the source archive has something that is no file: {member.name}")
            with content, target.open("wb") as out:
                shutil.copyfileobj(content, out)
            target.chmod(0o755 if member.mode & 0o100 else 0o644)


def read_member(archive: Path, path: str) -> str:
    """Text of one file of the tree."""
    with tarfile.open(archive) as tar:
        for member in tar:
            if relative(member) == path and (content := tar.extractfile(member)):
                return content.read().decode()
    raise Fault(f"{archive.name} has no {path}")


def main() -> None:
    """Fetches the pinned source and says where it is."""
    source = find_source(load_pin())
    print(f"fetch: {source.archive.relative_to(paths.ROOT)} ({source.origin})")


if __name__ == "__main__":
    errors.run("fetch", main)
