"""Writes the commits of build/vllm back: patches/, vllm_overlay/ and the series' part of csrc/.

    python -m scripts.refresh

A change to a file that upstream has becomes a hunk of the commit's mail. A file that upstream
lacks is written whole, as the last commit has it, and claimed by the patch whose commit adds it;
a later commit's change to it goes into that file. Nothing is written before the result has been
applied anew and found equal to the checkout.
"""

import re
import shutil
import tempfile
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from scripts import errors, lock, paths
from scripts.apply import commit_series
from scripts.checkout import APPLIED, move, recover, refuse_uncommitted_work
from scripts.errors import Fault
from scripts.git import Git
from scripts.pin import Pin, load_pin
from scripts.series import (
    CLAIM,
    CSRC_OURS_ALONE,
    HERE,
    Folders,
    claims_of,
    files_below,
    home_of,
    load_series,
    matches,
    mode_of,
    patch_files,
)

# The developer's last commit while its files are being written: a run that was interrupted there
# is told by it from one that finds the series changed behind the checkout's back.
WRITING = "refs/series/writing"

# Every option that a user's configuration or git's version could otherwise choose.
MAIL_FORMAT = (
    "--no-signature", "--zero-commit", "--no-numbered", "--start-number=1", "--no-cover-letter",
    "--no-attach", "--no-thread", "--no-base", "--subject-prefix=PATCH", "--encode-email-headers",
    "--filename-max-length=64", "--suffix=.patch", "--always", "--no-stat", "--patch",
    "--unified=3", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv",
    "--no-color", "--indent-heuristic", "--src-prefix=a/", "--dst-prefix=b/",
)  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One commit, split into what upstream's files get and which files of ours it adds."""

    commit: str
    # Blob and mode of each changed file of upstream's; None where it is removed.
    upstream: dict[str, tuple[str, str] | None]
    # Places of our files that come in with the commit, as the last commit has them.
    added: frozenset[str]
    # The commit's message, with trailers that name just these.
    message: str


def refresh(pin: Pin, folder: Path = paths.CHECKOUT, folders: Folders = HERE) -> list[str]:
    """Writes the series of `folder` back; returns the files written or removed, as shown.

    Raises Fault, having written nothing, where the checkout has uncommitted changes or merges, or
    the series' files have changed since it was made.
    """
    with lock.held("checkout"):
        git = Git(folder, pin.source_date_epoch)
        if not folder.exists():
            raise Fault("there is no build/vllm; make it with `make checkout`")
        recover(git)
        refuse_uncommitted_work(git)
        base, head = git.text("rev-parse", "base^{commit}"), git.text("rev-parse", "HEAD")
        _refuse_moved_series(git, base, head, folders)
        with tempfile.TemporaryDirectory(dir=paths.BUILD, prefix="refresh-") as name:
            exported, tip = export(git, base, head, Path(name))
            had = git.files(APPLIED).keys() - git.files("base").keys()
            if git.commit_id(WRITING) != head:
                _refuse_foreign_files(had, exported, folders)
            git.bytes("update-ref", WRITING, head)
            written = write(exported, folders, had)
        # The same trees with the commits that every other checkout has.
        move(git, tip)
        git.bytes("update-ref", "-d", WRITING)
        return written


def export(git: Git, base: str, head: str, into: Path) -> tuple[Folders, str]:
    """Writes the commits from `base` to `head` into the folder `into`, as a series.

    Returns where the series lies, and the id of its last commit when it is applied to `base`.
    Fault where the commits are no series, or the series would not make the tree of `head`.
    """
    exported = _export(git, base, head, _changes(git, base, head), into)
    tip = commit_series(git, base, load_series(exported))
    if git.bytes("diff-tree", "-r", tip, head):
        raise Fault("the exported series does not make the checkout's tree: not written")
    return exported, tip


