"""What the series does to vLLM's package, read from the commits of the checkout."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts import paths
from scripts.errors import Fault
from scripts.git import Git, GitError
from scripts.pin import Pin

PACKAGE = "vllm"
BASE_TAG = "base"
_PROGRAM_MODE = "100755"


@dataclass(frozen=True)
class Blob:
    """A file in a commit."""

    id: str
    is_program: bool

    def holds(self, data: bytes) -> bool:
        """Whether `data` is this file's content."""
        return blob_id(data, len(self.id)) == self.id


@dataclass(frozen=True)
class Changes:
    """vLLM's package before and after the series: member name -> file, of the pin and of HEAD."""

    git: Git
    pin: Mapping[str, Blob]
    head: Mapping[str, Blob]

    @property
    def patched(self) -> list[str]:
        """Files of the pin that the series changes."""
        return sorted(name for name, blob in self.head.items() if self.pin.get(name, blob) != blob)

    @property
    def added(self) -> list[str]:
        """Files that the series brings."""
        return sorted(self.head.keys() - self.pin.keys())

    @property
    def removed(self) -> list[str]:
        """Files of the pin that the series takes away."""
        return sorted(self.pin.keys() - self.head.keys())

    def contents(self, names: Iterable[str]) -> dict[str, bytes]:
        """The contents of files of HEAD."""
        names = list(names)
        request = "".join(f"{self.head[name].id}\n" for name in names).encode()
        output = self.git.bytes("cat-file", "--batch", stdin=request)
        found = {}
        start = 0
        for name in names:
            end = output.index(b"\n", start)
            size = int(output[start:end].split()[2])
            found[name] = output[end + 1 : end + 1 + size]
            start = end + size + 2
        return found


def read_changes(pin: Pin, checkout: Path = paths.CHECKOUT) -> Changes:
    """Reads them from the checkout; raises Fault where there is none, or edits not committed."""
    if not (checkout / ".git").exists():
        raise Fault(f"{checkout}: no checkout; run `make checkout`")
    git = Git(checkout, pin.source_date_epoch)
    try:
        loose = git.lines("status", "--porcelain", "-z", "--untracked-files=all", "--", PACKAGE)
        if loose:
            raise Fault(
                f"{checkout}: {loose[0][3:]} is not committed;"
                " commit it there and `make refresh`, or undo it"
            )
        return Changes(git, _package(git, BASE_TAG), _package(git, "HEAD"))
    except GitError as error:
        raise Fault(f"{checkout}: {error}; run `make checkout` again") from None


def blob_id(data: bytes, digits: int = 40) -> str:
    """The id that git gives a content: `digits` tells SHA-1 (40) from SHA-256 (64)."""
    digest = hashlib.sha1(usedforsecurity=False) if digits == 40 else hashlib.sha256()
    digest.update(b"blob %d\0" % len(data))
    digest.update(data)
    return digest.hexdigest()


def _package(git: Git, revision: str) -> dict[str, Blob]:
    return {
        path: Blob(blob, mode == _PROGRAM_MODE)
        for path, (mode, blob) in git.files(revision).items()
        if path.startswith(f"{PACKAGE}/")
    }
