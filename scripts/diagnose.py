"""Says why a patch does not apply: which hunk, and whether the file or the patch is at fault."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from scripts.git import Git, GitError
from scripts.series import Patch

_FILE = re.compile(r"^diff --git a/(.+) b/(.+)$")
_INDEX = re.compile(r"^index ([0-9a-f]+)\.\.([0-9a-f]+)")
_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")


@dataclass
class Hunk:
    """One hunk: its header, its line in the mail, what it does, and whether it is whole."""

    header: str
    line: int
    # The line of the file at which it starts, from 1; 0 for a hunk that fills an empty file.
    start: int = 0
    # Lines that must be in the file: context and removed lines.
    before: list[str] = field(default_factory=list)
    # The lines that take their place: context and added lines.
    after: list[str] = field(default_factory=list)
    # What is wrong with the hunk itself; empty where it is well formed.
    fault: str = ""


@dataclass
class FileDiff:
    """The part of a mail that changes one file."""

    path: str
    # Blob id of the file that the patch was made for (all zeros: a new file), or empty.
    made_for: str = ""
    hunks: list[Hunk] = field(default_factory=list)


def parse(mail: str) -> list[FileDiff]:
    """The file changes of a mail, with what is malformed in a hunk noted in it."""
    files: list[FileDiff] = []
    lines = mail.split("\n")
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if match := _FILE.match(line):
            files.append(FileDiff(match[2]))
        elif files and (match := _INDEX.match(line)):
            files[-1].made_for = match[1]
        elif files and line.startswith("@@"):
            hunk = Hunk(line, number)
            files[-1].hunks.append(hunk)
            number = _read_hunk(hunk, lines, number)
    return files


def _read_hunk(hunk: Hunk, lines: list[str], number: int) -> int:
    """Reads a hunk's body from `lines[number]` on; returns the number of the line after it."""
    match = _HUNK.match(hunk.header)
    if match is None:
        hunk.fault = "its header is malformed"
        return number
    hunk.start = int(match[1])
    old, new = int(match[2] or 1), int(match[3] or 1)
    seen_old = seen_new = 0
    while seen_old < old or seen_new < new:
        line = lines[number] if number < len(lines) else ""
        if line[:1] not in (" ", "-", "+", "\\") or line == "-- ":
            hunk.fault = (
                f"its header counts {old} lines before and {new} after, "
                f"its body has {seen_old} and {seen_new}"
            )
            return number
        if line[0] in " -":
            hunk.before.append(line[1:])
        if line[0] in " +":
            hunk.after.append(line[1:])
        seen_old += line[0] in " -"
        seen_new += line[0] in " +"
        number += 1
    if number < len(lines) and lines[number][:1] in (" ", "-", "+") and lines[number] != "-- ":
        hunk.fault = f"its body goes on past the {old} and {new} lines that its header counts"
    return number


def why_not(git: Git, parent: str, base: str, patch: Patch, said: str) -> str:
    """One line: the patch, the file and the hunk that do not apply on `parent`, why, what to do."""
    diffs = parse(patch.mail.decode(errors="replace"))
    # A broken hunk is the answer wherever it stands: git reads nothing of such a patch.
    for reason in (_broken_hunk, _misfit):
        for diff in diffs:
            if found := reason(git, parent, base, diff):
                return f"{patch.name}: {diff.path}: {found.format(patch=patch.name)}"
    return f"{patch.name}: git says: {' '.join(said.split())}; {_REDO.format(patch=patch.name)}"


_RESTORE = (
    "the patch is broken: restore it with `git checkout {patch}`, and edit by committing in "
    "build/vllm and `make refresh`"
)
_REDO = (
    "move the patch out of patches/, run `make checkout`, commit its change anew in build/vllm "
    "and run `make refresh`"
)


def _broken_hunk(git: Git, parent: str, base: str, diff: FileDiff) -> str:
    for number, hunk in enumerate(diff.hunks, 1):
        if hunk.fault:
            return f"{name(number, hunk)}: {hunk.fault}; {_RESTORE}"
    return ""


def _misfit(git: Git, parent: str, base: str, diff: FileDiff) -> str:
    """Why a well-formed file change does not fit the file, or nothing where it does."""
    new = diff.made_for.strip("0") == "" and diff.made_for != ""
    blob = _blob(git, parent, diff.path)
    if new:
        return f"the patch adds the file, which is there already; {_REDO}" if blob else ""
    if not blob:
        return f"the file is not in the pinned vLLM: upstream has moved or removed it; {_REDO}"
    text = git.bytes("cat-file", "blob", blob).decode(errors="replace").split("\n")
    for number, hunk in enumerate(diff.hunks, 1):
        if not any(_runs(text, hunk.before)):
            return f"{name(number, hunk)}: {_cause(git, base, diff, blob)}"
    return ""


def _cause(git: Git, base: str, diff: FileDiff, blob: str) -> str:
    if not diff.made_for:
        return (
            "its lines are not in the file, and the patch does not say which file it was made "
            f"for; {_RESTORE}"
        )
    if blob.startswith(diff.made_for):
        return (
            f"the file is the one that the patch was made for ({diff.made_for[:12]}), and does not "
            f"have the hunk's lines: {_RESTORE}"
        )
    differs = f"made for {diff.made_for[:12]}, the file is {blob[:12]}"
    if _blob(git, base, diff.path) != blob:
        return (
            f"an earlier patch leaves the file other than this one expects it ({differs}); {_REDO}"
        )
    return f"upstream has changed the file ({differs}); {_REDO}"


def _blob(git: Git, revision: str, path: str) -> str:
    try:
        return git.text("rev-parse", "--verify", "--quiet", f"{revision}:{path}")
    except GitError:
        return ""


def _runs(text: list[str], wanted: list[str]) -> Iterator[bool]:
    """Whether `wanted` stands at each place of `text`."""
    for start in range(len(text) - len(wanted) + 1):
        yield text[start : start + len(wanted)] == wanted


def name(number: int, hunk: Hunk) -> str:
    """How messages name a file's `number`th hunk."""
    return f"hunk {number} ({hunk.header.strip()}, line {hunk.line} of the patch)"
