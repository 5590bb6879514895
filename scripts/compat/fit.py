"""A tree of another vLLM with as much of the series on it as merges."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from scripts.apply import commits
from scripts.checkout import move, place_base, write_version
from scripts.git import Git
from scripts.pin import Pin
from scripts.refresh import export, write
from scripts.release import Release
from scripts.series import Folders, load_series
from scripts.transplant import Fit, pick


@dataclass(frozen=True)
class Side:
    """A pin with its checkout and the folders of its series."""

    pin: Pin
    checkout: Path
    folders: Folders

    @property
    def git(self) -> Git:
        """git in the checkout."""
        return Git(self.checkout, self.pin.source_date_epoch)


def fit_series(pinned: Side, release: Release, other: Side) -> list[Fit]:
    """Makes `other`'s checkout the release with the patches that fit; returns how each one does.

    `other.folders` holds a copy of the series; it becomes the series that the checkout has. A patch
    that conflicts is left out, and the next is tried without it.
    """
    git = pinned.git
    base = git.text("rev-parse", "base^{commit}")
    series = load_series(pinned.folders)
    placed = list(commits(git, base, series))
    place_base(other.pin, release.source, other.checkout)
    # The patches' commits and the files that they were made for are there.
    alternates = other.checkout / ".git" / "objects" / "info" / "alternates"
    alternates.parent.mkdir(exist_ok=True)
    objects = git.text("rev-parse", "--path-format=absolute", "--git-path", "objects")
    alternates.write_text(f"{objects}\n", encoding="utf-8")
    fits = [pick(other.git, patch, commit) for patch, commit in placed]
    _take_over(other, {place for patch in series.patches for place in patch.claimed})
    return fits


def _take_over(other: Side, had: set[str]) -> None:
    """Makes the files of the series those of the checkout, as `make refresh` would."""
    git = other.git
    base, head = git.text("rev-parse", "base^{commit}"), git.text("rev-parse", "HEAD")
    with tempfile.TemporaryDirectory(dir=other.checkout.parent, prefix="series-") as folder:
        exported, tip = export(git, base, head, Path(folder))
        write(exported, other.folders, had)
    move(git, tip)
    write_version(other.pin, other.checkout)
