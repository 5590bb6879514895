"""Makes the series' commits in vLLM's repository, without touching its working tree.

Each commit is a function of the base commit, the mail, and the files that the mail claims: the
same series gives the same commit ids everywhere, so comparing ids compares content.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.diagnose import why_not
from scripts.errors import Fault
from scripts.git import Git, GitError
from scripts.series import Patch, Series, mode_of


def commit_series(git: Git, base: str, series: Series) -> str:
    """Commits every patch on top of `base`; returns the id of the last commit."""
    placed = list(commits(git, base, series))
    return placed[-1][1] if placed else base


def commits(git: Git, base: str, series: Series) -> Iterator[tuple[Patch, str]]:
    """Commits the series patch by patch, giving each patch and the id of its commit."""
    with tempfile.TemporaryDirectory(prefix="series-") as folder:
        staged = git.with_index(Path(folder) / "index")
        staged.bytes("read-tree", base)
        tip = base
        for patch in series.patches:
            tip = _commit(staged, Path(folder), tip, base, patch)
            yield patch, tip


def _commit(git: Git, folder: Path, parent: str, base: str, patch: Patch) -> str:
    message, diff = folder / "message", folder / "diff"
    try:
        info = git.text(
            "mailinfo", "-b", "--no-scissors", "--encoding=UTF-8", str(message), str(diff),
            stdin=patch.mail.decode(),
        )  # fmt: skip
    except (GitError, UnicodeDecodeError):
        raise Fault(f"{patch.name}: not a `git format-patch` mail; {_restore(patch)}") from None
    facts = dict(line.split(": ", 1) for line in info.splitlines() if ": " in line)
    missing = [name for name in ("Author", "Email", "Date", "Subject") if name not in facts]
    if missing:
        raise Fault(f"{patch.name}: the mail has no {missing[0]}; {_restore(patch)}")
    _apply(git, parent, base, patch, diff)
    _add_claimed(git, parent, patch)
    body = message.read_text(encoding="utf-8").strip("\n")
    text = facts["Subject"] + (f"\n\n{body}" if body else "") + "\n"
    author = {
        "GIT_AUTHOR_NAME": facts["Author"],
        "GIT_AUTHOR_EMAIL": facts["Email"],
        "GIT_AUTHOR_DATE": facts["Date"],
    }
    tree = git.text("write-tree")
    return git.text("commit-tree", tree, "-p", parent, stdin=text, env=author)


def _restore(patch: Patch) -> str:
    return f"restore it with `git checkout {patch.name}`"


def _apply(git: Git, parent: str, base: str, patch: Patch, diff: Path) -> None:
    if diff.stat().st_size == 0:
        return
    try:
        git.bytes("apply", "--cached", "--3way", "--whitespace=nowarn", str(diff))
    except GitError as error:
        raise Fault(why_not(git, parent, base, patch, error.stderr)) from None


def _add_claimed(git: Git, parent: str, patch: Patch) -> None:
    if not patch.claimed:
        return
    present = set(git.lines("ls-files", "-z", "--", *patch.claimed))
    if present:
        place = min(present)
        raise Fault(
            f"{patch.name} claims {patch.claimed[place].name} for {place}, which is there already; "
            "a change to a file that vLLM has is a hunk in a patch"
        )
    entries = []
    for place, file in sorted(patch.claimed.items()):
        # --no-filters: byte for byte, whatever attributes say.
        blob = git.text("hash-object", "-w", "--no-filters", "--", str(file.resolve()))
        entries.append(f"{mode_of(file)} {blob}\t{place}\0")
    git.text("update-index", "-z", "--index-info", stdin="".join(entries))
