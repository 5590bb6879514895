"""The series as it lies in the repository: the mails of patches/, and the files that each claims.

A patch's message may end with lines `Overlay: <path>` and `Csrc: <path>`. They name the files
under vllm_overlay/ and csrc/ that come in with the patch's commit, by path, by glob, or by folder
(a path that ends in a slash). The mail has no hunks for them: they lie whole in the repository.
"""

import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from scripts import paths
from scripts.errors import Fault

# Where csrc/ goes in vLLM.
CSRC_PLACE = "csrc/rocm/"
# The part of csrc/ that stays here: it builds the library that lies beside an unmodified vLLM.
CSRC_OURS_ALONE = "runtime/"

CLAIM = re.compile(r"^(Overlay|Csrc): *(\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Patch:
    """One mail of patches/."""

    path: Path
    mail: bytes
    # Place in vLLM -> file here, of what the patch claims.
    claimed: dict[str, Path]

    @property
    def name(self) -> str:
        """File name, as messages give it."""
        return f"patches/{self.path.name}"


@dataclass(frozen=True)
class Series:
    """The patches in their order, and the files that none of them claims."""

    patches: tuple[Patch, ...]
    unclaimed: tuple[str, ...]


@dataclass(frozen=True)
class Folders:
    """Where a series lies."""

    patches: Path
    overlay: Path
    csrc: Path


HERE = Folders(paths.PATCHES, paths.OVERLAY, paths.CSRC)


def place_of(claim: str, path: str) -> str:
    """Where a file of vllm_overlay/ or csrc/ goes in vLLM; `claim` is its trailer's name."""
    return path if claim == "Overlay" else CSRC_PLACE + path


def home_of(place: str) -> tuple[str, str]:
    """The trailer's name and the path here of a file at a place in vLLM: undoes `place_of`."""
    if place.startswith(CSRC_PLACE):
        return "Csrc", place.removeprefix(CSRC_PLACE)
    return "Overlay", place


def matches(pattern: str, path: str) -> bool:
    """Whether a trailer's pattern (a path, a folder with a slash, a glob) names a path."""
    if pattern.endswith("/"):
        return path.startswith(pattern)
    return fnmatchcase(path, pattern)


def message_of(mail: str) -> str:
    """The part of a mail before its diff."""
    return re.split(r"^(?:---$|diff --git )", mail, maxsplit=1, flags=re.MULTILINE)[0]


def claims_of(message: str) -> list[tuple[str, str]]:
    """(trailer's name, pattern) of each claim of a message."""
    return [(match[1], match[2]) for match in CLAIM.finditer(message)]


def files_below(folder: Path) -> list[str]:
    """Paths of the files below a folder, sorted, without what Python and editors leave."""
    if not folder.is_dir():
        return []
    found = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    kept = (path for path in found if "__pycache__" not in path.parts)
    return sorted(path.as_posix() for path in kept if not path.name.endswith(("~", ".swp")))


def candidates(folders: Folders) -> dict[str, dict[str, Path]]:
    """Trailer's name -> path -> file, of everything that a patch may claim."""
    csrc = (path for path in files_below(folders.csrc) if not path.startswith(CSRC_OURS_ALONE))
    return {
        "Overlay": {path: folders.overlay / path for path in files_below(folders.overlay)},
        "Csrc": {path: folders.csrc / path for path in csrc},
    }


def mode_of(file: Path) -> str:
    """git's mode of a file; Fault for a link or anything else that is no file."""
    mode = file.lstat().st_mode
    if not stat.S_ISREG(mode):
        raise Fault(f"{file}: not a plain file; the series holds plain files only")
    return "100755" if mode & stat.S_IXUSR else "100644"


def patch_files(folder: Path) -> list[Path]:
    """The mails of patches/, in the order in which they are applied."""
    return sorted(folder.glob("*.patch"))


def load_series(folders: Folders = HERE) -> Series:
    """Reads the series. Fault for a claim that names nothing, or a file that two patches claim."""
    files = candidates(folders)
    owner: dict[str, str] = {}
    patches = []
    for path in patch_files(folders.patches):
        mail = path.read_bytes()
        message = message_of(mail.decode(errors="replace"))
        claimed: dict[str, Path] = {}
        for claim, pattern in claims_of(message):
            named = [file for file in files[claim] if matches(pattern, file)]
            if not named:
                raise Fault(_names_nothing(path, claim, pattern, folders))
            for file in named:
                place = place_of(claim, file)
                if owner.setdefault(place, path.name) != path.name:
                    raise Fault(
                        f"patches/{path.name}: `{claim}: {pattern}` names {file}, which "
                        f"patches/{owner[place]} claims already; drop one of the two lines"
                    )
                claimed[place] = files[claim][file]
        patches.append(Patch(path, mail, claimed))
    return Series(tuple(patches), tuple(_unclaimed(files, owner)))


def _names_nothing(path: Path, claim: str, pattern: str, folders: Folders) -> str:
    folder = folders.overlay if claim == "Overlay" else folders.csrc
    return (
        f"patches/{path.name}: `{claim}: {pattern}` names no file under {folder.name}/; "
        "restore the file or drop the line"
    )


def _unclaimed(files: dict[str, dict[str, Path]], owner: Iterable[str]) -> list[str]:
    claimed = set(owner)
    folder = {"Overlay": "vllm_overlay", "Csrc": "csrc"}
    return [
        f"{folder[claim]}/{path}"
        for claim, paths_ in files.items()
        for path in paths_
        if place_of(claim, path) not in claimed
    ]
