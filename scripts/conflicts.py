"""Says where a merge of a patch went wrong: the hunk, and the upstream lines that have changed."""

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from scripts.diagnose import FileDiff, Hunk, name, parse
from scripts.git import Git, GitError
from scripts.series import Patch

_CHANGE = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True)
class Conflict:
    """One place where a patch does not fit.

    `changed` is how the file differs there from the one that the patch was made for, as lines of
    a diff under headers with both files' line numbers: what upstream has changed.
    """

    path: str
    reason: str
    changed: tuple[str, ...] = ()


def conflicts(git: Git, patch: Patch, unmerged: list[str]) -> list[Conflict]:
    """The conflicts of a merge that has left these paths unmerged in the index."""
    diffs = {diff.made_for: diff for diff in parse(patch.mail.decode(errors="replace"))}
    found = []
    for path in unmerged:
        blobs = _stages(git, path)
        base, ours, theirs = (blobs.get(stage) for stage in (1, 2, 3))
        if base is None:
            reason = "the patch adds the file, and vLLM has one of that name"
            found.append(Conflict(path, reason))
        elif ours is None:
            found.append(Conflict(path, "vLLM has removed or moved the file"))
        elif theirs is None:
            changed = tuple(_changes(git, base, ours, 0, None))
            found.append(Conflict(path, "the patch removes the file, vLLM has changed it", changed))
        else:
            found += _misfits(git, path, diffs.get(base), base, ours)
    return found


def _stages(git: Git, path: str) -> dict[int, str]:
    """Merge stage (1 base, 2 ours, 3 theirs) -> blob of an unmerged path."""
    blobs = {}
    for line in git.lines("ls-files", "--unmerged", "-z", "--", path):
        _, blob, stage = line.split("\t", 1)[0].split()
        blobs[int(stage)] = blob
    return blobs


def _misfits(git: Git, path: str, diff: FileDiff | None, base: str, ours: str) -> list[Conflict]:
    """One conflict for each hunk that does not merge by itself."""
    found = []
    if diff is not None:
        text = git.bytes("cat-file", "blob", base)
        for number, hunk in enumerate(diff.hunks, 1):
            if not _merges(git, text, with_hunk(text, hunk), ours):
                end = hunk.start + len(hunk.before)
                changed = tuple(_changes(git, base, ours, hunk.start, end))
                found.append(Conflict(path, f"{name(number, hunk)} does not merge", changed))
    # Hunks that merge one by one, and not together; or a file that is no text.
    return found or [
        Conflict(path, "the file does not merge", tuple(_changes(git, base, ours, 0, None)))
    ]


def with_hunk(text: bytes, hunk: Hunk) -> bytes:
    """A file with one hunk of the patch that was made for it."""
    lines = text.decode(errors="surrogateescape").split("\n")
    first = max(hunk.start - 1, 0)
    lines[first : first + len(hunk.before)] = hunk.after
    return "\n".join(lines).encode(errors="surrogateescape")


def _merges(git: Git, base: bytes, theirs: bytes, ours: str) -> bool:
    with tempfile.TemporaryDirectory(prefix="merge-") as folder:
        files = [Path(folder) / each for each in ("ours", "base", "theirs")]
        for file, content in zip(
            files, (git.bytes("cat-file", "blob", ours), base, theirs), strict=True
        ):
            file.write_bytes(content)
        try:
            git.bytes("merge-file", "--stdout", "--quiet", *map(str, files))
        except GitError:
            return False
    return True


def _changes(git: Git, base: str, ours: str, first: int, last: int | None) -> list[str]:
    """Upstream's changes that touch the lines from `first` up to `last` of the base file."""
    kept: list[str] = []
    touches = False
    for line in git.bytes("diff", "--unified=0", base, ours).decode(errors="replace").split("\n"):
        if match := _CHANGE.match(line):
            start = int(match[1])
            end = start + int(match[2] or 1)
            touches = end >= first and (last is None or start <= last)
            if touches:
                kept.append(f"@@ line {match[1]}, now line {match[3]} @@")
        elif touches and line[:1] in ("+", "-"):
            kept.append(line)
    return kept
