"""Another vLLM than the pinned one: where its source comes from, and what pin.toml says of it."""

import gzip
import os
import re
import shutil
import sys
import tarfile
import tempfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

from scripts import fetch, lock, paths
from scripts.errors import Fault
from scripts.fetch import Source
from scripts.git import Git
from scripts.pin import Pin

VERSION = re.compile(r"\d+\.\d+\.\d+[0-9a-z.]*")
# The file that says by its date when a source distribution's tree was checked out.
DATED_BY = "setup.py"


@dataclass(frozen=True)
class Release:
    """A vLLM by the facts that pin.toml has of one, with its source at hand."""

    version: str
    commit: str
    # Of the source distribution; empty for a tree from a git repository.
    sha256: str
    # Seconds since 1970.
    date: int
    source: Source

    def pin(self, old: Pin) -> Pin:
        """The pin with this vLLM in the place of the one it has."""
        return replace(
            old,
            version=self.version,
            commit=self.commit,
            sha256=self.sha256,
            source_date_epoch=self.date,
        )

    def pin_text(self, text: str) -> str:
        """pin.toml's text with this vLLM's facts; every other byte stays as it is."""
        facts = {
            "version": f'"{self.version}"',
            "commit": f'"{self.commit}"',
            "sha256": f'"{self.sha256}"',
            "source_date_epoch": str(self.date),
        }
        head, section, rest = re.split(r"^(\[vllm\]\n)", text, maxsplit=1, flags=re.MULTILINE)
        end = match.start() if (match := re.search(r"^\[", rest, re.MULTILINE)) else len(rest)
        body, tail = rest[:end], rest[end:]
        for name, value in facts.items():
            body, count = re.subn(rf"^({name} = ).*$", rf"\g<1>{value}", body, flags=re.MULTILINE)
            if count != 1:
                raise Fault(f"pin.toml: [vllm] has no one line `{name} = ...`; restore it")
        return head + section + body + tail


def sdist_given() -> Path | None:
    """The file that VLLM_SDIST names, which from now on names none.

    It is another vLLM's than the pinned one, for which everything else would take it.
    """
    file = os.environ.pop("VLLM_SDIST", "")
    return Path(file) if file else None


def find_release(
    version: str, file: Path | None, cache: Path = paths.CACHE, python: str = sys.executable
) -> Release:
    """The release of that version, from a file, the cache, or PyPI.

    pip checks a download against the index. The sha256 that it had then is kept beside the file,
    which is checked by it from then on. Raises Fault for a source that is another version's.
    """
    if not VERSION.fullmatch(version):
        raise Fault(f"{version!r} is no version of vLLM; give one like VLLM=0.32.0")
    cache.mkdir(parents=True, exist_ok=True)
    cached = cache / f"vllm-{version}.tar.gz"
    with lock.held("fetch"):
        archive = file or cached
        if file and not file.is_file():
            raise Fault(f"VLLM_SDIST: no file {file}; give the path of {cached.name}")
        if not file and not _is_verified(cached):
            _download(version, cached, python)
        release = _read(archive, version)
        if archive != cached:
            _keep(archive, cached, release.sha256)
    return replace(release, source=Source(cached, release.source.origin))


def from_repository(folder: Path, pinned: Pin, cache: Path = paths.CACHE) -> Release:
    """The commit that is checked out in a git repository of vLLM's.

    Its version is the pinned one's with the commit as local version, as it is no release.
    """
    git = Git(folder, pinned.source_date_epoch)
    commit = git.commit_id("HEAD") if (folder / ".git").exists() else None
    if commit is None:
        raise Fault(f"{folder} is no checkout of a git repository; give a version or a checkout")
    cache.mkdir(parents=True, exist_ok=True)
    archive = cache / f"vllm-{commit}.tar"
    with tempfile.TemporaryDirectory(dir=cache, prefix="incoming-") as name:
        copy = Path(name) / archive.name
        prefix = "--prefix=vllm/"
        git.bytes("archive", "--format=tar", prefix, f"--output={copy.resolve()}", commit)
        copy.replace(archive)
    version = f"{pinned.version}+g{commit[:9]}"
    date = int(git.text("log", "-1", "--format=%ct", commit))
    return Release(version, commit, "", date, Source(archive, fetch.git_origin(commit)))


def _record(cached: Path) -> Path:
    return cached.with_name(f"{cached.name}.sha256")


def _is_verified(cached: Path) -> bool:
    """Whether the cache has the file, with the sha256 that it had when it was verified."""
    record = _record(cached)
    if not cached.exists() or not record.exists():
        return False
    return fetch.sha256_of(cached) == record.read_text(encoding="utf-8").strip()


def _keep(archive: Path, cached: Path, sha256: str) -> None:
    """Puts a verified file and its sha256 into the cache, whole or not at all."""
    with tempfile.TemporaryDirectory(dir=cached.parent, prefix="incoming-") as name:
        copy, record = Path(name) / cached.name, Path(name) / "sha256"
        shutil.copyfile(archive, copy)
        record.write_text(f"{sha256}\n", encoding="utf-8")
        copy.replace(cached)
        record.replace(_record(cached))


def _download(version: str, cached: Path, python: str) -> None:
    print(f"fetch: downloading {cached.name}", flush=True)
    with tempfile.TemporaryDirectory(dir=cached.parent, prefix="incoming-") as name:
        copy = fetch.download(version, Path(name), python)
        _keep(copy, cached, fetch.sha256_of(copy))


def _read(archive: Path, version: str) -> Release:
    """What a source distribution says of itself; Fault where that is not the version wanted."""
    try:
        with gzip.open(archive) as whole:  # To its end, where its checksum is.
            while whole.read(1 << 20):
                pass
        with tarfile.open(archive) as tar:
            members = {fetch.relative(member): member for member in tar if member.isfile()}
            info = _text(tar, members, "PKG-INFO")
            versions = _text(tar, members, "vllm/_version.py")
            dated = members.get(DATED_BY)
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise Fault(f"{archive}: not a whole source distribution: {error}") from None
    said = re.search(r"^Version: (\S+)$", info, re.MULTILINE)
    if said is None or said[1] != version:
        found = said[1] if said else "no version"
        raise Fault(f"{archive}: is vLLM {found}, not {version}; give {version}'s own")
    commit = re.search(r"commit_id = ['\"]g([0-9a-f]{7,40})['\"]", versions)
    if commit is None or dated is None:
        lacks = DATED_BY if commit else "the commit that it was made from"
        raise Fault(f"{archive}: does not have {lacks}; it is not as vLLM's releases are")
    sha256 = fetch.sha256_of(archive)
    origin = fetch.sdist_origin(sha256)
    return Release(version, commit[1], sha256, int(dated.mtime), Source(archive, origin))


def _text(tar: tarfile.TarFile, members: dict[str | None, tarfile.TarInfo], path: str) -> str:
    content = tar.extractfile(members[path]) if path in members else None
    return content.read().decode() if content else ""