def stale(pin: Pin, folder: Path = paths.CHECKOUT, folders: Folders = HERE) -> list[str]:
    """The mails that are not as `refresh` would write them, from an up-to-date checkout."""
    git = Git(folder, pin.source_date_epoch)
    base, head = git.text("rev-parse", "base^{commit}"), git.text("rev-parse", "HEAD")
    with tempfile.TemporaryDirectory(dir=paths.BUILD, prefix="refresh-") as name:
        exported = _export(git, base, head, _changes(git, base, head), Path(name))
        new = {file.name: file.read_bytes() for file in patch_files(exported.patches)}
        old = {file.name: file.read_bytes() for file in patch_files(folders.patches)}
        return [f"patches/{n}" for n in sorted(new | old) if new.get(n) != old.get(n)]


def _refuse_moved_series(git: Git, base: str, head: str, folders: Folders) -> None:
    """Fault where the series' files are no longer those that the checkout was made from."""
    if git.commit_id(WRITING) == head:
        return
    if commit_series(git, base, load_series(folders)) != git.commit_id(APPLIED):
        remedy = "run `make checkout`"
        if head != git.commit_id(APPLIED):
            remedy = (
                "keep your commits with `git -C build/vllm branch mine`, go back with `git -C "
                f"build/vllm reset --hard {APPLIED}`, run `make checkout`, cherry-pick them"
            )
        raise Fault(
            f"patches/, vllm_overlay/ or csrc/ have changed since build/vllm was made; {remedy}"
        )


def _refuse_foreign_files(places: Set[str], exported: Folders, folders: Folders) -> None:
    """Fault where a file of the export would replace one that the series did not have."""
    had = {home_of(place) for place in places}
    for claim, new, old in (
        ("Overlay", exported.overlay, folders.overlay),
        ("Csrc", exported.csrc, folders.csrc),
    ):
        for path in files_below(new):
            there = (old / path).exists() and (claim, path) not in had
            if there and not _same(new / path, old / path):
                raise Fault(
                    f"{old.name}/{path} is there already, claimed by no patch, and other than "
                    "the commit's; bring the two together, or remove it"
                )


def _changes(git: Git, base: str, head: str) -> list[Change]:
    """The commits from `base` to `head`, first to last."""
    if not git.commit_id(base) or git.text("merge-base", base, head) != base:
        raise Fault("build/vllm's branch does not start at the tag `base`; run `make checkout`")
    if merges := git.text("rev-list", "--merges", f"{base}..{head}").split():
        raise Fault(f"build/vllm has a merge ({merges[0][:12]}); a series is a line: rebase it")
    upstream, final = git.files(base), git.files(head)
    ours = final.keys() - upstream.keys()
    for place in ours:
        if re.search(r"[\s*?\[]", place):
            raise Fault(f"{place!r} has a space or a glob's sign in its name; rename it")
    order = git.text("rev-list", "--reverse", f"{base}..{head}").split()
    changes, claimed = [], set[str]()
    before = upstream
    for commit in order:
        after = git.files(commit)
        changed = {path for path in before | after if before.get(path) != after.get(path)}
        message = git.text("log", "-1", "--format=%B", commit)
        added = changed & ours - claimed
        if added:
            # A folder or a glob in its trailers takes what later commits add there as well.
            patterns = claims_of(message)
            added |= {path for path in ours - claimed if _named(patterns, path)}
        claimed |= added
        theirs = {path: after.get(path) for path in sorted(changed & upstream.keys())}
        changes.append(Change(commit, theirs, frozenset(added), with_claims(message, added, ours)))
        before = after
    return changes


def _named(patterns: list[tuple[str, str]], place: str) -> bool:
    home, path = home_of(place)
    return any(claim == home and matches(pattern, path) for claim, pattern in patterns)


def _export(git: Git, base: str, head: str, changes: list[Change], into: Path) -> Folders:
    """Writes the series into `into`: mails, overlay and csrc."""
    exported = Folders(into / "patches", into / "vllm_overlay", into / "csrc")
    for folder in (exported.patches, exported.overlay, exported.csrc):
        folder.mkdir()
    final = git.files(head)
    for place in (place for change in changes for place in change.added):
        claim, path = home_of(place)
        if claim == "Csrc" and path.startswith(CSRC_OURS_ALONE):
            raise Fault(f"{place} would lie in csrc/{CSRC_OURS_ALONE}, which is not the series'")
        file = (exported.csrc if claim == "Csrc" else exported.overlay) / path
        mode, blob = final[place]
        if mode not in ("100644", "100755"):
            raise Fault(f"{place}: not a plain file; the series holds plain files only")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(git.bytes("cat-file", "blob", blob))
        file.chmod(0o755 if mode == "100755" else 0o644)
    tip = _commit_hunks(git, base, changes, into / "index")
    git.bytes(
        "format-patch", *MAIL_FORMAT, f"--output-directory={exported.patches}", f"{base}..{tip}"
    )
    return exported


