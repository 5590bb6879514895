"""Takes a patch's commit to another vLLM by git's three-way merge, and says how it went."""

import tempfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from scripts.conflicts import Conflict, conflicts
from scripts.errors import Fault
from scripts.git import Git, GitError
from scripts.series import Patch


class State(Enum):
    """How a patch fits another vLLM."""

    # It applies as it is, at other lines at most.
    CLEAN = "clean"
    # git merges it, but the lines around it have changed.
    FUZZ = "fuzz"
    # It would change nothing.
    THERE = "already there"
    CONFLICT = "conflict"


@dataclass(frozen=True)
class Fit:
    """A patch's fit, and where it is a conflict each place of it."""

    patch: Patch
    state: State
    conflicts: tuple[Conflict, ...] = ()


def pick(git: Git, patch: Patch, commit: str) -> Fit:
    """Merges a commit into the checked-out branch and commits it there, with its author.

    Where it conflicts, and where it is there already, branch and files are as they were.
    """
    try:
        git.bytes("cherry-pick", "--no-commit", commit)
    except GitError as error:
        unmerged = git.lines("diff", "--name-only", "-z", "--diff-filter=U")
        if not unmerged:
            raise Fault(f"{patch.name}: git says: {' '.join(error.stderr.split())}") from None
        found = conflicts(git, patch, unmerged)
        git.bytes("reset", "--quiet", "--hard")
        return Fit(patch, State.CONFLICT, tuple(found))
    if git.text("write-tree") == git.text("rev-parse", "HEAD^{tree}"):
        return Fit(patch, State.THERE)
    state = State.CLEAN if _applies(git, commit) else State.FUZZ
    git.bytes("commit", "--quiet", "--no-verify", f"--reuse-message={commit}")
    return Fit(patch, state)


def _applies(git: Git, commit: str) -> bool:
    """Whether a commit's diff applies to the checked-out one without a merge."""
    diff = git.bytes(
        "diff-tree", "-p", "--binary", "--full-index", "--no-renames", f"{commit}^", commit
    )
    with tempfile.TemporaryDirectory(prefix="applies-") as folder:
        staged = git.with_index(Path(folder) / "index")
        staged.bytes("read-tree", "HEAD")
        try:
            staged.bytes("apply", "--cached", "--whitespace=nowarn", "-", stdin=diff)
        except GitError:
            return False
    return True