def _commit_hunks(git: Git, base: str, changes: list[Change], index: Path) -> str:
    """Commits what upstream's files get, and it alone: format-patch makes the mails of these."""
    staged = git.with_index(index)
    staged.bytes("read-tree", base)
    tip = base
    for change in changes:
        if not change.upstream and not change.added:
            subject = git.text("log", "-1", "--format=%s", change.commit)
            print(f"refresh: folded into the patch that adds its files: {subject}", flush=True)
            continue
        entries = []
        for path, entry in change.upstream.items():
            mode, blob = entry or ("0", "0" * len(base))
            entries.append(f"{mode} {blob}\t{path}\0")
        staged.text("update-index", "-z", "--index-info", stdin="".join(entries))
        who = ("log", "-1", "--format=%an%x00%ae%x00%ad", "--date=raw", change.commit)
        name, email, date = git.text(*who).split("\0")
        author = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_AUTHOR_DATE": date}
        tree = staged.text("write-tree")
        tip = staged.text("commit-tree", tree, "-p", tip, stdin=change.message, env=author)
    return tip


def with_claims(message: str, added: Set[str], ours: Set[str]) -> str:
    """The message with trailers that name just the files `added`, out of all of `ours`.

    A line stays as it is where it names some of them and nothing else.
    """
    named: set[str] = set()
    lines = []
    for line in message.strip("\n").split("\n"):
        if CLAIM.match(line):
            hits = {place for place in ours if _named(claims_of(line), place)}
            if not hits <= added or hits <= named:
                continue
            named |= hits
        lines.append(line)
    missing = [home_of(place) for place in sorted(added - named)]
    if missing:
        if not _ends_in_trailers(lines):
            lines.append("")
        lines += [f"{claim}: {path}" for claim, path in missing]
    return "\n".join(lines).rstrip("\n") + "\n"


def _ends_in_trailers(lines: list[str]) -> bool:
    """Whether the last paragraph ends in a line like `Test: ...`, to which more may be added."""
    name, colon, _ = lines[-1].partition(": ")
    return len(lines) > 1 and colon == ": " and name.replace("-", "").isalpha()


def write(exported: Folders, folders: Folders, had: Set[str]) -> list[str]:
    """Brings the series' folders to what was exported; returns what changed, as shown.

    `had` are the places in vLLM of the files that the series had: those that it has no more go.
    """
    ours = [home_of(place) for place in had]
    before = {claim: {path for c, path in ours if c == claim} for claim in ("Overlay", "Csrc")}
    mails = {file.name for file in patch_files(folders.patches)}
    written = _mirror(exported.overlay, folders.overlay, before["Overlay"])
    written += _mirror(exported.csrc, folders.csrc, before["Csrc"])
    return written + _mirror(exported.patches, folders.patches, mails)


def _mirror(new: Path, old: Path, replaced: set[str]) -> list[str]:
    """Copies the files of `new` to `old` where they differ, and drops the `replaced` it lacks."""
    kept = set(files_below(new))
    shown = []
    for path in sorted(kept):
        source, target = new / path, old / path
        if target.is_file() and _same(source, target):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        copy = target.with_name(f".{target.name}.new")
        shutil.copy(source, copy)
        copy.replace(target)
        shown.append(f"{old.name}/{path}")
    for path in sorted(replaced - kept):
        if (old / path).exists():
            (old / path).unlink()
            shown.append(f"{old.name}/{path} (removed)")
    return shown


def _same(a: Path, b: Path) -> bool:
    return mode_of(a) == mode_of(b) and a.read_bytes() == b.read_bytes()


def main() -> None:
    """Writes the series back and says what changed."""
    written = refresh(load_pin())
    for path in written:
        print(f"refresh: {path}")
    if not written:
        print("refresh: nothing to write")


if __name__ == "__main__":
    errors.run("refresh", main)
